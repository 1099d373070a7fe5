package swordbox_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
)

// guarding is a switch whose rules have an action, and a connection of host 1 with the server.
func guarding(t *testing.T, action rules.Action) (*bench, *swordbox.Program) {
	b, p := unused(t, action)
	b.some()
	return b, p
}

// unused is a switch whose rules have an action, and a connection that has not been used.
func unused(t *testing.T, action rules.Action) (*bench, *swordbox.Program) {
	p := swordbox.New(swordbox.Config{
		Rules: only(t, action), Own: own(t), Track: conntrack.Config{Settle: -1, Connections: 16},
		Handlers: []handler.Handler{serialize.New(serialize.Config{}), hotwords.New()},
	})
	return newBench(t, p), p
}

// only returns rules of which one is for the server.
func only(t *testing.T, action rules.Action) *rules.Set {
	r := rules.Rule{ID: "only", Server: benchIP(benchServer), Action: action}
	if action == rules.Move {
		r.Mode = rules.Hardened
	}
	set, err := rules.NewSet([]rules.Rule{r})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// some uses the connection of host 1 with the server. The last request is to be answered.
func (b *bench) some() {
	for psn := range wire.PSN(3) {
		b.frame(1, benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, psn))
		b.frame(benchServer, benchFrame(benchServer, 1, benchQP(1), wire.RCAck, psn))
	}
	b.frame(1, benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, 3))
}

// raw sends the bytes of a frame, and reports whether they leave unchanged.
func (b *bench) raw(port int, data []byte) bool {
	b.now = b.now.Add(time.Microsecond)
	b.out.Reset()
	b.sw.Frame(b.now, port, packetio.Frame{Data: data}, &b.out)
	for _, f := range b.out.Frames {
		if bytes.Equal(f.Data, data) {
			return true
		}
	}
	return false
}

// overV6 makes a packet one of IPv6.
func overV6(f wire.Frame) *wire.Frame {
	f.V6 = true
	f.IPv6 = wire.IPv6{HopLimit: 64, Src: netip.AddrFrom4(f.IPv4.Src).As16(), Dst: netip.AddrFrom4(f.IPv4.Dst).As16()}
	return &f
}

// intact reports whether a NIC accepts the bytes of a frame: routers may change some bits.
func intact(data []byte) bool {
	var f wire.Frame
	return wire.ParseFrame(data, &f) == nil && wire.CheckICRC(data)
}

// packets returns a packet of each kind between host 1 and the server, with the port at which it
// comes in.
func packets(psn wire.PSN) (list []packetIn) {
	for _, op := range []wire.Opcode{
		wire.RCCmpSwap, wire.RCFetchAdd, wire.RCWriteOnly, wire.RCReadRequest, wire.RCSendOnly,
		wire.RCAck, wire.RCAtomicAck, wire.RCReadResponseOnly,
	} {
		in, f := 1, benchFrame(1, benchServer, benchQP(-1), op, psn)
		if op.Is(wire.OpResponse) {
			in, f = benchServer, benchFrame(benchServer, 1, benchQP(1), op, psn-1)
		}
		f.RETH = wire.RETH{VA: benchWord, RKey: 5, Length: 8}
		f.AtomicETH.VA, f.AtomicETH.RKey = benchWord, 5
		if op == wire.RCWriteOnly || op == wire.RCReadResponseOnly {
			f.Payload = make([]byte, 8)
		}
		list = append(list, packetIn{in, f})
	}
	req := benchFrame(1, benchServer, 1, wire.UDSendOnly, 0)
	req.Payload = mad.Append(nil, 1, &mad.REQ{
		LocalID: 0x51, QPN: 0x999, PSN: 7, MTU: 3,
		Primary: mad.Path{LocalGID: benchIP(1).As16(), RemoteGID: benchIP(benchServer).As16()},
	})
	return append(list, packetIn{1, req})
}

type packetIn struct {
	port int
	*wire.Frame
}

