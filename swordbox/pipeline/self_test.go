package pipeline

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var (
	ownMAC = wire.MAC{2, 0, 0, 0, 0, 0xfe}
	ownIP4 = netip.MustParseAddr("10.0.0.254")
	ownIP6 = netip.MustParseAddr("fd00::fe")
)

// withSelf returns a rig of three ports in which the switch has addresses.
func withSelf(t *testing.T, p *testProgram) *rig {
	return newRig(t, 3, p, func(c *Config) { c.Self = Self{MAC: ownMAC, Addrs: []netip.Addr{ownIP4, ownIP6}} })
}

// bytesOf reads digits with comments.
func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const arpAsk = `
	ff ff ff ff ff ff  02 00 00 00 00 01  08 06
	00 01  08 00  06  04  00 01               # Ethernet, IPv4, request
	02 00 00 00 00 01  0a 00 00 01            # who asks
	00 00 00 00 00 00  0a 00 00 fe            # for whom
	00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 # Ethernet padding`

const arpAnswer = `
	02 00 00 00 00 01  02 00 00 00 00 fe  08 06
	00 01  08 00  06  04  00 02               # reply
	02 00 00 00 00 fe  0a 00 00 fe
	02 00 00 00 00 01  0a 00 00 01`

// An ARP request for the switch is answered to the requesting host only; one for another address is
// flooded.
func TestAnswersARP(t *testing.T) {
	r := withSelf(t, &testProgram{})
	r.want("request", r.send(1, bytesOf(t, arpAsk)), "[1]")
	if got, want := r.out.Frames[0].Data, bytesOf(t, arpAnswer); !bytes.Equal(got, want) {
		t.Errorf("answer\n%x, want\n%x", got, want)
	}
	tagged := slices.Insert(bytesOf(t, arpAsk), 12, 0x81, 0, 0x60, 0x64)
	r.want("tagged request", r.send(1, tagged), "[1]")
	if got, want := r.out.Frames[0].Data, slices.Insert(bytesOf(t, arpAnswer), 12, 0x81, 0, 0x60, 0x64); !bytes.Equal(got, want) {
		t.Errorf("tagged answer\n%x, want\n%x", got, want)
	}
	for what, at := range map[string]int{"reply": 21, "other hardware": 15, "other protocol": 17, "other address": 41} {
		b := bytesOf(t, arpAsk)
		b[at] ^= 3
		r.want(what, r.send(1, b), "[0 2]")
	}
	r.want("cut short", r.send(1, bytesOf(t, arpAsk)[:41]), "[0 2]")
	if c, _ := r.Counters(); c.Answered != 2 {
		t.Errorf("counters %+v", c)
	}
	if newRig(t, 3, &testProgram{}, nil).send(1, bytesOf(t, arpAsk)) != "[0 2]" {
		t.Error("a switch without addresses answers")
	}
}

const neighborAskText = `
	33 33 ff 00 00 fe  02 00 00 00 00 01  86 dd
	60 00 00 00  00 20  3a  ff                # 32 bytes of ICMPv6, hop limit 255
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01
	ff 02 00 00 00 00 00 00 00 00 00 01 ff 00 00 fe
	87 00  7b 9f  00 00 00 00                 # neighbour solicitation
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 fe
	01 01  02 00 00 00 00 01                  # source link-layer address`

const neighborAnswerText = `
	02 00 00 00 00 01  02 00 00 00 00 fe  86 dd
	60 00 00 00  00 20  3a  ff
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 fe
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01
	88 00  19 a6  60 00 00 00                 # neighbour advertisement: solicited, override
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 fe
	02 01  02 00 00 00 00 fe                  # target link-layer address`

// A neighbour solicitation from the unspecified address is answered to all nodes.
const probeText = `
	33 33 ff 00 00 fe  02 00 00 00 00 01  86 dd
	60 00 00 00  00 18  3a  ff
	00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
	ff 02 00 00 00 00 00 00 00 00 00 01 ff 00 00 fe
	87 00  7b ab  00 00 00 00
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 fe`

const probeAnswerText = `
	33 33 00 00 00 01  02 00 00 00 00 fe  86 dd
	60 00 00 00  00 20  3a  ff
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 fe
	ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 01
	88 00  57 a4  20 00 00 00                 # override, not solicited
	fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 fe
	02 01  02 00 00 00 00 fe`

