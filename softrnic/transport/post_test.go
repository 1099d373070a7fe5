package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An invalid post is refused with its kind of error, and the request is not queued.
func TestPostRefuses(t *testing.T) {
	a, b := newPair(t)
	sge := a.sge(0, 8)
	big := verbs.SGE{Addr: a.mem.Base(), Length: 1 << 31, LKey: a.mem.LKey()}
	for name, wr := range map[string]verbs.SendWR{
		"unknown operation":       {Op: verbs.OpFlush + 1},
		"too many SGEs":           {Op: verbs.OpWrite, SGL: make([]verbs.SGE, 5)},
		"too long":                {Op: verbs.OpWrite, SGL: []verbs.SGE{big, sge}},
		"inline too long":         {Op: verbs.OpSend, Flags: verbs.Inline, Data: make([]byte, 257)},
		"inline with SGL":         {Op: verbs.OpSend, Flags: verbs.Inline, Data: make([]byte, 8), SGL: []verbs.SGE{sge}},
		"inline READ":             {Op: verbs.OpRead, Flags: verbs.Inline},
		"inline atomic":           {Op: verbs.OpFetchAdd, Flags: verbs.Inline},
		"atomic of 4 bytes":       {Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.sge(0, 4)}},
		"atomic of nothing":       {Op: verbs.OpCmpSwap},
		"misaligned atomic":       {Op: verbs.OpCmpSwap, SGL: []verbs.SGE{sge}, RemoteAddr: b.mem.Base() + 1},
		"inline ATOMIC_WRITE":     {Op: verbs.OpAtomicWrite, Flags: verbs.Inline, Data: make([]byte, 8)},
		"ATOMIC_WRITE with SGL":   {Op: verbs.OpAtomicWrite, SGL: []verbs.SGE{sge}},
		"misaligned ATOMIC_WRITE": {Op: verbs.OpAtomicWrite, RemoteAddr: b.mem.Base() + 4},
		"FLUSH without effect":    {Op: verbs.OpFlush},
		"FLUSH with SGL":          {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true}, SGL: []verbs.SGE{sge}},
		"FLUSH too long":          {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true, Length: 1<<31 + 1}},
		"inline FLUSH":            {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true}, Flags: verbs.Inline},
		"local invalidate + SGEs": {Op: verbs.OpLocalInv, SGL: []verbs.SGE{sge}},
	} {
		err := a.qp.PostSend(0, &wr, &a.out)
		var op *verbs.OpError
		if !errors.As(err, &op) || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want an OpError of ErrInvalid", name, err)
		}
	}
	if err := a.qp.PostRecv(&verbs.RecvWR{SGL: make([]verbs.SGE, 5)}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("receive with too many SGEs: %v", err)
	}
	if q := a.qp.Query(); q.SendQueued != 0 || q.RecvQueued != 0 || len(a.out.Tx) != 0 {
		t.Errorf("something was queued: %+v", q)
	}
}

func TestQueuesAreBounded(t *testing.T) {
	a := newSide(t, "a", 1, 64, Config{QPN: 0x11, MaxSendWR: 3, MaxRecvWR: 5})
	b := newSide(t, "b", 2, 64, Config{QPN: 0x12})
	connect(t, a, b, defaultLink)
	for range 3 {
		post(t, a, writeTo(b))
	}
	wr := writeTo(b)
	if err := a.qp.PostSend(0, &wr, &a.out); !errors.Is(err, verbs.ErrNoSpace) {
		t.Errorf("fourth send: %v, want ErrNoSpace", err)
	}
	for i := range 6 {
		if err := a.qp.PostRecv(&verbs.RecvWR{}); (err != nil) != (i == 5) || (err != nil && !errors.Is(err, verbs.ErrNoSpace)) {
			t.Errorf("receive %d: %v", i, err)
		}
	}
}

