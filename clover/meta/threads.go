package meta

import (
	"fmt"
	"sync"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// With Config.Threads the server has request threads beside the main thread, which runs Serve. Each
// connection belongs to one request thread, which receives its requests through the thread's
// completion queue.
//
// The tables have one owner at a time. Usually that is the main thread. While the main thread waits
// for a memory server or for work, it lends the tables to the request threads, which use them one
// after the other. A request thread answers a request itself if the tables are lent and the request
// needs no memory server (see quick). So it gives out nodes without waiting for the headers and
// records that the main thread reads and writes. All other requests go to the main thread, in the
// order of their arrival.
//
// Reports always go to the main thread: a request thread only stores and answers them. So after a
// wait the main thread finds the keys and chains as they were before the wait. The main thread
// collects reports only between two of its steps. Therefore, if it has followed a chain to its end
// in a step, it has done so after all reports that it has collected.
//
// The requests of a connection are executed in the order of their arrival: if one of them waits for
// the main thread, so do the later ones. While the main thread executes a request of a client,
// requests of the same client from other connections wait for the main thread, too.

// MaxThreads is the greatest value of Config.Threads.
const MaxThreads = 16

// maxReports is how many reports may wait for the main thread. Further reports wait, unanswered, in
// the queue of requests.
const maxReports = 4096

// handoff is what the main thread and the request threads pass to each other.
type handoff struct {
	s    *Server
	gate verbs.Gate // the main thread waits at it for jobs and reports
	// The next two fields belong to the thread that may use the tables: the main thread or, while
	// lent is true, a thread that holds mu. serving is the number of the client whose request the
	// main thread executes; 0 means none, or a client without a number. reports wait for the main
	// thread.
	serving uint32
	reports []rpc.Request

	// mu guards the fields below, and the tables while lent is true. A thread that holds mu does
	// not wait for anything.
	mu sync.Mutex
	// lent is true while the request threads may use the tables.
	lent    bool
	jobs    []calls.Request // requests that wait for the main thread
	running int             // how many request threads run
	stopped bool            // true if the request threads must end
	failed  error           // the error of a request thread that has failed
}

// lend lets the request threads use the tables until the main thread calls regain. First the main
// thread answers the oldest requests that wait for it, up to the first one that needs a memory
// server. It does not answer requests that arrive during lend: clients that send faster than the
// main thread answers must not keep it from its other work.
func (s *memories) lend() {
	h := s.hand
	if h == nil {
		return
	}
	h.mu.Lock()
	for n := len(h.jobs); n > 0; n-- {
		j := h.jobs[0]
		h.mu.Unlock()
		quick := h.tryQuick(j)
		if quick {
			h.pop()
		}
		h.mu.Lock()
		if !quick {
			break
		}
	}
	if h.lent {
		panic("the metadata server's tables are lent already")
	}
	h.lent = true
	h.mu.Unlock()
}

// regain gives the tables back to the main thread.
func (s *memories) regain() {
	if h := s.hand; h != nil {
		h.mu.Lock()
		if !h.lent {
			panic("the metadata server's tables are not lent")
		}
		h.lent = false
		h.mu.Unlock()
	}
}

func (h *handoff) pop() (j calls.Request, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.jobs) == 0 {
		return j, false
	}
	j = h.jobs[0]
	h.jobs = h.jobs[1:]
	return j, true
}

// add puts a job into the queue. The caller holds mu.
func (h *handoff) add(j calls.Request) {
	j.Hold()
	h.jobs = append(h.jobs, j)
	h.gate.Open()
}

// waiting reports whether jobs or reports wait for the main thread, which calls it. The error is
// that of a request thread that has failed.
func (h *handoff) waiting() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)+len(h.reports) > 0, h.failed
}

// serveThreads starts the request threads. Then it is the loop of the main thread.
func (s *Server) serveThreads() error {
	h := &handoff{s: s, gate: s.mem.rt.NewGate(), running: len(s.front.Threads())}
	s.mem.hand = h
	for i, t := range s.front.Threads() {
		s.mem.rt.Go(fmt.Sprintf("requests%d", i), func() { h.work(t) })
	}
	defer h.stop()
	for {
		for range recvs {
			h.drain()
			j, ok := h.pop()
			if !ok {
				break
			}
			s.request(j)
			h.serving = 0
			h.end(j)
		}
		s.chains.tidy.answered = 0
		due := s.chains.tidyDue(s.mem.rt.Now())
		if due {
			s.chains.advance(false)
		}
		more, err := h.waiting()
		if err == nil {
			err = s.keepIfDue()
		}
		if err != nil {
			return err
		}
		if more || due {
			continue
		}
		s.mem.lend()
		_ = h.gate.Wait(s.wakeAt()) // an error means that it is time for other work
		s.mem.regain()
	}
}

