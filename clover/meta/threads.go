package meta

import (
	"fmt"
	"sync"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// With Config.Threads the server has request threads beside the main thread, which runs Serve. A
// connection belongs to one request thread, which takes the requests from its completion queue. The
// tables have one owner at a time: the main thread, or, while the main thread waits for a memory
// server or for work, the request threads, one after the other. A request thread answers a request
// itself if the tables are free and the request needs no memory server (see quick): it gives out
// nodes without waiting for the headers that the main thread reads. All other requests go to the
// main thread in the order of their arrival. Reports always go to the main thread: a request thread
// only puts them down and answers. So the main thread finds the keys and chains after a wait as
// they were before, and collects reports only between two of its steps: a chain that it has
// followed to the end was followed after the report.
//
// The requests of a connection are executed in the order of their arrival: while one of them waits
// for the main thread, those behind it do, too. While the main thread executes a request of a
// client, it also executes requests of the same client from other connections, later.

// MaxThreads bounds Config.Threads.
const MaxThreads = 16

// maxReports bounds the reports that wait for the main thread. While there are as many, further
// ones wait in the queue of requests, unanswered.
const maxReports = 4096

// thread takes the requests of a part of the connections.
type thread struct {
	cq  verbs.CQ
	wcs [64]verbs.WC
}

// job is a request in receive i, of n bytes, that waits for the main thread.
type job struct {
	c    *conn
	i, n int
}

// handoff is what the main thread and the request threads pass to each other.
type handoff struct {
	s    *Server
	gate verbs.Gate // at which the main thread waits for jobs and reports
	// The owner of the tables also owns these: serving is the client whose request the main thread
	// executes; 0: none, or one without a number. reports wait for the main thread.
	serving uint32
	reports []rpc.Request

	mu sync.Mutex // guards the fields below, and the tables while lent is true; no thread waits with it
	// lent: the request threads may use the tables.
	lent    bool
	jobs    []job
	running int   // request threads
	stopped bool  // the request threads are to end
	failed  error // of a request thread
}

// lend lets the request threads use the tables until the main thread calls regain. The main thread
// first answers those of the oldest waiting requests that need no memory server. It leaves those that
// come meanwhile: clients that send faster than it answers must not keep it from its own work.
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
	h.lent = true
	h.mu.Unlock()
}

// regain ends lend.
func (s *memories) regain() {
	if h := s.hand; h != nil {
		h.mu.Lock()
		h.lent = false
		h.mu.Unlock()
	}
}

// pop takes the oldest job.
func (h *handoff) pop() (j job, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.jobs) == 0 {
		return j, false
	}
	j = h.jobs[0]
	h.jobs = h.jobs[1:]
	return j, true
}

// add queues a job. The caller holds mu.
func (h *handoff) add(j job) {
	j.c.queued.Add(1)
	h.jobs = append(h.jobs, j)
	h.gate.Open()
}

// waiting reports whether there is work for the main thread, which calls it, and the error of a
// thread that has failed.
func (h *handoff) waiting() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)+len(h.reports) > 0, h.failed
}

// serveThreads is serve with request threads: the work of the main thread.
func (s *Server) serveThreads() error {
	h := &handoff{s: s, gate: s.rt.NewGate(), running: len(s.front.threads)}
	s.hand = h
	for i, t := range s.front.threads {
		s.rt.Go(fmt.Sprintf("requests%d", i), func() { h.work(t) })
	}
	defer h.stop()
	for {
		for range recvs {
			h.drain()
			j, ok := h.pop()
			if !ok {
				break
			}
			s.request(j.c, j.i, j.n)
			h.serving = 0
			h.end(j)
		}
		s.advance(false)
		more, err := h.waiting()
		now := s.rt.Now()
		switch {
		case err != nil:
			return err
		case s.front.over():
			return verbs.ErrClosed
		case s.deposed:
			return errDeposed
		case now >= s.keepAt:
			s.keepAt = now.Add(keepEvery)
			h.drain()
			s.keep(now)
		}
		if more || len(s.walk.hints) > 0 {
			continue
		}
		s.lend()
		_ = h.gate.Wait(s.keepAt) // an error means that it is time for keep
		s.regain()
	}
}

