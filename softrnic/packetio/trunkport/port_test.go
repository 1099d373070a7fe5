package trunkport

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// path is two machines and the network between them.
type path struct {
	tb    testing.TB
	netns [2]string
	addr  [2]netip.AddrPort
	ports [2]*Port
	by    Carrier
	got   [2][][]byte
}

// newPath makes two network namespaces with a veth pair of this MTU, and a trunk by UDP between them.
func newPath(tb testing.TB, mtu int, v6 bool) *path { return newPathBy(tb, mtu, v6, UDP) }

func newPathBy(tb testing.TB, mtu int, v6 bool, by Carrier) *path {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("network namespaces need root; run the test with sudo")
	}
	p := &path{tb: tb, by: by}
	dir := tb.TempDir()
	for i := range 2 {
		p.netns[i] = filepath.Join(dir, string(rune('a'+i)))
		if err := nl.Create(p.netns[i]); errors.Is(err, nl.ErrPrivilege) {
			tb.Skipf("network namespaces cannot be made here: %v", err)
		} else if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := nl.Remove(p.netns[i]); err != nil {
				tb.Error(err)
			}
		})
		a := netip.AddrFrom4([4]byte{192, 168, 7, byte(1 + i)})
		if v6 {
			a = netip.MustParseAddr("fd00:7::" + string(rune('1'+i)))
		}
		p.addr[i] = netip.AddrPortFrom(a, 24791)
	}
	bits := 24
	if v6 {
		bits = 64
	}
	end := func(i int) nl.End {
		return nl.End{Netns: p.netns[i], Name: "lan", Addrs: []netip.Prefix{netip.PrefixFrom(p.addr[i].Addr(), bits)}}
	}
	if err := nl.Connect(end(0), end(1), mtu); err != nil {
		tb.Fatal(err)
	}
	for i := range 2 {
		p.open(i, trunk.Secret{7})
	}
	return p
}

