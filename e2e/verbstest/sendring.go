package verbstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
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
		q, ok := e.qp(verbs.RC, func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ, init.MaxSGE = c, c, sendring.MaxSGE }).(verbs.RingQP)
		if !ok {
			e.t.Skip("no send rings")
		}
		ring := all.At(i*size, size)
		must(e.t, q.UseRing(verbs.RingInit{Addr: ring.Addr, LKey: ring.LKey, Blocks: ringBlocks, Managed: i == 1}))
		e.up(q, e, q, func(*verbs.ToRTS) {})
		r.qps[i] = q
		r.queues[i] = &redn.Queue{Name: []string{"main", "second"}[i], QPN: q.QPN(), Ring: ring, Managed: i == 1, Done: &redn.Counter{Number: counted.Number()}}
	}
	r.data = all.At(2*size, ringData)
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

// Offsets in the data of testSendRing, behind those of a construct.
const (
	ringNumber = (ConstructData+7)&^7 + 8*iota // of the run
	ringDone                                   // the last request copies the number there
	ringData                                   // length
)

// ringRuns returns how many constructs testSendRing executes: with RDMALAB_LONG 100,000 of each.
func ringRuns() uint64 {
	if os.Getenv("RDMALAB_LONG") != "" {
		return Constructs * 100_000
	}
	return Constructs * 50
}

// testSendRing executes the constructs of package redn, which a program has written into the memory of
// send rings, with random operands, compares them with the same statements in Go, and ends a queue pair
// whose entry cannot be executed.
func testSendRing(t *testing.T, w *World) {
	a, _ := w.ends(t)
	r := newRingEnd(a)
	base := int(r.data.Addr - a.mr.Addr())
	rnd := rand.New(rand.NewPCG(1, 2))
	main, second := r.queues[0], r.queues[1]
	d, got, done := make([]byte, ringDone), make([]byte, constructWords), make([]byte, 8)
	for run := uint64(1); run <= ringRuns(); run++ {
		kind := int(run % Constructs)
		want := Construct(rnd, kind, main, second, r.data.At(0, ConstructData), d)
		binary.LittleEndian.PutUint64(d[ringNumber:], run)
		must(t, a.mr.WriteAt(d, base))
		main.Move(r.data.At(ringDone, 8), r.data.At(ringNumber, 8))
		r.run()
		for end := a.in(patience); ; a.ctx.Runtime().Sleep(10 * time.Microsecond) {
			must(t, a.mr.ReadAt(done, base+ringDone))
			if binary.LittleEndian.Uint64(done) == run {
				break
			}
			if a.ctx.Runtime().Now() > end {
				t.Fatalf("run %d does not end", run)
			}
		}
		must(t, a.mr.ReadAt(got, base))
		if !bytes.Equal(got, want) {
			t.Fatalf("run %d, construct %d:\ngot  % x\nwant % x", run, kind, got, want)
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
