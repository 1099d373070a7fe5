package trunkport

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// streams returns those of an end.
func (p *path) streams(i int) []*stream { return p.ports[i].line.(*tcp).streams }

// during lets both ends work for so long.
func (p *path) during(d time.Duration) {
	p.tb.Helper()
	start := time.Now()
	p.run(func() bool { return time.Since(start) > d })
}

// dialed connects from a machine to an end, as a stranger.
func (p *path) dialed(from int, local string, to netip.AddrPort) net.Conn {
	p.tb.Helper()
	var c net.Conn
	err := nl.Do(p.netns[from], func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		if local != "" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
		}
		c, err = d.Dial("tcp", to.String())
		return err
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	p.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// A trunk whose connection ends, at either end, connects again, and frames cross it as before.
func TestConnectionEnds(t *testing.T) {
	p := newPathBy(t, 1500, false, TCP)
	p.up()
	for i := range 2 {
		s := p.streams(i)[0]
		s.broken = true
		p.run(func() bool { // it is replaced
			return len(p.streams(0)) == 1 && len(p.streams(1)) == 1 && p.streams(i)[0] != s
		})
		p.up()
		p.during(600 * time.Millisecond) // longer than an end waits for the other
		p.up()
		p.exchange(0)
		p.exchange(1)
	}
}

// The end of a switch that was started again, listening or connecting, is taken in.
func TestEndOfATCPTrunkStartsAgain(t *testing.T) {
	p := newPathBy(t, 1500, true, TCP)
	p.up()
	for i := range 2 {
		if err := p.ports[i].Close(); err != nil {
			t.Fatal(err)
		}
		p.open(i, trunk.Secret{7})
		p.run(func() bool { return p.ports[i].Trunk().Keys > 0 })
		p.up()
		p.exchange(0)
		p.exchange(1)
	}
}

// Connections from another address are closed at once. Those from the peer's address that bring
// nonsense, nothing, or what was recorded, move nothing: the trunk works on, and none of them stays.
func TestStrangersConnect(t *testing.T) {
	p := newPathBy(t, 1500, false, TCP)
	p.up()
	best := p.ports[0].line.(*tcp).best

	far := p.dialed(0, p.addr[0].Addr().String()+":0", p.addr[0]) // the machine itself
	_ = far.SetReadDeadline(time.Now().Add(20 * time.Second))
	closed := make(chan error)
	go func() { _, err := far.Read(make([]byte, 1)); closed <- err }()
	for err, open := error(nil), true; open; {
		select {
		case err = <-closed:
			open = false
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a connection from another address stays open")
			}
		default:
			p.during(time.Millisecond)
		}
	}

	for k := range 12 {
		c := p.dialed(1, "", p.addr[0])
		b := make([]byte, 400)
		_, _ = rand.Read(b)
		switch k % 4 {
		case 0: // no datagram has this length
			binary.BigEndian.PutUint16(b, 0xffff)
		case 1:
			binary.BigEndian.PutUint16(b, 398)
		case 2:
			b = b[:1] // a part of a length
		case 3:
			b = nil
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		p.during(5 * time.Millisecond)
	}
	p.exchange(0)
	p.exchange(1)
	p.run(func() bool { return len(p.streams(0)) == 1 })
	if got := p.ports[0].line.(*tcp).best; got != best {
		t.Error("the trunk has gone over to another connection")
	}
	s := p.ports[0].Trunk()
	if s.Refused.Malformed == 0 || s.Refused.Sum() < 6 {
		t.Errorf("what strangers have sent is not counted: %+v", s.Refused)
	}
	if s.Lost+s.QueueDrops+s.Silences > 0 {
		t.Errorf("%+v", s)
	}
}

// An end whose peer does not read drops frames when a bounded number of bytes waits, counts them, and
// works when the peer reads again.
func TestPeerDoesNotRead(t *testing.T) {
	p := newPathBy(t, 1500, false, TCP)
	p.up()
	s := p.streams(0)[0]
	b := packetio.Batch{Frames: []packetio.Frame{frame(packetio.MaxFrame, 1)}}
	for n := 0; p.ports[0].Trunk().QueueDrops == 0; n++ {
		if _, err := p.ports[0].Send(&b); err != nil {
			t.Fatal(err)
		}
		if n > 4000 {
			t.Fatal("an end takes frames without bound")
		}
	}
	if n := cap(s.out); n > 3*mostUnsent {
		t.Errorf("%d bytes wait", n)
	}
	came, at := -1, time.Now()
	p.run(func() bool { // until all that waited has come; a slow test may have made the ends connect again
		if n := len(p.got[1]); n != came {
			came, at = n, time.Now()
		}
		return time.Since(at) > 500*time.Millisecond && p.ports[0].LinkUp() && p.ports[1].LinkUp()
	})
	for _, f := range p.got[1] {
		if !bytes.Equal(f, b.Frames[0].Data) {
			t.Fatal("a frame has changed")
		}
	}
	p.exchange(0)
}

// Bytes that arrive one at a time are the same datagrams.
func TestStreamTakesPieces(t *testing.T) {
	var all stream
	want := [][]byte{{1}, bytes.Repeat([]byte{2}, trunk.MaxDatagram), {3, 4}}
	for _, d := range want {
		all.put(d)
	}
	s := stream{in: make([]byte, 0, inSize)}
	for _, c := range all.out {
		if s.has() {
			t.Fatal("a datagram before its last byte")
		}
		s.in = append(s.in, c)
		if !s.has() {
			continue
		}
		if d := s.next(); !bytes.Equal(d, want[0]) {
			t.Fatalf("got %d bytes that begin with %x", len(d), d[0])
		}
		want = want[1:]
	}
	if len(want) > 0 || s.broken {
		t.Errorf("%d datagrams did not come", len(want))
	}
}

// FuzzStream takes what a stranger sends: no length makes it return a datagram that is longer than any, or
// memory behind what has come.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 1, 7, 0, 0})
	f.Add([]byte{0xff, 0xff, 1})
	f.Add([]byte{0, 3, 1, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := stream{in: append(make([]byte, 0, inSize), in[:min(len(in), inSize)]...)}
		sum := 0
		for s.has() {
			d := s.next()
			if d == nil != s.broken || len(d) > trunk.MaxDatagram || len(d) > len(in) {
				t.Fatalf("a datagram of %d bytes of %d, broken: %v", len(d), len(in), s.broken)
			}
			if sum += len(d); s.broken {
				break
			}
		}
		if sum > len(in) || s.broken && s.has() {
			t.Fatalf("%d bytes of %d", sum, len(in))
		}
	})
}

