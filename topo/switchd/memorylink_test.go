package switchd

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/memlink"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// wireEnd stands for the switch's end of a veth pair, without a kernel.
type wireEnd struct {
	*memcable.Port
	up bool
}

func (w *wireEnd) LinkUp() bool { return w.up }

// datagram is a UDP datagram to a port.
func datagram(port byte, n int) []byte {
	b := make([]byte, 42+n)
	b[12], b[14], b[23] = 8, 0x45, 17
	b[36], b[37] = 0x12, port
	return b
}

const (
	rocePort   = 0xb7
	oneRMAPort = 0xb8
)

// RoCEv2 packets take the shared memory, all other frames the veth pair, each in order. Frames on
// one way do not delay those on the other, and the carrier of the pair counts for both.
func TestDoubleLink(t *testing.T) {
	a, b := memcable.Pair(memcable.Config{})
	path := filepath.Join(t.TempDir(), "links.sock")
	listener, err := memlink.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := links{listener: listener}
	m, err := listener.Port("cn0", memlink.Config{MTU: 1500, Index: 2})
	if err != nil {
		t.Fatal(err)
	}
	pair := &wireEnd{a, true}
	l := &doubleLink{wire: pair, memory: m}
	host, err := memlink.NewPort(memlink.Config{MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	conn := memlink.Connect(path, "cn0", host, slog.New(slog.DiscardHandler))
	defer func() {
		for _, c := range []interface{ Close() error }{conn, host, l} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	for end := time.Now().Add(20 * time.Second); !m.Attached() || !host.Attached(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the link was not attached")
		}
	}
	l.LinkUp()

	var out, in packetio.Batch
	for i := range 6 {
		out.Add(0, datagram(rocePort, i))
		out.Add(0, datagram(1, 10+i))
	}
	send := func(p packetio.Port, b *packetio.Batch) {
		t.Helper()
		if n, err := p.Send(b); n != len(b.Frames) || err != nil {
			t.Fatalf("Send = %d, %v", n, err)
		}
	}
	lengths := func(p packetio.Port) (n []int) {
		t.Helper()
		if _, err := p.Recv(&in); err != nil {
			t.Fatal(err)
		}
		for _, f := range in.Frames {
			n = append(n, len(f.Data)-42)
		}
		return n
	}
	send(l, &out)
	if n := lengths(host); len(n) != 6 || n[5] != 5 {
		t.Errorf("by memory: %v", n)
	}
	if n := lengths(b); len(n) != 6 || n[0] != 10 || n[5] != 15 {
		t.Errorf("by the pair: %v", n)
	}

	// Messages of 1RMA take the shared memory if the hosts have such NICs.
	for i, want := range []int{0, 1} {
		l.oneRMA = i == 1
		out.Reset()
		out.Add(0, datagram(oneRMAPort, 30))
		send(l, &out)
		if n := lengths(host); len(n) != want {
			t.Errorf("1RMA %v, by memory: %v", l.oneRMA, n)
		}
		if n := lengths(b); len(n) != 1-want {
			t.Errorf("1RMA %v, by the pair: %v", l.oneRMA, n)
		}
	}

	// A query of a multicast router takes both ways.
	query := wire.Membership{Query: true, Source: netip.IPv4Unspecified(), Group: netip.IPv4Unspecified(), MaxResponse: time.Second}
	out.Reset()
	out.Add(0, datagram(rocePort, 7))
	out.Add(0, query.AppendTo(nil, wire.MAC{2}))
	send(l, &out)
	if n := lengths(host); len(n) != 2 || n[0] != 7 {
		t.Errorf("by memory: %v", n)
	}
	if n := lengths(b); len(n) != 1 {
		t.Errorf("by the pair: %v", n)
	}

	// Both ways have frames, and both are received at once.
	for range 2 {
		out.Reset()
		out.Add(0, datagram(rocePort, 100))
		send(host, &out)
		out.Reset()
		out.Add(0, datagram(1, 200))
		send(b, &out)
		got := append(lengths(l), lengths(l)...)
		if len(got) != 2 || got[0]+got[1] != 300 {
			t.Errorf("two receives have got %v", got)
		}
	}
	if s := l.Stats(); s.RxPackets != 4 || s.TxPackets != 17 {
		t.Errorf("%+v", s)
	}

	pair.up = false
	if l.LinkUp() {
		t.Error("a link without carrier is up")
	}
	out.Reset()
	out.Add(0, datagram(rocePort, 1))
	if n, err := l.Send(&out); n != 0 || err != nil {
		t.Errorf("Send on a link without carrier = %d, %v", n, err)
	}
}
