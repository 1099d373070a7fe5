package flows

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func load(t *testing.T, name string) *Book {
	t.Helper()
	file, err := os.ReadFile("../../wire/testdata/golden/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	var b Book
	d, err := dump.New(io.Discard, dump.Config{Each: b.Add})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Dump(name, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	b.Sort()
	return &b
}

// Each end of a connection has a flow, and a datagram has none. The path MTU comes from the packets, or
// from the connection manager if no message has several packets.
func TestConnection(t *testing.T) {
	for _, c := range []struct {
		name         string
		flows, mtu   int
		back         wire.QPN
		without      int
		firstRequest wire.PSN
	}{
		{"cm_rping_v4", 2, 1024, 0x11, 5, 0x04e273},
		{"cm_rping_mtu4096", 2, 4096, 0x18, 5, 0},
		{"rc_write_64k", 1, 1024, 0x1b, 0, 0x100},
		{"mtu256_rc_read", 1, 256, 0x16, 0, 0x100},
		{"no_such_qp", 1, 0, 0, 0, 0x100},
		{"ud_send", 0, 0, 0, 4, 0},
	} {
		b := load(t, c.name)
		without := 0
		for i := range b.Packets {
			if b.Packets[i].Flow == nil {
				without++
			}
		}
		if len(b.Flows) != c.flows || without != c.without {
			t.Errorf("%s: %d flows, %d packets without one; want %d, %d", c.name, len(b.Flows), without, c.flows, c.without)
			continue
		}
		if c.flows == 0 {
			continue
		}
		if f := b.Flows[0]; f.Back != c.back || f.MTU != c.mtu || c.firstRequest != 0 && f.First != c.firstRequest {
			t.Errorf("%s: answers to %#x, MTU %d, first PSN %#x", c.name, uint32(f.Back), f.MTU, uint32(f.First))
		}
	}
}

// hands adds made-up packets.
type hands struct {
	b Book
	n int64
}

func (h *hands) add(t *testing.T, op wire.Opcode, request bool, psn wire.PSN, msn uint32, link string, comments ...string) {
	t.Helper()
	r := &dump.Record{Verdict: dump.OK}
	h.n++
	r.Time, r.Name, r.Comments = h.n, link, comments
	src, dst, qpn := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), wire.QPN(0x22)
	if !request {
		src, dst, qpn = dst, src, 0x11
	}
	r.Frame.IPv4.Src, r.Frame.IPv4.Dst = src.As4(), dst.As4()
	r.Frame.BTH = wire.BTH{Opcode: op, DestQP: qpn, PSN: psn}
	r.Frame.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: msn}
	if err := h.b.Add(r); err != nil {
		t.Fatal(err)
	}
}

// A queue pair number begins a new flow if its PSNs are far away, if its first PSN has another content, or if the
// answers count messages from one again. Copies of the first packet begin none.
func TestReused(t *testing.T) {
	for _, c := range []struct {
		name   string
		second wire.PSN
		op     wire.Opcode
		msn    uint32
		want   int
	}{
		{"far away", 0x200000, wire.RCSendOnly, 1, 2},
		{"another content", 0x100, wire.RCWriteOnly, 1, 2},
		{"counted again", 0x100, wire.RCSendOnly, 1, 2},
		{"sent again", 0x100, wire.RCSendOnly, 3, 1},
		{"goes on", 0x103, wire.RCSendOnly, 4, 1},
	} {
		var h hands
		for i := range 3 {
			h.add(t, wire.RCSendOnly, true, wire.PSN(0x100).Add(i), 0, "")
			h.add(t, wire.RCAck, false, wire.PSN(0x100).Add(i), uint32(i+1), "")
		}
		h.add(t, c.op, true, c.second, 0, "")
		h.add(t, wire.RCAck, false, c.second, c.msn, "")
		h.b.Sort()
		if len(h.b.Flows) != c.want {
			t.Errorf("%s: %d flows, want %d", c.name, len(h.b.Flows), c.want)
		}
		if last := h.b.Packets[7].Flow; last == nil || last != h.b.Packets[6].Flow || last.Reused != (c.want == 2) {
			t.Errorf("%s: the last answer is filed under %+v", c.name, last)
		}
	}
}

func TestLost(t *testing.T) {
	for comment, want := range map[string]bool{
		"":                                     false,
		"lost-fault fault f1":                  true,
		"duplicated fault f1":                  false,
		"fault f1 (loss): dropped":             true,
		"fault f1 (dup): sent 2 times":         false,
		"dropped by the switch: partition":     true,
		"fault f1 (loss): dropped; FAA→WRITE":  true,
		"CAS, to ms0; dropped: egress is full": true,
		"FAA→WRITE conn 2 psn 1→2, to ms0":     false,
	} {
		p := Packet{Comments: []string{comment}}
		if p.Lost() != want {
			t.Errorf("%q: %v", comment, !want)
		}
	}
}

func TestSide(t *testing.T) {
	for link, want := range map[string]struct {
		host string
		d    Direction
	}{
		"cn0 up": {"cn0", Up}, "cn0-down": {"cn0", Down}, "eth0": {"eth0", Unknown}, " up": {" up", Unknown}, "": {"", Unknown},
	} {
		if host, d := Side(link); host != want.host || d != want.d {
			t.Errorf("%q: %q, %v", link, host, d)
		}
	}
}

// A packet that was lost after it had entered the link is in the capture twice, and one packet of the Book.
func TestOnTheWay(t *testing.T) {
	var h hands
	h.add(t, wire.RCSendOnly, true, 0x100, 0, "a-up")
	h.add(t, wire.RCSendOnly, true, 0x101, 0, "a-up")
	h.add(t, wire.RCSendOnly, true, 0x101, 0, "a-up", "lost-down on the way") // the second packet once more
	h.add(t, wire.RCSendOnly, true, 0x101, 0, "b-up", "lost-down on the way") // nothing has entered that link
	h.add(t, wire.RCSendOnly, true, 0x101, 0, "a-up")                         // sent again
	h.b.Sort()
	want := []struct {
		number int
		lost   bool
	}{{1, false}, {2, true}, {4, true}, {5, false}}
	if len(h.b.Packets) != len(want) {
		t.Fatalf("%d packets, want %d", len(h.b.Packets), len(want))
	}
	for i, w := range want {
		if p := &h.b.Packets[i]; p.Number != w.number || p.Lost() != w.lost {
			t.Errorf("packet %d has number %d, lost %t; want %d, %t", i, p.Number, p.Lost(), w.number, w.lost)
		}
	}
}