func TestAnswersNeighbors(t *testing.T) {
	r := withSelf(t, &testProgram{})
	for _, tc := range []struct{ what, ask, answer string }{
		{"solicitation", neighborAskText, neighborAnswerText}, {"probe", probeText, probeAnswerText},
	} {
		r.want(tc.what, r.send(1, bytesOf(t, tc.ask)), "[1]")
		if got, want := r.out.Frames[0].Data, bytesOf(t, tc.answer); !bytes.Equal(got, want) {
			t.Errorf("%s: answer\n%x, want\n%x", tc.what, got, want)
		}
	}
	for what, at := range map[string]int{"hop limit": 21, "type": 54, "code": 55, "checksum": 57, "target": 77} {
		b := bytesOf(t, neighborAskText)
		b[at] ^= 1
		r.want(what, r.send(1, b), "[0 2]")
	}
	unicast := bytesOf(t, neighborAskText)
	copy(unicast, ownMAC[:])
	r.want("asked directly", r.send(1, unicast), "[1]")
	for n := 14; n < 86; n++ {
		r.want("cut short", r.send(1, bytesOf(t, neighborAskText)[:n]), "[0 2]")
	}
}

// The switch learns nothing from frames with its own source address, forwards none that are
// addressed to it, and passes those that are RoCEv2 to the program.
func TestOwnAddress(t *testing.T) {
	var own []bool
	r := withSelf(t, &testProgram{packet: func(_ *Ctx, p *Parsed) Verdict {
		if own = append(own, p.Own); p.BTH.PSN == 1 {
			return Consume()
		}
		return Forward()
	}})
	r.Observe(true)
	r.want("under its address", r.send(0, plain(ownMAC, mac(1))), "[]")
	r.want("to it", r.send(1, plain(mac(1), ownMAC)), "[]")
	if got := r.Port(0).Drops[ReasonBadSource]; got != 1 {
		t.Errorf("%d with a bad source", got)
	}
	f := roceFrame(1, 0, 1, "x")
	f.Eth.Dst = ownMAC
	r.want("RoCE taken", r.send(1, f.AppendTo(nil)), "[]")
	if r.notes() != "in taken by " {
		t.Errorf("notes %q", r.notes())
	}
	f.BTH.PSN = 2
	r.want("RoCE not taken", r.send(1, f.AppendTo(nil)), "[]")
	r.want("RoCE for another", r.send(1, roce(1, 0, 3, "x")), "[0 2]")
	if got := r.Port(1).Drops; got[ReasonSelf] != 2 || len(got) != 1 {
		t.Errorf("drops %v", got)
	}
	if !slices.Equal(own, []bool{true, true, false}) {
		t.Errorf("own: %v", own)
	}
	if c, lost := r.Counters(); c.Consumed != 1 || c.MACs != 1 || len(lost) != 0 {
		t.Errorf("%+v, lost %v", c, lost)
	}
}

func TestSelfIsChecked(t *testing.T) {
	for _, s := range []Self{
		{Addrs: []netip.Addr{ownIP4}},
		{MAC: broadcast},
		{MAC: ownMAC, Addrs: []netip.Addr{{}}},
		{MAC: ownMAC, Addrs: []netip.Addr{netip.MustParseAddr("224.0.0.1")}},
		{MAC: ownMAC, Addrs: []netip.Addr{netip.MustParseAddr("::")}},
		{MAC: ownMAC, Addrs: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}},
		{MAC: ownMAC, Addrs: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}},
	} {
		if _, err := New(Config{Ports: 1, Program: &testProgram{}, Self: s}); err == nil {
			t.Errorf("%+v passes", s)
		}
	}
}

func FuzzSelf(f *testing.F) {
	for _, text := range []string{neighborAskText, probeText} {
		t := new(testing.T)
		f.Add(bytesOf(t, text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := withSelf(t, &testProgram{})
		before := slices.Clone(b)
		r.send(1, b)
		if !bytes.Equal(b, before) {
			t.Error("the frame was changed")
		}
		for _, out := range r.out.Frames {
			if len(out.Data) < 14 {
				t.Errorf("%x", out.Data)
			}
		}
	})
}

// A RoCEv2 packet with an IP source address of the switch is dropped, whatever its MAC address:
// servers would take it for a packet of the switch's connections.
func TestForgedSourceAddress(t *testing.T) {
	r := withSelf(t, &testProgram{packet: func(*Ctx, *Parsed) Verdict { return Forward() }})
	f := roceFrame(0, 1, 7, "x")
	r.send(0, f.AppendTo(nil))
	if len(r.out.Frames) == 0 {
		t.Fatal("an honest packet does not leave")
	}
	f.IPv4.Src = ownIP4.As4()
	r.want("a lie", r.send(0, f.AppendTo(nil)), "[]")
	if n := r.Port(0).Drops[ReasonBadSource]; n != 1 {
		t.Errorf("%d drops", n)
	}
}
