package verbstest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// ringLanes is how many programs the NIC executes at the same time, to make the tests faster:
	// the NIC executes a few entries of each ring and then waits, as long as hardware would take.
	ringLanes = 8
	// laneRuns is how many constructs one program of testSendRing has in sequence.
	laneRuns = 16
	// laneBlocks is the size of the rings of testSendRing in blocks. A construct has at most 17.
	laneBlocks = 512
	// laneSlot is the size of a construct's memory in bytes.
	laneSlot = (ConstructData + 7) &^ 7
)

// lane is a region with send rings, followed by data. Each queue pair is connected to itself. Its
// receives complete to the completion queue of the end. So a SEND in a ring tells the test that the
// NIC has executed the ring up to this SEND.
type lane struct {
	*end
	mr   verbs.MR
	all  redn.Mem
	used int // bytes of mr that rings occupy
	data redn.Mem
}

// ringed is a queue pair of a lane, with its send ring.
type ringed struct {
	*redn.Queue
	qp verbs.RingQP
	cq verbs.CountedCQ // completion queue of its requests
}

// lane makes a lane with space for rings of blocks blocks in all, and data bytes of data.
func (e *end) lane(blocks, data int) *lane {
	e.t.Helper()
	mr := need(e.pd.RegMR(nil, blocks*sendring.BlockSize+data, full))(e.t)
	l := &lane{end: e, mr: mr, all: redn.Mem{Addr: mr.Addr(), LKey: mr.LKey(), RKey: mr.RKey(), Len: mr.Len()}}
	l.data = l.all.At(blocks*sendring.BlockSize, data)
	return l
}

// dataAt returns the offset of the data in the region.
func (l *lane) dataAt() int { return int(l.data.Addr - l.all.Addr) }

// queue makes a queue pair with a send ring in the next free blocks of the lane. Its requests
// complete to a completion queue of the given depth; if depth is 0, completions are only counted.
func (l *lane) queue(name string, depth int, ring verbs.RingInit) *ringed {
	l.t.Helper()
	q := l.ring(name, depth, ring, func(*verbs.QPInit) {})
	l.up(0, q.qp, l.end, q.qp, func(*verbs.ToRTS) {})
	return q
}

// counted makes a completion queue of the given depth; if depth is 0, completions are only counted.
func (l *lane) counted(depth int) verbs.CountedCQ {
	l.t.Helper()
	c := need(l.ctx.CreateCQ(max(1, depth)))(l.t)
	counted, ok := c.(verbs.CountedCQ)
	if !ok {
		l.t.Skip("no completion queues that are only counted")
	}
	if depth == 0 {
		must(l.t, counted.IgnoreOverrun())
	}
	return counted
}

// ring is like queue, but does not connect the queue pair; change may change its attributes.
func (l *lane) ring(name string, depth int, ring verbs.RingInit, change func(*verbs.QPInit)) *ringed {
	l.t.Helper()
	c := l.counted(depth)
	q, ok := l.qp(verbs.RC, func(init *verbs.QPInit) {
		init.SendCQ, init.MaxSGE = c, sendring.MaxSGE
		change(init)
	}).(verbs.RingQP)
	if !ok {
		l.t.Skip("no send rings")
	}
	m := l.all.At(l.used, ring.Blocks*sendring.BlockSize)
	l.used += m.Len
	ring.Addr, ring.LKey = m.Addr, m.LKey
	must(l.t, q.UseRing(ring))
	return &ringed{&redn.Queue{
		Name: name, QPN: q.QPN(), Ring: m, Managed: ring.Managed, Counts16: ring.Counts16, Done: &redn.Counter{Number: c.Number()},
	}, q, c}
}

// destroy destroys the queue that was made last. The next one gets its blocks.
func (l *lane) destroy(q *ringed) {
	l.t.Helper()
	must(l.t, q.qp.Destroy())
	must(l.t, q.cq.Destroy())
	l.used -= q.Ring.Len
}