// flood connects from the peer's address again and again, and sends nothing, until the test ends; some
// connections stay open at any time.
func (p *path) flood(every time.Duration, open int) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var list []net.Conn
		for {
			_ = nl.Do(p.netns[1], func() error {
				c, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", p.addr[0].String())
				if err == nil {
					list = append(list, c)
				}
				return err
			})
			if len(list) > open {
				_ = list[0].Close()
				list = list[1:]
			}
			select {
			case <-time.After(every):
			case <-stop:
				for _, c := range list {
					_ = c.Close()
				}
				return
			}
		}
	}()
	p.tb.Cleanup(func() { close(stop); <-ended })
}

// Connections from the peer's address on which nothing comes do not keep the peer out: not one that is always
// the newest, and not more of them than the end keeps.
func TestStrangersBeforeThePeer(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		open  int
	}{"the newest": {300 * time.Millisecond, 1}, "many": {2 * time.Millisecond, 8}} {
		t.Run(name, func(t *testing.T) {
			p := newPathBy(t, 1500, false, TCP)
			if err := p.ports[1].Close(); err != nil {
				t.Fatal(err)
			}
			p.flood(c.every, c.open)
			for start := time.Now(); time.Since(start) < 600*time.Millisecond; {
				var b packetio.Batch
				if _, err := p.ports[0].Recv(&b); err != nil {
					t.Fatal(err)
				}
				p.ports[0].Tick()
			}
			p.open(1, trunk.Secret{7})
			p.up()
			p.streams(1)[0].broken = true // and again, with keys on which both agree
			p.during(time.Second)
			p.up()
		})
	}
}

// What strangers send without end does not keep an end from its other work: it takes a bounded part at a time.
func TestGarbageWithoutEnd(t *testing.T) {
	p := newPathBy(t, 1500, false, TCP)
	p.up()
	s := &stream{fd: -1, in: bytes.Repeat([]byte{0, 1, 9}, 20000), proven: true}
	line := p.ports[0].line.(*tcp)
	line.streams = append(line.streams, s)
	before := p.ports[0].Trunk().Refused.Malformed
	var b packetio.Batch
	if _, err := p.ports[0].Recv(&b); err != nil {
		t.Fatal(err)
	}
	if n := p.ports[0].Trunk().Refused.Malformed - before; n == 0 || n > maxDatagrams {
		t.Errorf("%d datagrams at a time", n)
	}
	s.proven = false
	if _, err := p.ports[0].Recv(&b); err != nil {
		t.Fatal(err)
	}
	if n := p.ports[0].Trunk().Refused.Malformed - before; n > maxDatagrams+mostRefused+1 || !s.broken {
		t.Errorf("%d datagrams of a stranger, broken: %v", n, s.broken)
	}
	line.streams = line.streams[:len(line.streams)-1] // it has no file
}

// An end whose loop has stood still does not end the connection on which its peer has sent all the time.
func TestStalledEndKeepsItsConnection(t *testing.T) {
	p := newPathBy(t, 1500, false, TCP)
	p.up()
	s := p.streams(0)[0]
	for start := time.Now(); time.Since(start) < unheard+200*time.Millisecond; time.Sleep(time.Millisecond) {
		var b packetio.Batch
		if _, err := p.ports[1].Recv(&b); err != nil {
			t.Fatal(err)
		}
		p.ports[1].Tick()
		if len(p.streams(1)) != 1 {
			break
		}
	}
	p.ports[0].Tick()
	if list := p.streams(0); len(list) != 1 || list[0] != s {
		t.Error("the connection has ended, though datagrams have come")
	}
}

// A packet costs no allocation, whatever carries it.
func TestSendAndRecvDoNotAllocate(t *testing.T) {
	for _, by := range []Carrier{UDP, TCP} {
		t.Run(by.String(), func(t *testing.T) {
			p := newPathBy(t, 1500, false, by)
			p.up()
			b := packetio.Batch{Frames: []packetio.Frame{frame(1000, 1)}}
			var r packetio.Batch
			n := testing.AllocsPerRun(500, func() {
				_, _ = p.ports[0].Send(&b)
				_, _ = p.ports[1].Recv(&r)
			})
			if n >= 1 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// A port says why it cannot connect.
func TestTroubleOfTCP(t *testing.T) {
	p := newPathBy(t, 1500, false, TCP)
	if err := p.ports[0].Close(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		var b packetio.Batch
		if _, err := p.ports[1].Recv(&b); err != nil {
			t.Fatal(err)
		}
		p.ports[1].Tick()
		if s := p.ports[1].Trunk().Trouble; strings.Contains(s, "TCP passes") && strings.Contains(s, "connection refused") {
			break
		} else if time.Since(start) > 20*time.Second {
			t.Fatal(s)
		}
	}
}