// stop waits until the request threads have ended.
func (h *handoff) stop() {
	for {
		h.mu.Lock()
		h.stopped = true
		n := h.running
		h.mu.Unlock()
		if n == 0 {
			return
		}
		h.s.rt.Sleep(acceptPause)
	}
}

// drain collects the reports that the request threads have taken.
func (h *handoff) drain() {
	for i := range h.reports {
		h.s.gather(&h.reports[i])
	}
	h.reports = h.reports[:0]
}

// end ends a job: its receive is posted again.
func (h *handoff) end(j job) {
	_ = h.s.front.post(j.i) // if it fails, the server's NIC is gone
	j.c.queued.Add(-1)
}

// work is a request thread.
func (h *handoff) work(t *thread) {
	s := h.s
	for {
		left := s.front.left(t)
		n, err := t.cq.Poll(t.wcs[:])
		for i := range n {
			s.take(&t.wcs[i], h.accept)
		}
		if err == nil && n < len(t.wcs) {
			s.front.bury(left)
		}
		if n > 0 && s.cfg.Pace != nil {
			s.cfg.Pace(n)
		}
		if err == nil && n == 0 {
			if err = t.cq.Wait(s.rt.Now().Add(keepEvery)); isTimeout(err) {
				err = nil
			}
		}
		if !h.goesOn(err) {
			return
		}
	}
}

// goesOn reports whether a request thread that has met err is to go on.
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

// accept takes a request on a request thread: it answers the request, or hands it to the main
// thread. It reports whether the receive can be posted again.
func (h *handoff) accept(c *conn, i, n int) bool {
	s := h.s
	r, ok := s.parse(i, n)
	a := rpc.Answer{Seq: r.Seq}
	var done, answered bool
	h.mu.Lock()
	if ok && h.lent && c.queued.Load() == 0 {
		done, answered = h.quick(&r, &a)
	}
	if !done {
		h.add(job{c, i, n})
	} else if answered {
		s.stamp(&a)
	}
	h.mu.Unlock()
	if answered {
		s.send(c, &r, &a)
	}
	return done
}

// quick executes a request if that needs no memory server, and no table but those that the main
// thread looks at again after a wait: of free and of held nodes, and what is known of the client. It
// reports whether it has, and whether there is an answer. The caller owns the tables.
func (h *handoff) quick(r *rpc.Request, a *rpc.Answer) (done, answered bool) {
	s := h.s
	cl := s.clients[r.Client]
	known := cl != nil && !cl.stale && !cl.ended
	switch r.Op {
	case rpc.OpAlloc, rpc.OpQuery, rpc.OpGC, rpc.OpBeat, rpc.OpReturn, rpc.OpBye:
	case rpc.OpReports:
		done = h.report(r)
		if done {
			s.stats.Requests++
		}
		return done, done
	default:
		return false, false
	}
	if r.Client == h.serving || r.Op == rpc.OpQuery && s.void {
		return false, false
	}
	if s.late(r) {
		s.stats.Requests++
		s.stats.Refused++
		return true, false
	}
	if known && r.Op == rpc.OpAlloc && !s.allocFree(cl, r, a) {
		return false, false
	}
	if known && r.Op == rpc.OpGC && !h.report(r) {
		return false, false
	}
	s.stats.Requests++
	if !known {
		a.Status = rpc.Unknown
		return true, true
	}
	s.hear(cl, r)
	switch r.Op {
	case rpc.OpAlloc, rpc.OpGC:
	default:
		s.dispatch(cl, r, a)
	}
	return true, true
}

// tryQuick executes a job on the main thread if that is quick.
func (h *handoff) tryQuick(j job) bool {
	r, ok := h.s.parse(j.i, j.n)
	if !ok {
		return false
	}
	a := rpc.Answer{Seq: r.Seq}
	done, answered := h.quick(&r, &a)
	if answered {
		h.s.answer(j.c, &r, &a)
	}
	if done {
		h.end(j)
	}
	return done
}

// report puts a report down for the main thread, unless too many wait.
func (h *handoff) report(r *rpc.Request) bool {
	if len(h.reports) >= maxReports {
		return false
	}
	h.reports = append(h.reports, *r)
	h.gate.Open()
	return true
}