// stop tells the request threads to end, and waits until they have.
func (h *handoff) stop() {
	for {
		h.mu.Lock()
		h.stopped = true
		n := h.running
		h.mu.Unlock()
		if n == 0 {
			return
		}
		h.s.mem.rt.Sleep(waitPause)
	}
}

// drain collects the reports that the request threads have stored. The main thread calls it when it
// owns the tables.
func (h *handoff) drain() {
	for i := range h.reports {
		h.s.gather(&h.reports[i])
	}
	h.reports = h.reports[:0]
}

// end is called when a job is done: it posts the job's receive again.
func (h *handoff) end(j calls.Request) {
	h.s.front.Done(j)
	j.Release()
}

// work is the loop of a request thread.
func (h *handoff) work(t *calls.Thread) {
	s := h.s
	for {
		n, err := t.Poll(h.accept)
		if n > 0 && s.mem.cfg.Pace != nil {
			s.mem.cfg.Pace(n)
		}
		if err == nil && n == 0 {
			err = t.Wait(s.mem.rt.Now().Add(keepEvery))
		}
		if !h.goesOn(err) {
			return
		}
	}
}

// goesOn reports whether a request thread continues after err, which may be nil.
func (h *handoff) goesOn(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && !h.stopped {
		return true
	}
	h.running--
	if err != nil {
		h.failed = err
		h.gate.Open()
	}
	return false
}

// accept is called by a request thread with a request: it answers the request, or makes it a job
// for the main thread. It returns true if the receive can be posted again.
func (h *handoff) accept(in calls.Request) bool {
	s := h.s
	r, ok := s.parse(in)
	a := rpc.Answer{Seq: r.Seq}
	var done, answered bool
	h.mu.Lock()
	if ok && h.lent && !in.Held() {
		done, answered = h.quick(&r, &a)
	}
	if !done {
		h.add(in)
	} else if answered {
		s.stamp(&a)
	}
	h.mu.Unlock()
	if answered {
		s.send(in.Conn, &r, &a)
	}
	return done
}

// quick executes a request if two conditions hold: no memory server is needed for it, and it
// changes only tables that the main thread reads again after a wait (free nodes, held nodes, and
// what the server knows of the client). done is true if quick has executed the request, or has
// dropped it as a late copy. answered is true if a is the answer to send. The caller owns the
// tables.
func (h *handoff) quick(r *rpc.Request, a *rpc.Answer) (done, answered bool) {
	s := h.s
	cl := s.pool.clients[r.Client]
	known := cl != nil && !cl.stale && !cl.ended
	switch r.Op {
	case rpc.OpAlloc, rpc.OpQuery, rpc.OpGC, rpc.OpBeat, rpc.OpReturn, rpc.OpBye:
	case rpc.OpReports:
		done = h.report(r)
		if done {
			s.mem.stats.Requests++
		}
		return done, done
	default:
		return false, false
	}
	if r.Client == h.serving || r.Op == rpc.OpQuery && (s.pool.void || s.chains.keys[r.Key].absent()) {
		return false, false
	}
	if s.late(r) {
		s.mem.stats.Requests++
		s.mem.stats.Refused++
		return true, false
	}
	if known && r.Op == rpc.OpAlloc && !s.pool.allocFree(cl, r, a) {
		return false, false
	}
	if known && r.Op == rpc.OpGC && !h.report(r) {
		return false, false
	}
	s.mem.stats.Requests++
	if !known {
		a.Status = rpc.Unknown
		return true, true
	}
	s.hear(cl, r)
	switch r.Op {
	case rpc.OpAlloc:
	case rpc.OpGC:
		if r.Want > 0 {
			s.pool.refill(cl, r, a)
		}
	default:
		s.dispatch(cl, r, a)
	}
	return true, true
}

// tryQuick executes job j on the main thread if the method quick can execute its request. It
// returns false if job j must be executed otherwise.
func (h *handoff) tryQuick(j calls.Request) bool {
	r, ok := h.s.parse(j)
	if !ok {
		return false
	}
	a := rpc.Answer{Seq: r.Seq}
	done, answered := h.quick(&r, &a)
	if answered {
		h.s.answer(j.Conn, &r, &a)
	}
	if done {
		h.end(j)
	}
	return done
}

// report stores a report for the main thread. It returns false if too many reports wait.
func (h *handoff) report(r *rpc.Request) bool {
	if len(h.reports) >= maxReports {
		return false
	}
	h.reports = append(h.reports, *r)
	h.gate.Open()
	return true
}