// No packet leaves with a wrong bit behind the Ethernet header, whichever it is, while a handler carries
// out rules: the damage may hide the packet from the handler, and a second fault behind the switch could
// restore it.
func TestNoDamagedPacketLeaves(t *testing.T) {
	changed := func(from, to rules.Action) func(*testing.T) (*bench, *swordbox.Program) {
		return func(t *testing.T) (*bench, *swordbox.Program) {
			b, p := guarding(t, from)
			if err := p.SetRules(only(t, to)); err != nil {
				t.Fatal(err)
			}
			return b, p
		}
	}
	for _, at := range []struct {
		when string
		psn  wire.PSN
		make func(*testing.T) (*bench, *swordbox.Program)
		// fresh: the state of the switch ends with its first packet.
		fresh bool
	}{
		{"moved", 4, func(t *testing.T) (*bench, *swordbox.Program) { return guarding(t, rules.Move) }, false},
		{"counted", 4, func(t *testing.T) (*bench, *swordbox.Program) { return guarding(t, hotwords.Count) }, false},
		{"first packet", 0, func(t *testing.T) (*bench, *swordbox.Program) { return unused(t, rules.Atomics) }, true},
		{"first packet under new rules", 4, changed(rules.Track, rules.Atomics), true},
		{"rules gone", 4, changed(rules.Move, rules.Track), true},
	} {
		b, p := at.make(t)
		for _, f := range packets(at.psn) {
			for _, f := range []packetIn{f, {f.port, overV6(*f.Frame)}} {
				good := f.AppendTo(nil)
				for bit := f.Eth.Len() * 8; bit < len(good)*8; bit++ {
					data := bytes.Clone(good)
					if data[bit/8] ^= 0x80 >> (bit % 8); intact(data) {
						continue
					}
					if headers := (14 + 40 + 8 + 12) * 8; at.fresh && bit < headers {
						b, p = at.make(t)
					}
					if !p.Guards() {
						t.Fatalf("%s: the switch does not guard", at.when)
					}
					if b.raw(f.port, data) {
						t.Errorf("%s: %v, IPv6 %v: leaves with a wrong bit %d of byte %d", at.when, f.BTH.Opcode, f.V6, 7-bit%8, bit/8)
					}
				}
			}
		}
	}
}

// wrongBits sends a packet with each wrong bit behind the Ethernet header, and returns how many leave.
func (b *bench) wrongBits(f packetIn) (left int) {
	good := f.AppendTo(nil)
	for bit := f.Eth.Len() * 8; bit < len(good)*8; bit++ {
		data := bytes.Clone(good)
		if data[bit/8] ^= 0x80 >> (bit % 8); !intact(data) && b.raw(f.port, data) {
			left++
		}
	}
	return left
}

