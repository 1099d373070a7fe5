package direct

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mtu = 1500

// batch returns frames of n bytes, whose last byte is their number.
func batch(count, n int) (b packetio.Batch) {
	for i := range count {
		data := make([]byte, n)
		data[n-1] = byte(i)
		b.Add(0, data)
	}
	return b
}

func send(t *testing.T, p *Port, b packetio.Batch, want int) {
	t.Helper()
	if n, err := p.Send(&b); n != want || err != nil {
		t.Errorf("sent %d, %v; want %d", n, err, want)
	}
}

func recv(t *testing.T, p *Port, want int) packetio.Batch {
	t.Helper()
	var b packetio.Batch
	if n, err := p.Recv(&b); n != want || err != nil {
		t.Errorf("received %d, %v; want %d", n, err, want)
	}
	return b
}

// Frames arrive in order, with the number of the port. They are copies, which stay as they are while
// the next ones arrive.
func TestOrder(t *testing.T) {
	l := New().Link("a")
	host, sw := l.Host(mtu), l.Switch(3, mtu)
	sent := batch(3, 60)
	send(t, host, sent, 3)
	got := recv(t, sw, 3)
	sent.Frames[0].Data[59] = 99
	send(t, host, batch(2, 60), 2)
	for i, f := range got.Frames {
		if f.Port != 3 || f.Data[59] != byte(i) {
			t.Errorf("frame %d: port %d, %d", i, f.Port, f.Data[59])
		}
	}
	recv(t, sw, 2)
	recv(t, sw, 0)
	if st := sw.Stats(); st.RxPackets != 5 || st.RxBytes != 300 {
		t.Errorf("%+v", st)
	}
	if n := l.fabric.waiting.Load(); n != 0 {
		t.Errorf("%d frames wait for the switch", n)
	}
}

// A link without another end, one that is down at either end, and one that was cut drop and count all
// frames, and so are frames that are too long or find no room.
func TestDrops(t *testing.T) {
	l := New().Link("a")
	host := l.Host(mtu)
	dropped := uint64(0)
	drops := func(what string, b packetio.Batch, sent int) {
		t.Helper()
		send(t, host, b, sent)
		dropped += uint64(len(b.Frames) - sent)
		if got := host.Stats().TxDropped; got != dropped {
			t.Errorf("%s: %d dropped, want %d", what, got, dropped)
		}
	}
	drops("no switch", batch(2, 60), 0)
	sw := l.Switch(0, mtu)
	sw.SetUp(false)
	drops("down at the switch", batch(1, 60), 0)
	sw.SetUp(true)
	host.SetUp(false)
	drops("down at the host", batch(1, 60), 0)
	host.SetUp(true)
	drops("too long", batch(1, mtu+15), 0)
	drops("a flood", batch(maxFrames+7, 60), maxFrames)
	host.SetUp(false)
	recv(t, sw, 0)
	if st := sw.Stats(); st.RxDropped != maxFrames {
		t.Errorf("%d frames of a link that went down are dropped, want %d", st.RxDropped, maxFrames)
	}
	host.SetUp(true)
	l.Cut()
	drops("cut", batch(1, 60), 0)
	send(t, sw, batch(1, 60), 0)
	host, dropped = l.Host(mtu), 0
	drops("opened again", batch(1, 60), 1)
	if err := errors.Join(sw.Close(), sw.Close()); err != nil {
		t.Error(err)
	}
	if n := l.fabric.waiting.Load(); n != 0 {
		t.Errorf("%d frames wait for a switch that has ended", n)
	}
	if _, err := sw.Recv(new(packetio.Batch)); !errors.Is(err, ErrClosed) {
		t.Errorf("receive from a closed port: %v", err)
	}
	if _, err := sw.Send(new(packetio.Batch)); !errors.Is(err, ErrClosed) {
		t.Errorf("send to a closed port: %v", err)
	}
}

// openPacket makes an open packet whose payload is one byte, b.
func openPacket(s *packetio.Pages, to *packetio.Batch, b byte) {
	data := s.Alloc(1)
	data[0] = b
	o := s.New()
	o.Frame = wire.Frame{IPv4: wire.IPv4{TTL: 64}}
	o.Frame.BTH.Opcode, o.Frame.Payload = wire.RCWriteOnly, data
	s.Add(to, o)
	s.Rest()
}

