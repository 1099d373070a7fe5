package verbstest

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// starterBlocks is the size of the rings of the queues that start loops.
	starterBlocks = 16
	// pauseCopies is how many requests the queue main executes before a test takes an unrolled loop
	// for ended.
	pauseCopies = 5
)

// search is a lane with a recycled loop, which is started for each input.
type search struct {
	lane                   *lane
	main, second, loop, on *ringed
	l                      *redn.Loop
	d                      []byte // the data in front of the pool
	want                   uint64
}

func (e *end) search() *search {
	e.t.Helper()
	s := &search{lane: e.lane(2*starterBlocks+SearchBlocks+SearchOnBlocks, LoopData), d: make([]byte, LoopPool)}
	s.main = s.lane.queue("main", 0, verbs.RingInit{Blocks: starterBlocks})
	s.second = s.lane.queue("second", 0, verbs.RingInit{Blocks: starterBlocks, Managed: true})
	s.loop = s.lane.queue("loop", 0, verbs.RingInit{Blocks: SearchBlocks, Managed: true, Counts16: true})
	s.on = s.lane.queue("on", 0, verbs.RingInit{Blocks: SearchOnBlocks, Managed: true, Counts16: true})
	pool := redn.NewPool(s.lane.data.At(LoopPool, LoopData-LoopPool))
	s.l = need(s.loop.Queue.Recycle(pool, s.on.Queue))(e.t)
	// The break replaces the loop's last request by a SEND instead of a NOP. The test gets this SEND
	// when all requests of the last lap are complete.
	tell := sendring.Entry{Op: sendring.Send}
	must(e.t, Search(s.l, s.loop.Queue, s.on.Queue, s.lane.data, pool.Put(tell.AppendTo(nil)[:8])))
	must(e.t, s.lane.mr.WriteAt(pool.Image(), s.lane.dataAt()+LoopPool))
	return s
}

// start starts the loop with a random input.
func (s *search) start(rnd *rand.Rand, id int) {
	s.lane.t.Helper()
	s.want = SearchInput(rnd, s.lane.data, s.d)
	must(s.lane.t, s.lane.mr.WriteAt(s.d, s.lane.dataAt()))
	s.l.Start(s.second.Queue)
	s.main.Enable(s.second.Queue)
	s.lane.tells(s.loop, id)
	s.lane.load(s.loop, s.on, s.second, s.main)
}

// testRecycledLoop starts recycled loops many times, so that their 16-bit counts wrap around, and
// compares the results with those of the same loop in Go.
func testRecycledLoop(t *testing.T, w *World) {
	a, _ := w.ends(t)
	lanes := lanesOf(a, (*end).search)
	rnd := rand.New(rand.NewPCG(3, 4))
	for run := 0; run < Tries(100_000, 12*ringLanes); run += ringLanes {
		for i, s := range lanes {
			s.start(rnd, i)
		}
		a.told(len(lanes))
		for i, s := range lanes {
			must(t, s.lane.mr.ReadAt(s.d, s.lane.dataAt()))
			if got := LoopEnd(s.d); got != s.want {
				t.Fatalf("run %d: the loop ends at %d, want %d", run+i, got, s.want)
			}
		}
	}
}

// unrolled is a lane with an unrolled loop. A break stops the loop's queue for ever, so each input
// has its own queues.
type unrolled struct {
	lane        *lane
	main, q, on *ringed
	d           []byte // the data in front of the pool
	want        uint64
	broken      bool
}

func (e *end) unrolled() *unrolled {
	e.t.Helper()
	u := &unrolled{lane: e.lane(starterBlocks+UnrolledBlocks+UnrolledOnBlocks, LoopData), d: make([]byte, LoopPool)}
	u.main = u.lane.queue("main", 0, verbs.RingInit{Blocks: starterBlocks})
	return u
}

// start makes the loop and starts it with a random input.
func (u *unrolled) start(rnd *rand.Rand, id int) {
	u.lane.t.Helper()
	u.q = u.lane.queue("unrolled", 0, verbs.RingInit{Blocks: UnrolledBlocks, Managed: true})
	u.on = u.lane.queue("on", UnrolledOnBlocks, verbs.RingInit{Blocks: UnrolledOnBlocks, Managed: true})
	pool := redn.NewPool(u.lane.data.At(LoopPool, LoopData-LoopPool))
	must(u.lane.t, Unrolled(pool, u.q.Queue, u.on.Queue, u.lane.data))
	u.q.Append(sendring.Entry{Op: sendring.Send}) // is executed if no break stops the queue
	u.main.Enable(u.q.Queue)
	u.want, u.broken = UnrolledInput(rnd, u.d)
	must(u.lane.t, u.lane.mr.WriteAt(append(u.d, pool.Image()...), u.lane.dataAt()))
	u.lane.tells(u.q, id)
	u.lane.load(u.q, u.on, u.main)
}

// executed waits until the loop has executed the expected number of iterations, want. Each
// iteration completes one request of the queue on.
func (u *unrolled) executed() {
	u.lane.t.Helper()
	for range u.want {
		if wc := nextOf(u.lane.t, u.lane.end, u.on.cq); wc.Status != verbs.Success {
			u.lane.t.Fatalf("an iteration ends with %q", wc.Status)
		}
	}
}

// pause lets the NIC execute some requests of the queue main, and a SEND that tells the test when
// they are complete. If the break has failed to stop the loop, the loop executes further iterations
// in this time, and check notices them.
func (u *unrolled) pause(id int) {
	u.lane.t.Helper()
	for range pauseCopies {
		u.main.Move(u.lane.data.At(loopWord, 8), u.lane.data.At(loopPointer, 8))
	}
	u.main.Append(sendring.Entry{Op: sendring.Send})
	u.lane.tells(u.main, id)
	u.lane.load(u.main)
}

// check destroys the loop and compares its result.
func (u *unrolled) check(run int) {
	u.lane.t.Helper()
	u.lane.destroy(u.on)
	u.lane.destroy(u.q)
	must(u.lane.t, u.lane.mr.ReadAt(u.d, u.lane.dataAt()))
	if got := LoopEnd(u.d); got != u.want {
		u.lane.t.Fatalf("run %d: %d iterations, want %d", run, got, u.want)
	}
}

// testUnrolledLoop runs unrolled loops, some of which end by a break, and compares the results with
// those of the same loop in Go.
func testUnrolledLoop(t *testing.T, w *World) {
	a, _ := w.ends(t)
	lanes := lanesOf(a, (*end).unrolled)
	rnd := rand.New(rand.NewPCG(5, 6))
	for run := 0; run < Tries(100_000, 12*ringLanes); run += ringLanes {
		for i, u := range lanes {
			u.start(rnd, i)
		}
		for i, u := range lanes {
			u.executed()
			u.pause(ringLanes + i)
		}
		told := ringLanes
		for _, u := range lanes {
			if !u.broken {
				told++
			}
		}
		for _, id := range a.told(told) {
			if id < ringLanes && lanes[id].broken {
				t.Fatalf("run %d: a loop with a break comes to its end", run+int(id))
			}
		}
		for i, u := range lanes {
			u.check(run + i)
		}
	}
}