// The durations that the timeout codes stand for (IBTA 9.7.6.1.3/timeout, 9.7.5.2.8/timer).
func TestTimerCodes(t *testing.T) {
	for code, want := range map[uint8]time.Duration{1: 8192, 14: 67108864, 31: 4096 << 31} {
		if got := AckTimeout(code); got != want {
			t.Errorf("ACK timeout %d is %v, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond,
		18: 5120 * time.Microsecond, 31: 491520 * time.Microsecond,
	} {
		if got := RNRDelay(code); got != want {
			t.Errorf("RNR timer %d is %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if RNRDelay(code) <= RNRDelay(code-1) {
			t.Errorf("RNR timers do not grow at %d", code)
		}
	}
}

// Timeout 0 never times out.
func TestNoTimeout(t *testing.T) {
	a, b := newPair(t)
	l := defaultLink
	l.rts.Timeout = 0
	reconnect(t, a, b, l)
	post(t, a, writeTo(b))
	if at := a.qp.Deadline(); at.String() != "never" {
		t.Errorf("deadline %v, want never", at)
	}
}

// The limit of a shared receive queue may be all of its places, and no more.
func TestLimitOfASharedQueue(t *testing.T) {
	srq, err := NewSRQ(1, 1, verbs.SRQInit{MaxWR: 3})
	if err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{-1: false, 0: true, 1: true, 3: true, 4: false} {
		if err := srq.SetLimit(n); (err == nil) != ok {
			t.Errorf("limit %d: %v", n, err)
		}
	}
}

// Resize keeps the receives that are queued and their order, and takes a capacity from 1 to maxWR
// that holds them and the limit.
func TestResizeOfASharedQueue(t *testing.T) {
	srq, err := NewSRQ(1, 1, verbs.SRQInit{MaxWR: 4})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := srq.PostRecv(&verbs.RecvWR{ID: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := srq.SetLimit(4); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, 0, 2, 3, maxWR + 1} {
		if err := srq.Resize(n); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d places: %v", n, err)
		}
	}
	for _, n := range []int{4, maxWR} {
		if err := srq.Resize(n); err != nil || srq.Query().MaxWR != n {
			t.Errorf("%d places: %v, now %d", n, err, srq.Query().MaxWR)
		}
	}
	if err := srq.SetLimit(0); err != nil {
		t.Fatal(err)
	}
	if err := srq.Resize(3); err != nil || srq.Query().Queued != 3 {
		t.Errorf("as many places as receives: %v, %+v", err, srq.Query())
	}
	if err := srq.PostRecv(&verbs.RecvWR{}); !errors.Is(err, verbs.ErrNoSpace) {
		t.Errorf("a fourth receive: %v", err)
	}
	to := newRecvQueue(1, 4)
	for want := range uint64(3) {
		if !srq.take(&to) || to.at(to.head).id != want {
			t.Errorf("receive %d is %d", want, to.at(to.head).id)
		}
		to.head++
	}
	if err := srq.Resize(1); err != nil {
		t.Errorf("one place: %v", err)
	}
	srq.TakeReceives(&ringOf{})
	if err := srq.Resize(2); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("a queue outside: %v", err)
	}
}

// ringOf is a ring of receives, each with so many SGEs of 8 bytes.
type ringOf struct {
	nsge []int
	long bool // the SGEs together are longer than a message
}

func (r *ringOf) Len() int { return len(r.nsge) }

func (r *ringOf) Next(sgl []verbs.SGE) (id uint64, nsge int, ok bool) {
	if len(r.nsge) == 0 {
		return 0, 0, false
	}
	n := r.nsge[0]
	r.nsge = r.nsge[1:]
	for i := range n {
		sgl[i].Length = 8
		if r.long {
			sgl[i].Length = 1 << 31
		}
	}
	return uint64(len(r.nsge)), n, true
}

// A receive from a program's ring is taken with its length; one that is malformed is not taken.
func TestReceivesOfARing(t *testing.T) {
	r := newRecvQueue(4, 4)
	ring := &ringOf{nsge: []int{2, 1}}
	for i, length := range []uint64{16, 8} {
		if !r.takeFrom(ring) || r.len() != i+1 || r.at(uint32(i)).length != length || r.at(uint32(i)).id != uint64(1-i) {
			t.Errorf("receive %d: %+v", i, r.at(uint32(i)))
		}
	}
	if r.takeFrom(ring) || r.takeFrom(&ringOf{nsge: []int{2}, long: true}) || r.len() != 2 {
		t.Errorf("%d receives", r.len())
	}
}

// endless is a ring to which its program adds a receive whenever one is taken.
type endless struct{ taken int }

func (r *endless) Len() int { return 3 }

func (r *endless) Next([]verbs.SGE) (id uint64, nsge int, ok bool) {
	r.taken++
	return uint64(r.taken), 0, r.taken < 1000
}

// A flush ends although the program adds receives to its ring meanwhile: it takes those that were
// there when it began, behind the one that the queue pair holds.
func TestFlushOfARingThatGrows(t *testing.T) {
	for _, held := range []bool{false, true} {
		_, b := newPair(t)
		ring := &endless{}
		b.qp.rcv.rq = newRecvQueue(1, 4)
		b.qp.TakeReceives(ring)
		want := 3
		if held {
			want++
			b.qp.rcv.ready()
		}
		if err := b.qp.ToError(0, &b.out); err != nil {
			t.Fatal(err)
		}
		if ring.taken != want || len(b.out.Done) != want || b.out.Done[want-1].WC.ID != uint64(want) {
			t.Errorf("held %v: %d receives taken, %d completions, want %d", held, ring.taken, len(b.out.Done), want)
		}
	}
}

// A queue pair that was reset within a message, and connected again, begins with the first packet
// of a message.
func TestResetWithinAMessage(t *testing.T) {
	a, b := newPair(t)
	fetchAdd := func() {
		post(t, a, verbs.SendWR{
			ID: 1, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, CompareAdd: 1, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(),
			SGL: []verbs.SGE{a.sge(0, 8)},
		})
		settle(t, 0, a, b)
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success {
			t.Fatal(wc)
		}
	}
	reconnect(t, a, b, defaultLink)
	fetchAdd()
	wr := writeTo(b)
	wr.RemoteAddr, wr.SGL = wr.RemoteAddr+64, []verbs.SGE{a.sge(0, 1000)}
	post(t, a, wr)
	b.qp.Handle(0, &a.out.Tx[0].Packet, &b.out)
	a.out.Reset()
	b.out.Reset()
	reconnect(t, a, b, defaultLink)
	for i := range 2 {
		fetchAdd()
		if b.buf[0] != byte(2+i) {
			t.Errorf("the word is %d, want %d", b.buf[0], 2+i)
		}
	}
}

// Packets to the peer name the peer's queue pair.
func TestDestinationOfPackets(t *testing.T) {
	a, b := newPair(t)
	recvOf(t, b, 10)
	post(t, a, verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{a.sge(0, 10)}})
	if n := len(a.out.Tx); n != 1 || a.out.Tx[0].Packet.BTH.DestQP != 0x12 {
		t.Errorf("%d packets, to %#x", n, a.out.Tx[0].Packet.BTH.DestQP)
	}
	a.deliver(0, b)
	b.qp.Tick(0, &b.out)
	if n := len(b.out.Tx); n != 1 || b.out.Tx[0].Packet.BTH.DestQP != 0x11 {
		t.Errorf("%d answers, to %#x", n, b.out.Tx[0].Packet.BTH.DestQP)
	}
}