// A host that hangs holds little of the memory of its peers, also if it gets one of each hundred packets
// that they send: most of its packets wait encoded. They have the same bytes, in the same order.
func TestOpenPacketsThatWait(t *testing.T) {
	l := New().Link("a")
	host, sw := l.Host(mtu), l.Switch(0, mtu)
	pages := packetio.NewPages()
	for i := range maxFrames {
		var b, others packetio.Batch
		openPacket(pages, &b, byte(i))
		for range 99 {
			openPacket(pages, &others, 0)
		}
		send(t, sw, b, 1)
		packetio.ReturnAll(others.Frames)
	}
	got, open := recv(t, host, maxFrames), 0
	for i := range got.Frames {
		f := &got.Frames[i]
		h := new(wire.Frame)
		if f.Open != nil {
			open++
			h = &f.Open.Frame
		} else if err := wire.ParseFrame(f.Data, h); err != nil || !wire.CheckICRC(f.Data) {
			t.Fatalf("packet %d: %v", i, err)
		}
		if len(h.Payload) != 1 || h.Payload[0] != byte(i) {
			t.Fatalf("packet %d has payload %v", i, h.Payload)
		}
	}
	if st := host.Stats(); open != maxRuns || st.RxBytes != sw.Stats().TxBytes {
		t.Errorf("%d packets waited as they were; %+v, sent %+v", open, st, sw.Stats())
	}
	// Those of one sender's page need no bound.
	var b packetio.Batch
	for range 500 {
		openPacket(pages, &b, 1)
	}
	send(t, sw, b, 500)
	for _, f := range recv(t, host, 500).Frames {
		if f.Open == nil {
			t.Fatal("a packet was encoded")
		}
	}
}

// Without a switch frames wait, and the threads that have sent them go on.
func TestNoSwitch(t *testing.T) {
	f := New()
	l := f.Link("a")
	host, sw := l.Host(mtu), l.Switch(0, mtu)
	var rx packetio.Batch
	for _, ended := range []bool{false, true} {
		if ended {
			f.Switch(nil, nil)
		}
		send(t, host, batch(1, 60), 1)
		host.Carry()
		f.Do(func() {})
		if n := f.waiting.Load(); n != 1 {
			t.Errorf("%d frames wait", n)
		}
		f.Switch(func() { recvAll(t, sw, &rx) }, func() {})
		f.Do(func() {})
		if n := f.waiting.Load(); n != 0 {
			t.Errorf("%d frames wait for a switch that runs", n)
		}
	}
}

// One thread carries frames for all, until a bound: then the goroutine of the switch does.
func TestTurnsAreBounded(t *testing.T) {
	f := New()
	l := f.Link("a")
	host, sw := l.Host(mtu), l.Switch(0, mtu)
	rounds, woken := 0, 0
	var rx packetio.Batch
	f.Switch(func() {
		rounds++
		recvAll(t, sw, &rx)
		send(t, sw, rx, len(rx.Frames))
	}, func() { woken++ })
	host.Serve(func() bool { // a NIC that answers everything
		recvAll(t, host, &rx)
		send(t, host, rx, len(rx.Frames))
		return true
	}, func() {})
	send(t, host, batch(1, 60), 1)
	host.Carry()
	if rounds != maxTurns || woken != 1 {
		t.Errorf("%d rounds, woken %d times; want %d and once", rounds, woken, maxTurns)
	}
	f.Do(func() {})
	if rounds != 2*maxTurns || woken != 2 {
		t.Errorf("then %d rounds, woken %d times; want %d and twice", rounds, woken, 2*maxTurns)
	}
}

func recvAll(t *testing.T, p *Port, b *packetio.Batch) {
	if _, err := p.Recv(b); err != nil {
		t.Error(err)
	}
}

// nic is a NIC as package device has it: one thread at a time is inside, and one that leaves carries.
type nic struct {
	mu   sync.Mutex
	port *Port
	rx   packetio.Batch
	got  *atomic.Int64 // frames that the NICs have got
}

func (n *nic) handle(t *testing.T) {
	recvAll(t, n.port, &n.rx)
	n.got.Add(int64(len(n.rx.Frames)))
}

// No frame is left behind, whichever threads are inside the NICs and the switch when it is sent: in each
// round every NIC sends one frame at the same time, and all must arrive before the next round begins.
func TestNoFrameIsLeft(t *testing.T) {
	const hosts, rounds = 3, 5000
	f := New()
	var ends [hosts]*Port
	var nics [hosts]*nic
	var got atomic.Int64
	var rx packetio.Batch
	for i := range nics {
		l := f.Link(string(rune('a' + i)))
		ends[i] = l.Switch(i, mtu)
		n := &nic{port: l.Host(mtu), got: &got}
		n.port.Serve(func() bool {
			if !n.mu.TryLock() {
				return false
			}
			defer n.mu.Unlock()
			n.handle(t)
			return true
		}, func() { t.Error("the goroutine of the NIC is needed") })
		nics[i] = n
	}
	f.Switch(func() {
		for i, p := range ends {
			recvAll(t, p, &rx)
			send(t, ends[(i+1)%hosts], rx, len(rx.Frames))
		}
	}, func() { t.Error("the goroutine of the switch is needed") })
	deadline := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	for _, n := range nics {
		wg.Go(func() {
			for r := range int64(rounds) {
				for got.Load() < r*hosts {
					if time.Now().After(deadline) {
						t.Errorf("round %d: %d frames have arrived", r, got.Load())
						return
					}
					runtime.Gosched()
				}
				n.mu.Lock()
				send(t, n.port, batch(1, 60), 1)
				n.handle(t)
				n.mu.Unlock()
				n.port.Carry()
			}
		})
	}
	wg.Wait()
	if got.Load() != hosts*rounds {
		t.Errorf("%d frames have arrived, want %d", got.Load(), hosts*rounds)
	}
}