// load writes the requests that were appended to queues into their rings, and rings the doorbells
// of queues that are not managed. These come last in the list, so that the requests of the managed
// queues are in memory when the NIC starts.
func (l *lane) load(queues ...*ringed) {
	l.t.Helper()
	for _, q := range queues {
		image, limit := q.Take()
		if len(image)*sendring.BlockSize > q.Ring.Len {
			l.t.Fatalf("queue %s: %d blocks do not fit into its ring", q.Name, len(image))
		}
		for _, p := range image {
			must(l.t, l.mr.WriteAt(p.Bytes, int(q.Ring.Addr-l.all.Addr)+p.Off))
		}
		if !q.Managed {
			must(l.t, q.qp.Doorbell(limit))
		}
	}
}

// tells posts a receive with this ID for the next SEND of the queue to itself.
func (l *lane) tells(q *ringed, id int) {
	l.t.Helper()
	must(l.t, q.qp.PostRecv(verbs.RecvWR{ID: uint64(id)}))
}

// told waits until the receives that tells has posted for n queues have completed. It returns their
// IDs.
func (e *end) told(n int) (ids []uint64) {
	e.t.Helper()
	for range n {
		wc := e.next()
		if wc.Status != verbs.Success {
			e.t.Fatalf("queue %d ends with %q", wc.ID, wc.Status)
		}
		ids = append(ids, wc.ID)
	}
	return ids
}

// batch is a lane with a program of many constructs without loops.
type batch struct {
	lane         *lane
	main, second *ringed
	d            []byte // the data
	want         [][]byte
}

func (e *end) batch() *batch {
	b := &batch{lane: e.lane(2*laneBlocks, laneRuns*laneSlot), d: make([]byte, laneRuns*laneSlot)}
	b.main = b.lane.queue("main", 0, verbs.RingInit{Blocks: laneBlocks})
	b.second = b.lane.queue("second", 0, verbs.RingInit{Blocks: laneBlocks, Managed: true})
	return b
}

// start lets the NIC execute n constructs, from number first on, with random operands.
func (b *batch) start(rnd *rand.Rand, id, first, n int) {
	b.lane.t.Helper()
	b.want = b.want[:0]
	for i := range n {
		at := i * laneSlot
		b.want = append(b.want, Construct(rnd, (first+i)%Constructs, b.main.Queue, b.second.Queue, b.lane.data.At(at, ConstructData), b.d[at:]))
	}
	must(b.lane.t, b.lane.mr.WriteAt(b.d, b.lane.dataAt()))
	b.main.Append(sendring.Entry{Op: sendring.Send})
	b.lane.tells(b.main, id)
	b.lane.load(b.second, b.main)
}

// check compares the results of the constructs with those of the same statements in Go.
func (b *batch) check(first int) {
	b.lane.t.Helper()
	must(b.lane.t, b.lane.mr.ReadAt(b.d, b.lane.dataAt()))
	for i, want := range b.want {
		if got := b.d[i*laneSlot:][:len(want)]; !bytes.Equal(got, want) {
			b.lane.t.Fatalf("run %d, construct %d:\ngot  % x\nwant % x", first+i, (first+i)%Constructs, got, want)
		}
	}
}

// lanesOf makes the lanes of a test.
func lanesOf[T any](e *end, make func(*end) *T) (lanes [ringLanes]*T) {
	for i := range lanes {
		lanes[i] = make(e)
	}
	return lanes
}

// testSendRing executes the constructs of package redn with random operands, and compares the
// results with those of the same statements in Go. Then it executes an entry with an unknown
// opcode, which must take its queue pair to the error state.
func testSendRing(t *testing.T, w *World) {
	a, _ := w.ends(t)
	lanes := lanesOf(a, (*end).batch)
	rnd := rand.New(rand.NewPCG(1, 2))
	runs := Constructs * Tries(100_000, 100)
	for first := 0; first < runs; first += ringLanes * laneRuns {
		for i, b := range lanes {
			b.start(rnd, i, first+i*laneRuns, laneRuns)
		}
		a.told(len(lanes))
		for i, b := range lanes {
			b.check(first + i*laneRuns)
		}
	}
	b := lanes[0]
	if err := b.main.qp.PostSend(verbs.SendWR{Op: verbs.OpWrite}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a post to a queue pair with a ring: %v", err)
	}
	if err := b.second.qp.Doorbell(1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("the doorbell of a managed ring: %v", err)
	}
	b.main.Append(sendring.Entry{Op: 0x1f})
	b.lane.load(b.main)
	a.becomes(b.main.qp, verbs.StateError)
	must(t, b.main.qp.Destroy())
}