// The rules for a server apply to its other addresses, too.
func TestOtherAddressesAreGuarded(t *testing.T) {
	for _, action := range []rules.Action{rules.Move, hotwords.Count} {
		r := rules.Rule{ID: "only", Server: netip.AddrFrom4([4]byte{10, 0, 0, 200}), Also: []netip.Addr{benchIP(benchServer)}, Action: action}
		set, err := rules.NewSet([]rules.Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := restarted(t, set, nil)
		b.some()
		for _, f := range packets(4) {
			if n := b.wrongBits(f); n != 0 {
				t.Errorf("%v: %d damaged packets of %v leave", action, n, f.BTH.Opcode)
			}
		}
	}
}

// restarted is a switch whose earlier incarnation has left a journal, which former writes; nil means
// that there was none.
func restarted(t *testing.T, set *rules.Set, former func(*journal.Journal) error) (*bench, *swordbox.Program) {
	mem := make([]byte, journal.Size)
	if former != nil {
		rec, err := journal.Open(mem)
		if err == nil {
			err = former(rec)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rec, err := journal.Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	p := swordbox.New(swordbox.Config{
		Rules: set, Own: ownOf(t, rec), Track: conntrack.Config{Settle: -1},
		Handlers: []handler.Handler{serialize.New(serialize.Config{}), hotwords.New()},
	})
	return newBench(t, p), p
}

// While flows of an earlier incarnation of the switch may be left, damage may hide their packets, even
// if the server has no rules any more: a wrong bit in the queue pair names a flow of this incarnation.
func TestDamageIsRefusedAfterARestart(t *testing.T) {
	stale := benchQP(-1) ^ 4
	b, _ := restarted(t, nil, func(rec *journal.Journal) error {
		_, err := rec.Move(journal.Flow{Client: benchIP(1), Server: benchIP(benchServer), ClientQPN: 0x555, ServerQPN: stale, Oldest: 4})
		return err
	})
	b.some()
	for _, f := range packets(4)[:5] {
		f.BTH.DestQP = stale
		if n := b.wrongBits(f); n != 0 {
			t.Errorf("%d damaged packets of %v leave for a flow of the earlier incarnation", n, f.BTH.Opcode)
		}
	}
	b, _ = restarted(t, nil, func(rec *journal.Journal) error {
		_, err := rec.Dial(journal.Conn{Server: benchIP(benchServer), OwnID: 5, ServerID: 6, ServerQPN: 0x700})
		return err
	})
	for _, f := range packets(0)[:5] {
		if n := b.wrongBits(f); n != 0 {
			t.Errorf("%d damaged packets of %v leave for a server with requests of the earlier incarnation", n, f.BTH.Opcode)
		}
	}
}

// A wrong bit in the length of an IPv4 header makes its checksum one of other bytes: with some source
// ports of UDP it is right.
func TestWrongLengthOfAHeaderIsSeen(t *testing.T) {
	b, _ := guarding(t, rules.Move)
	f := packets(4)[1]
	right := 0
	for port := 0xc000; port <= 0xffff; port++ {
		for bit := range byte(8) {
			f.UDP.SrcPort = uint16(port)
			data := f.AppendTo(nil)
			if data[14] ^= 1 << bit; wire.DamagedIP(data) {
				continue
			}
			if right++; b.raw(f.port, data) {
				t.Errorf("source port %#x leaves with a wrong bit %d", port, bit)
			}
		}
	}
	if right == 0 {
		t.Error("the checksum always shows the wrong length")
	}
}

// A wrong bit in the destination address of an IPv6 packet names another server, which may have no
// rules, and a connection with the same numbers.
func TestWrongAddressIsSeen(t *testing.T) {
	b, _ := guarding(t, rules.Move)
	const other = benchServer ^ 4
	near := benchFrame(1, other, benchQP(-1), wire.RCSendOnly, 0)
	near.Eth.Dst = benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, 0).Eth.Dst
	b.frame(1, overV6(*near))
	for _, f := range packets(4)[:5] {
		g := overV6(*f.Frame)
		good := g.AppendTo(nil)
		addr := g.Eth.Len() + 24
		for bit := range 128 {
			data := bytes.Clone(good)
			if data[addr+bit/8] ^= 0x80 >> (bit % 8); b.raw(1, data) {
				t.Errorf("%v leaves with a wrong bit %d of its destination address", f.BTH.Opcode, bit)
			}
		}
	}
}

// The packets of a super-frame get new IPv4 checksums. A wrong bit in its address is seen before, though
// it names a server without rules and a connection with the same numbers.
func TestWrongAddressOfASuperFrameIsSeen(t *testing.T) {
	b, _ := guarding(t, rules.Move)
	const other = benchServer ^ 4
	for psn := range wire.PSN(3) {
		near := benchFrame(1, other, benchQP(-1), wire.RCSendOnly, 1+psn)
		near.Eth.Dst = benchMAC(benchServer)
		back := benchFrame(other, 1, benchQP(1), wire.RCAck, 1+psn)
		b.frame(1, near)
		b.frame(benchServer, back)
	}
	var shots [roundPackets]shot
	supers(2)(shots[:], 0)
	good := shots[4]
	ip := good.data[14:34]
	binary.BigEndian.PutUint16(ip[10:], ^sumOf(ip[:10], ip[12:]))
	for bit := 14 * 8; bit < 34*8; bit++ {
		f := packetio.Frame{Data: bytes.Clone(good.data), SegSize: good.seg}
		if f.Data[bit/8] ^= 0x80 >> (bit % 8); f.Splittable() && b.left(1, f) != 0 {
			t.Errorf("leaves with a wrong bit %d of byte %d", 7-bit%8, bit/8)
		}
	}
	if n := b.left(1, packetio.Frame{Data: good.data, SegSize: good.seg}); n == 0 {
		t.Errorf("does not leave: %v", b.sw.Port(1).Drops)
	}
}

// A wrong bit in the headers of a super-frame does not hide it: what leaves is intact.
func TestNoDamagedSuperFrameLeaves(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b, _ := guarding(t, rules.Move)
		var good packetio.Frame
		headers := 0
		for k := range 2 {
			f := benchFrame(1, benchServer, benchQP(-1), wire.RCWriteMiddle, wire.PSN(4+k))
			f.IPv4.ID, f.Payload = uint16(k), make([]byte, benchMTU)
			if headers = 14 + 20 + 8; v6 {
				f, headers = overV6(*f), 14+40+8
			}
			packet := f.AppendTo(nil)
			if k == 0 {
				good.Data = packet[:headers:headers]
			}
			good.SegSize = len(packet) - headers
			good.Data = append(good.Data, packet[headers:]...)
		}
		binary.BigEndian.PutUint16(good.Data[headers-4:], uint16(len(good.Data)-headers+8))
		if ip := good.Data[14 : headers-8]; v6 {
			binary.BigEndian.PutUint16(ip[4:], uint16(len(good.Data)-headers+8))
		} else {
			binary.BigEndian.PutUint16(ip[2:], uint16(len(good.Data)-14))
			binary.BigEndian.PutUint16(ip[10:], ^sumOf(ip[:10], ip[12:]))
		}
		for bit := 14 * 8; bit < headers*8; bit++ {
			f := packetio.Frame{Data: bytes.Clone(good.Data), SegSize: good.SegSize}
			f.Data[bit/8] ^= 0x80 >> (bit % 8)
			b.left(1, f)
			var packets packetio.Batch
			for _, f := range b.out.Frames {
				packets.Split(f)
			}
			for _, p := range packets.Frames {
				if !intact(p.Data) {
					t.Errorf("IPv6 %v: a damaged packet leaves with a wrong bit %d of byte %d", v6, 7-bit%8, bit/8)
				}
			}
		}
		if n := b.left(1, good); n == 0 {
			t.Errorf("IPv6 %v: does not leave: %v", v6, b.sw.Port(1).Drops)
		}
	}
}

// sumOf returns the ones' complement sum of the 16-bit words of parts.
func sumOf(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, p := range parts {
		for ; len(p) > 0; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
	}
	return uint16(sum>>16 + sum&0xffff)
}

// left sends a frame and returns how many leave.
func (b *bench) left(port int, f packetio.Frame) int {
	b.now = b.now.Add(time.Microsecond)
	b.out.Reset()
	b.sw.Frame(b.now, port, f, &b.out)
	return len(b.out.Frames)
}

// Without a handler that needs to see each packet, damaged packets are the receiver's business, which
// counts them.
func TestDamagedPacketsLeaveWithoutHandlers(t *testing.T) {
	b, _ := guarding(t, rules.Track)
	good := benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, 4).AppendTo(nil)
	for bit := 14 * 8; bit < len(good)*8; bit++ {
		data := bytes.Clone(good)
		data[bit/8] ^= 0x80 >> (bit % 8)
		if !b.raw(1, data) {
			t.Errorf("dropped with a wrong bit %d of byte %d", 7-bit%8, bit/8)
		}
	}
}