// A thread that sends while another one carries leaves its frame to that one, also at the last moment.
func TestFrameAtTheLastMoment(t *testing.T) {
	f := New()
	other, late := f.Link("a").Host(mtu), f.Link("b").Host(mtu)
	ends := [2]*Port{f.Link("a").Switch(0, mtu), f.Link("b").Switch(1, mtu)}
	rounds := 0
	var rx packetio.Batch
	f.Switch(func() {
		rounds++
		recvAll(t, ends[1], &rx)
	}, func() {})
	other.Serve(func() bool { // in the thread that carries, which has nothing else to do after this
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			send(t, late, batch(1, 60), 1)
			late.Carry()
		}()
		<-sent
		return false
	}, func() {})
	f.Do(func() { send(t, ends[0], batch(1, 60), 1) })
	if n := f.waiting.Load(); n != 0 || rounds != 1 {
		t.Errorf("%d frames are left, %d rounds of the switch", n, rounds)
	}
}

// A frame that comes while a thread inside the NIC has already looked is handled by that thread, also if
// its first look after that finds nothing.
func TestFrameBehindAnEmptyLook(t *testing.T) {
	l := New().Link("a")
	host, sw := l.Host(mtu), l.Switch(0, mtu)
	looks := 0
	var rx packetio.Batch
	host.Serve(func() bool {
		if looks++; looks == 1 { // another thread has taken the frame, and a new one comes behind it
			recvAll(t, host, &rx)
			send(t, sw, batch(1, 60), 1)
			return true
		}
		recvAll(t, host, &rx)
		return true
	}, func() {})
	send(t, sw, batch(1, 60), 1)
	host.Carry()
	if n := l.host.in.n.Load(); n != 0 || looks != 2 {
		t.Errorf("%d frames are left after %d looks", n, looks)
	}
}

// An end gets nothing that was sent to a former end, and nothing is left of it.
func TestNewEndBeginsEmpty(t *testing.T) {
	l := New().Link("a")
	host, sw := l.Host(mtu), l.Switch(0, mtu)
	send(t, host, batch(2, 60), 2)
	send(t, sw, batch(2, 60), 2)
	host, sw = l.Host(mtu), l.Switch(0, mtu)
	recv(t, host, 0)
	recv(t, sw, 0)
	if n := l.fabric.waiting.Load(); n != 0 {
		t.Errorf("%d frames wait for the switch", n)
	}
}

// Wait ends by Wake, once, and by its time.
func TestWaiter(t *testing.T) {
	w := NewWaiter()
	w.Wake()
	w.Wake()
	var waits []error
	for _, d := range []time.Duration{-1, time.Millisecond, 0} {
		waits = append(waits, w.Wait(d))
	}
	if !slices.Equal(waits, []error{nil, nil, nil}) {
		t.Error(waits)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Wait(-1); !errors.Is(err, ErrClosed) {
		t.Errorf("wait of a closed waiter: %v", err)
	}
}

// The memory of a burst is given back when no frames have arrived for a while, and not before. Frames
// that are still being read stay as they are.
func TestBurstGivesMemoryBack(t *testing.T) {
	l := New().Link("a")
	host, sw := l.Host(mtu), l.Switch(0, mtu)
	q := &l.sw.in
	for range 2 { // both batches of the queue grow
		send(t, host, batch(500, 1000), 500)
		host.Trim()
		recv(t, sw, 500)
	}
	send(t, host, batch(1, 60), 1)
	got := recv(t, sw, 1)
	host.Trim()
	held := func() int { return q.in.Held() + q.taken.Held() }
	if held() < 400<<10 {
		t.Error("memory was given back although frames have arrived")
	}
	host.Trim()
	if held() > 2*keptBytes {
		t.Errorf("%d bytes are kept", held())
	}
	if got.Frames[0].Data[59] != 0 || len(got.Frames[0].Data) != 60 {
		t.Error("a frame that was being read has changed")
	}
}
