package device

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// waiters has the application threads that are blocked in the device. core.mu guards it.
type waiters struct {
	seen uint64 // the engine's Activity when the conditions were last checked
	list []*waiter
	free []*waiter // for reuse
}

// waiter is a blocked thread of an application.
type waiter struct {
	cond   verbsengine.Condition
	result chan error // capacity 1
	timer  *time.Timer
}

// patient reports whether a thread that waits for cond must never become the leader (see await).
// Such a thread waits for long, for example for the next connection request. If it became the
// leader when the wait of another thread ends, the other thread would block in its next wait until
// the leader wakes it. This costs two switches of threads for each wait.
func patient(cond verbsengine.Condition) bool {
	p, ok := cond.(verbsengine.Patient)
	return ok && p.Patient()
}

// maxFreeWaiters is the largest number of waiters kept for reuse.
const maxFreeWaiters = 256

// errLead is the result for a waiter that must become the leader, the thread that polls the port
// for all waiting threads; see await.
var errLead = errors.New("poll the port")

// turns says which thread polls the port. Its core's lock guards spinner.
type turns struct {
	core    *core
	spin    time.Duration    // how long a waiting application polls before it blocks
	spinner bool             // an application thread polls in await
	pace    pollpace.Spinner // pace of the thread that polls in await, which alone uses it
	kick    signal           // ends the pause in which the progress goroutine leaves the port to an application
	// polled counts the polls of completion queues by applications. polling is a copy of spinner that
	// the progress goroutine reads without the lock.
	polled  atomic.Uint64
	polling atomic.Bool
}

// await waits for cond, first by polling and then by blocking. One application thread at a time is
// the leader: it polls the port for all waiting threads, for the spin time. The other threads
// block, and so do patient threads. The leader wakes them when their conditions are true. When its
// own condition is true, the leader makes a waiting thread that is not patient the next leader.
// After the spin time the leader blocks, too. The progress goroutine serves the port while there is
// no leader.
func (t *turns) await(cond verbsengine.Condition, deadline clock.Time) error {
	c := t.core
	c.enter()
	c.empty.n = 0
	if cond.Ready(c.e) {
		c.leave()
		return nil
	}
	lead := t.spin > 0 && !patient(cond) && !t.spinner && !c.ending.dead && t.pace.Begin()
	if lead {
		t.setSpinner(true)
	}
	for {
		if lead && t.lead(cond, deadline) {
			c.leave()
			return nil
		}
		err := t.park(cond, deadline) // park calls leave
		if !errors.Is(err, errLead) {
			return err
		}
		lead = true // handOver has left spinner set for this thread
		c.enter()
	}
}

// lead polls the port until cond is true, or until the spin time is over. It returns whether cond
// is true. The caller has called enter and has not called leave. lead calls leave and enter between
// the polls.
func (t *turns) lead(cond verbsengine.Condition, deadline clock.Time) bool {
	c := t.core
	end := c.clock.Now().Add(t.spin)
	for {
		now := c.clock.Now()
		found := c.progress(now)
		switch {
		case cond.Ready(c.e):
			t.pace.Found()
			t.handOver()
			return true
		case c.ending.dead || now >= deadline:
			t.handOver()
			return false
		case found:
			end = now.Add(t.spin) // frames arrive: the next one may make cond true
		case now >= end:
			t.setSpinner(false)
			return false
		}
		c.leave()
		crowded := !found && t.pace.Pause() // only the leader, which polls for all waiting threads, uses pace
		c.enter()
		if crowded {
			end = now // the machine is busy: poll once more, then block
		}
	}
}

func (t *turns) setSpinner(on bool) {
	t.spinner = on
	t.polling.Store(on)
}

// handOver makes another waiting thread the leader, which polls the port for all waiting threads. A
// thread whose condition is patient never becomes the leader (see patient). If all waiting threads
// are of this kind, there is no leader.
func (t *turns) handOver() {
	c := t.core
	c.notify() // waiters whose condition is true need not become leader
	// The thread at the end of the list was the last one to run, so its memory is still in the
	// processor's cache.
	for i, w := range slices.Backward(c.waiters.list) {
		if !patient(w.cond) {
			c.waiters.list = slices.Delete(c.waiters.list, i, i+1)
			w.result <- errLead
			return
		}
	}
	t.setSpinner(false)
}

// park blocks until cond is true, the deadline has come (ErrTimeout), the device is dead
// (ErrClosed), or this thread must become the leader (errLead). The caller has called enter; park
// calls leave.
func (t *turns) park(cond verbsengine.Condition, deadline clock.Time) error {
	c := t.core
	switch {
	case c.ending.dead:
		c.leave()
		return verbs.ErrClosed
	case c.clock.Now() >= deadline:
		// The deadline may have passed while this thread did not run. Frames that have arrived
		// meanwhile are handled first: they may make cond true.
		c.progress(c.clock.Now())
		ready := cond.Ready(c.e)
		c.leave()
		if ready {
			return nil
		}
		return verbs.ErrTimeout
	}
	w := c.waiters.take(cond)
	c.waiters.list = append(c.waiters.list, w)
	if !t.spinner {
		t.kick.raise()
	}
	c.leave()

	var expired <-chan time.Time
	if deadline != clock.Never {
		w.timer.Reset(c.clock.Until(deadline))
		expired = w.timer.C
	}
	var err error
	select {
	case err = <-w.result:
	case <-expired:
		err = t.unpark(w)
	}
	w.timer.Stop()
	t.recycle(w)
	return err
}

// unpark removes w from the list of waiters after its deadline. If w has got a result at the same
// moment, unpark returns this result. It may be errLead: then this thread must become the leader.
func (t *turns) unpark(w *waiter) error {
	c := t.core
	c.mu.Lock()
	defer c.release()
	i := slices.Index(c.waiters.list, w)
	if i < 0 {
		return <-w.result
	}
	c.waiters.list = slices.Delete(c.waiters.list, i, i+1)
	return verbs.ErrTimeout
}

func (l *waiters) take(cond verbsengine.Condition) *waiter {
	if n := len(l.free); n > 0 {
		w := l.free[n-1]
		l.free = l.free[:n-1]
		w.cond = cond
		return w
	}
	w := &waiter{cond: cond, result: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

func (t *turns) recycle(w *waiter) {
	c := t.core
	c.mu.Lock()
	defer c.release()
	w.cond = nil
	if len(c.waiters.free) < maxFreeWaiters {
		c.waiters.free = append(c.waiters.free, w)
	}
}
