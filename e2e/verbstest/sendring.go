package verbstest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ringBlocks is the size of the rings of testSendRing.
const ringBlocks = 64

// ringEnd is an end with two queues whose entries lie in its memory: one with a doorbell and a managed
// one. Both are their own peers.
type ringEnd struct {
	*end
	queues [2]*redn.Queue
	qps    [2]verbs.RingQP
	data   redn.Mem
}

func newRingEnd(e *end) *ringEnd {
	r := &ringEnd{end: e}
	all := redn.Mem{Addr: e.mr.Addr(), LKey: e.mr.LKey(), RKey: e.mr.RKey(), Len: e.mr.Len()}
	const size = ringBlocks * sendring.BlockSize
	for i := range r.queues {
		c, err := e.ctx.CreateCQ(1)
		must(e.t, err)
		counted, ok := c.(verbs.CountedCQ)
		if !ok {
			e.t.Skip("no completion queues that are only counted")
		}
		must(e.t, counted.IgnoreOverrun())
		q, ok := e.qp(verbs.RC, func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ = c, c }).(verbs.RingQP)
		if !ok {
			e.t.Skip("no send rings")
		}
		ring := all.At(i*size, size)
		must(e.t, q.UseRing(verbs.RingInit{Addr: ring.Addr, LKey: ring.LKey, Blocks: ringBlocks, Managed: i == 1}))
		e.up(q, e, q, func(*verbs.ToRTS) {})
		r.qps[i] = q
		r.queues[i] = &redn.Queue{Name: []string{"main", "second"}[i], QPN: q.QPN(), Ring: ring, Managed: i == 1, Done: &redn.Counter{Number: counted.Number()}}
	}
	r.data = all.At(2*size, 256)
	return r
}

// run writes what was appended to the rings, and rings the doorbell.
func (r *ringEnd) run() {
	r.t.Helper()
	for i := len(r.queues) - 1; i >= 0; i-- {
		q := r.queues[i]
		image, limit := q.Take()
		for _, p := range image {
			must(r.t, r.mr.WriteAt(p.Bytes, int(q.Ring.Addr-r.mr.Addr())+p.Off))
		}
		if !q.Managed {
			must(r.t, r.qps[i].Doorbell(limit))
		}
	}
}

// Offsets in the data of testSendRing.
const (
	ringX       = 8 * iota // an operand
	ringBound              // what it is compared with
	ringResult             //
	ringThen               // constants
	ringElse               //
	ringScratch            //
	ringWord               //
	ringNumber             // of the run
	ringDone               // the last request copies the number there
)

// testSendRing executes conditions that a program has written into the memory of send rings, compares
// them with the same conditions in Go, and ends a queue pair whose entry cannot be executed.
func testSendRing(t *testing.T, w *World) {
	a, _ := w.ends(t)
	r := newRingEnd(a)
	base := int(r.data.Addr - a.mr.Addr())
	at := func(off int) redn.Mem { return r.data.At(off, 8) }
	set := func(off int, v uint64) {
		t.Helper()
		must(t, a.mr.WriteAt(binary.LittleEndian.AppendUint64(nil, v), base+off))
	}
	get := func(off int) uint64 {
		t.Helper()
		var b [8]byte
		must(t, a.mr.ReadAt(b[:], base+off))
		return binary.LittleEndian.Uint64(b[:])
	}
	set(ringThen, 1)
	set(ringElse, 2)
	rnd := rand.New(rand.NewPCG(1, 2))
	main, second := r.queues[0], r.queues[1]
	for run := uint64(1); run <= 200; run++ {
		x, y := rnd.Uint64N(3), redn.Operand(rnd.Uint64N(3))
		set(ringX, x)
		set(ringBound, uint64(y))
		set(ringResult, 0)
		set(ringNumber, run)
		want := uint64(0)
		if run%2 == 0 {
			main.IfElse(second, at(ringX), y, at(ringResult), at(ringThen), at(ringElse), at(ringScratch))
			if want = 2; x == uint64(y) {
				want = 1
			}
		} else {
			main.IfAtMost(second, at(ringX), y, at(ringBound), at(ringResult), at(ringThen), at(ringWord), at(ringScratch))
			if x <= uint64(y) {
				want = 1
			}
		}
		main.Move(at(ringDone), at(ringNumber))
		r.run()
		for end := a.in(patience); get(ringDone) != run; a.ctx.Runtime().Sleep(10 * time.Microsecond) {
			if a.ctx.Runtime().Now() > end {
				t.Fatalf("run %d does not end", run)
			}
		}
		if got := get(ringResult); got != want {
			t.Fatalf("run %d: x = %d, y = %d: %d, want %d", run, x, y, got, want)
		}
	}
	if err := r.qps[0].PostSend(verbs.SendWR{Op: verbs.OpWrite}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a post to a queue pair with a ring: %v", err)
	}
	if err := r.qps[1].Doorbell(1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("the doorbell of a managed ring: %v", err)
	}
	main.Append(sendring.Entry{Op: 0x1f})
	r.run()
	a.becomes(r.qps[0], verbs.StateError)
	must(t, r.qps[0].Destroy())
}