// A flow with moved requests stays with its handler after the rules are gone, so that packets may
// still hide from it.
func TestDamageIsRefusedAfterTheRules(t *testing.T) {
	b, p := guarding(t, rules.Move)
	none, err := rules.NewSet(nil)
	if err == nil {
		err = p.SetRules(none)
	}
	if err != nil {
		t.Fatal(err)
	}
	hidden := benchFrame(1, benchServer, benchQP(-1)^4, wire.RCSendOnly, 4)
	if n := b.damaged(1, hidden); n != 0 || b.drops(1, pipeline.ReasonBadICRC) != 1 {
		t.Errorf("%d left, %v", n, b.sw.Port(1).Drops)
	}
}

// What a guarding program cannot judge, but nothing shows to be damaged, is forwarded: packets of
// each known operation and of other protocols, from hosts without connections, with padding, with a
// VLAN tag, and after a router.
func TestIntactFramesLeave(t *testing.T) {
	b, _ := guarding(t, rules.Move)
	for op := range 256 {
		f := benchFrame(1, benchServer, 0x777, wire.Opcode(op), 0)
		if !f.BTH.Opcode.Known() {
			continue // dropped for another reason
		}
		tagged := *f
		tagged.Eth.Tagged, tagged.Eth.TCI = true, 5
		routed := *f
		routed.IPv4.TTL, routed.IPv4.TOS = 7, 3
		for _, f := range []*wire.Frame{f, overV6(*f), &tagged, &routed} {
			data := f.AppendTo(nil)
			if !intact(data) {
				continue // needs a payload
			}
			if !b.raw(1, data) || !b.raw(1, append(bytes.Clone(data), make([]byte, 20)...)) {
				t.Errorf("%v is dropped: %v", f.BTH.Opcode, b.sw.Port(1).Drops)
			}
		}
	}
	other := benchFrame(1, benchServer, 0x777, wire.RCSendOnly, 0).AppendTo(nil)
	other[14+20+3] ^= 2 // the port of VXLAN
	other[len(other)-1]++
	if !b.raw(1, other) {
		t.Errorf("a datagram to another port is dropped: %v", b.sw.Port(1).Drops)
	}
	arp := make([]byte, 60)
	copy(arp, other[:12])
	arp[12], arp[13] = 0x08, 0x06
	if !b.raw(1, arp) {
		t.Errorf("ARP is dropped: %v", b.sw.Port(1).Drops)
	}
}