func (p *path) open(i int, secret trunk.Secret) {
	p.tb.Helper()
	port, err := Open(Config{
		Local: p.addr[i], Peer: p.addr[1-i], Index: 3, Limit: 9014, Carrier: p.by,
		Trunk:  trunk.Config{Rack: "r", Trunk: "leaf0-leaf1", Secret: secret, Side: trunk.Side(i)},
		Within: func(f func() error) error { return nl.Do(p.netns[i], f) },
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	p.ports[i] = port
	p.tb.Cleanup(func() {
		if err := port.Close(); err != nil {
			p.tb.Error(err)
		}
	})
}

// run lets both ends work until done, for at most 20 s.
func (p *path) run(done func() bool) {
	p.tb.Helper()
	for start := time.Now(); !done(); {
		for i, port := range p.ports {
			var b packetio.Batch
			if _, err := port.Recv(&b); err != nil {
				p.tb.Fatal(err)
			}
			for _, f := range b.Frames {
				if f.Port != 3 {
					p.tb.Fatalf("a frame of port %d", f.Port)
				}
				p.got[i] = append(p.got[i], bytes.Clone(f.Data))
			}
			port.Tick()
		}
		if time.Since(start) > 20*time.Second {
			p.tb.Fatalf("it takes too long: %+v and %+v", p.ports[0].Trunk(), p.ports[1].Trunk())
		}
	}
}

func (p *path) up() {
	p.tb.Helper()
	p.run(func() bool { return p.ports[0].LinkUp() && p.ports[1].LinkUp() })
}

func frame(n int, b byte) packetio.Frame {
	return packetio.Frame{Data: append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, bytes.Repeat([]byte{b}, n-14)...)}
}

// Frames that are longer than the MTU of the network between the machines cross it.
func TestTrunkOverANetwork(t *testing.T) {
	for name, c := range map[string]struct {
		mtu int
		v6  bool
		by  Carrier
		max int // path MTU that is found
	}{
		"IPv4": {1500, false, UDP, 1500}, "IPv6": {1500, true, UDP, 1500}, "jumbo": {9000, false, UDP, 9000}, "short": {1300, true, UDP, 1300},
		"TCP, IPv4": {1500, false, TCP, trunk.MaxMTU}, "TCP, IPv6": {1300, true, TCP, trunk.MaxMTU},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPathBy(t, c.mtu, c.v6, c.by)
			p.up()
			p.run(func() bool { return p.ports[0].Trunk().MTU == c.max && p.ports[1].Trunk().MTU == c.max })
			for i := range 2 {
				var b packetio.Batch
				for k := range 40 {
					b.Frames = append(b.Frames, frame(60+k*230, byte(k)))
				}
				b.Frames = append(b.Frames, frame(packetio.MaxFrame, 99), frame(60, 100))
				if n, err := p.ports[i].Send(&b); n != len(b.Frames) || err != nil {
					t.Fatalf("sent %d of %d frames: %v", n, len(b.Frames), err)
				}
				p.run(func() bool { return len(p.got[1-i]) == len(b.Frames) })
				for k := range b.Frames {
					if !bytes.Equal(p.got[1-i][k], b.Frames[k].Data) {
						t.Fatalf("frame %d has changed", k)
					}
				}
			}
			if s := p.ports[0].Trunk(); s.Lost+s.Refused.Sum()+s.QueueDrops > 0 || s.RoundTrip <= 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Frames stay as they are until the next Recv, however many datagrams have come.
func TestFramesOfManyDatagrams(t *testing.T) {
	for _, by := range []Carrier{UDP, TCP} {
		t.Run(by.String(), func(t *testing.T) { manyDatagrams(t, by) })
	}
}

func manyDatagrams(t *testing.T, by Carrier) {
	p := newPathBy(t, 1500, false, by)
	p.up()
	const sent = 2000
	for k := range sent {
		b := packetio.Batch{Frames: []packetio.Frame{frame(60+k%7, byte(k))}}
		if n, err := p.ports[0].Send(&b); n != 1 || err != nil {
			t.Fatalf("frame %d: sent %d: %v", k, n, err)
		}
	}
	p.run(func() bool { return len(p.got[1]) == sent })
	for k, got := range p.got[1] {
		if want := frame(60+k%7, byte(k)).Data; !bytes.Equal(got, want) {
			t.Fatalf("frame %d has changed: %x", k, got)
		}
	}
}

// A waiter of package afpacket wakes up when a datagram comes.
func TestWaiterOfATrunk(t *testing.T) {
	for _, by := range []Carrier{UDP, TCP} {
		t.Run(by.String(), func(t *testing.T) { wakes(t, by) })
	}
}

func wakes(t *testing.T, by Carrier) {
	p := newPathBy(t, 1500, false, by)
	p.up()
	w, err := afpacket.NewWaiterBeside([]afpacket.Source{p.ports[1]}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 3 {
		var b packetio.Batch
		for n := 1; n > 0; {
			n, _ = p.ports[1].Recv(&b)
		}
		go func() {
			b := packetio.Batch{Frames: []packetio.Frame{frame(100, 1)}}
			_, _ = p.ports[0].Send(&b) // if it fails, the wait ends with its time
		}()
		start := time.Now()
		for n := 0; n == 0; n, _ = p.ports[1].Recv(&b) {
			if err := w.Wait(20 * time.Second); err != nil {
				t.Fatal(err)
			}
			if time.Since(start) > 15*time.Second {
				t.Fatal("the waiter does not wake up")
			}
		}
	}
}

// A port whose address is in use, or is none of the machine, says so.
func TestOpenRefuses(t *testing.T) {
	p := newPath(t, 1500, false)
	const taken = 24001
	err := nl.Do(p.netns[0], func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(p.addr[0].Addr(), taken).String())
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		local, peer netip.AddrPort
		by          Carrier
		side        trunk.Side
		want        error
	}{
		"in use":                 {p.addr[0], p.addr[1], UDP, trunk.Near, unix.EADDRINUSE},
		"other machine":          {p.addr[1], p.addr[0], UDP, trunk.Near, unix.EADDRNOTAVAIL},
		"no way":                 {netip.MustParseAddrPort("192.168.7.1:1"), netip.MustParseAddrPort("10.9.9.9:1"), UDP, trunk.Near, unix.ENETUNREACH},
		"kinds":                  {p.addr[0], netip.MustParseAddrPort("[fd00::1]:1"), UDP, trunk.Near, nil},
		"TCP: in use":            {netip.AddrPortFrom(p.addr[0].Addr(), taken), p.addr[1], TCP, trunk.Near, unix.EADDRINUSE},
		"TCP: other machine":     {p.addr[1], p.addr[0], TCP, trunk.Near, unix.EADDRNOTAVAIL},
		"TCP: connecting, other": {p.addr[1], p.addr[0], TCP, trunk.Far, unix.EADDRNOTAVAIL},
	} {
		err := nl.Do(p.netns[0], func() error {
			port, err := Open(Config{Local: c.local, Peer: c.peer, Carrier: c.by, Trunk: trunk.Config{Trunk: "t", Side: c.side}})
			if err == nil {
				return errors.Join(errors.New("opened"), port.Close())
			}
			if c.want != nil && !errors.Is(err, c.want) {
				return err
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
