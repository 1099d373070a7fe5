package device

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// scriptPort is a port that receives one batch, and counts the frames of each Send. Send fails from
// call number fails on, if fails is not 0.
type scriptPort struct {
	in    []packetio.Frame
	sent  []int
	fails int
}

func (p *scriptPort) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	b.Frames = append(b.Frames, p.in...)
	p.in = nil
	return len(b.Frames), nil
}

var errPort = errors.New("the port has failed")

func (p *scriptPort) Send(b *packetio.Batch) (int, error) {
	p.sent = append(p.sent, len(b.Frames))
	if len(p.sent) == p.fails {
		return 0, errPort
	}
	return len(b.Frames), nil
}

func (p *scriptPort) Close() error { return nil }

// still is a waiter that sleeps until it is woken.
type still struct{ wake chan struct{} }

func (w still) Wait(time.Duration) error { <-w.wake; return nil }
func (w still) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
func (w still) Close() error { return nil }

// answering is a second NIC that answers each packet with a frame of some bytes.
type answering struct {
	bytes   int
	packets [][]byte
	times   []clock.Time
	batches int
	downs   int
	steps   uint64
}

func (a *answering) Takes(*packetio.Frame) bool { return true }

func (a *answering) Frame(now clock.Time, _ int, f packetio.Frame, out *packetio.Batch) {
	if a.downs > 0 {
		return
	}
	a.packets, a.times = append(a.packets, slices.Clone(f.Data)), append(a.times, now)
	out.Add(0, append(out.Alloc(a.bytes), make([]byte, a.bytes)...))
}

func (a *answering) EndBatch(clock.Time, *packetio.Batch) { a.batches++; a.steps++ }
func (a *answering) Tick(clock.Time, *packetio.Batch)     {}
func (a *answering) Deadline() clock.Time                 { return clock.Never }
func (a *answering) Activity() uint64                     { return a.steps }
func (a *answering) Down()                                { a.downs++ }

// requests returns a super-frame of n 1RMA messages of 60 bytes; the last byte of each is its number.
func requests(n int) packetio.Frame {
	const size = 60
	b := wire.IPv4{TTL: 64, Protocol: wire.ProtocolUDP, Src: ips[0].As4(), Dst: ips[1].As4()}
	eth := wire.Ethernet{Dst: macs[1], Src: macs[0], Type: wire.EtherTypeIPv4}
	udp := wire.UDP{SrcPort: 4792, DstPort: 4792}
	f := udp.AppendTo(b.AppendTo(eth.AppendTo(nil), 8+n*size), n*size)
	for i := range n {
		f = append(f, make([]byte, size-1)...)
		f = append(f, byte(i))
	}
	return packetio.Frame{Data: f, SegSize: size}
}

// openSecond starts a device with a second NIC at a port.
func openSecond(t *testing.T, p packetio.Port, a *answering) *Device {
	t.Helper()
	d, err := Open(Config{
		Port: p, Waiter: still{make(chan struct{}, 1)}, Spin: -1, Second: a,
		Engine: engine.Config{
			Name: "nic", MAC: macs[1], GIDs: []verbs.GID{verbs.GIDOf(ips[1])}, Rand: rand.New(rand.NewPCG(1, 2)),
			Resolve: func(netip.Addr) (wire.MAC, bool) { return macs[0], true },
		},
	})
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// receive lets the device handle what its port has received.
func receive(d *Device) {
	d.core.enter()
	defer d.core.leave()
	d.core.progress(d.core.clock.Now())
}

// slowPort is a port whose Send takes some time.
type slowPort struct{ scriptPort }

const slowSend = 2 * time.Millisecond

func (p *slowPort) Send(b *packetio.Batch) (int, error) {
	time.Sleep(slowSend)
	return p.scriptPort.Send(b)
}

// The second NIC gets the time at which it handles a packet, and not that of the receive call.
func TestTheSecondNICGetsThePresentTime(t *testing.T) {
	p, a := &slowPort{scriptPort{in: []packetio.Frame{requests(32)}}}, &answering{bytes: 4 << 10}
	receive(openSecond(t, p, a))
	if len(a.times) != 32 {
		t.Fatalf("%d packets", len(a.times))
	}
	for _, i := range []int{15, 30} { // the first one after a Send
		if took := a.times[i].Sub(a.times[i-1]); took < slowSend {
			t.Errorf("packet %d comes %v after packet %d, and a Send of %v is between them", i, took, i-1, slowSend)
		}
	}
}

// Answers leave in the sizes of one super-frame, or as 64 frames, while the device reads on.
func TestAnswersToASuperFrame(t *testing.T) {
	for _, c := range []struct {
		packets, bytes int
		sent           []int
	}{
		{40, 4 << 10, []int{15, 15, 10}},
		{100, 10, []int{64, 36}},
		{3, 4 << 10, []int{3}},
		{2, 100 << 10, []int{1, 1}},
	} {
		p, a := &scriptPort{in: []packetio.Frame{requests(c.packets)}}, &answering{bytes: c.bytes}
		receive(openSecond(t, p, a))
		if !slices.Equal(p.sent, c.sent) {
			t.Errorf("%d answers of %d bytes: sent as %v frames, want %v", c.packets, c.bytes, p.sent, c.sent)
		}
		if len(a.packets) != c.packets || a.batches != 1 {
			t.Errorf("the NIC got %d of %d packets, and the end of %d batches", len(a.packets), c.packets, a.batches)
		}
		for i, b := range a.packets {
			if b[len(b)-1] != byte(i) {
				t.Errorf("packet %d has the number %d", i, b[len(b)-1])
			}
		}
	}
}

// A batch of single packets is one batch for the NIC, too.
func TestABatchOfPackets(t *testing.T) {
	one := requests(2)
	one.Data, one.SegSize = one.Data[:len(one.Data)-60], 0
	p, a := &scriptPort{in: []packetio.Frame{one, one, one}}, &answering{bytes: 10}
	receive(openSecond(t, p, a))
	if len(a.packets) != 3 || a.batches != 1 || !slices.Equal(p.sent, []int{3}) {
		t.Errorf("%d packets, the end of %d batches, frames sent: %v; want 3, 1, [3]", len(a.packets), a.batches, p.sent)
	}
}

// A port that fails in the middle of a super-frame ends the NIC once.
func TestAPortThatFailsInASuperFrame(t *testing.T) {
	p, a := &scriptPort{in: []packetio.Frame{requests(40)}, fails: 1}, &answering{bytes: 4 << 10}
	d := openSecond(t, p, a)
	receive(d)
	if !errors.Is(d.Err(), errPort) || a.downs != 1 || len(p.sent) != 1 || len(a.packets) != 15 {
		t.Errorf("error %v, %d times down, %d sends, %d packets; want the port's, 1, 1, 15", d.Err(), a.downs, len(p.sent), len(a.packets))
	}
}
