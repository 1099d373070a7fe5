package device

import (
	"errors"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

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

// await waits for cond, first by polling and then by blocking. One application thread at a time is
// the leader: it polls the port for all waiting threads, for the spin time. The other threads
// block, and so do patient threads. The leader wakes them when their conditions are true. When its
// own condition is true, the leader makes a waiting thread that is not patient the next leader.
// After the spin time the leader blocks, too. The progress goroutine serves the port while there is
// no leader.
func (d *Device) await(cond verbsengine.Condition, deadline clock.Time) error {
	d.enter()
	d.emptyPolls = 0
	if cond.Ready(d.e) {
		d.leave()
		return nil
	}
	lead := d.spin > 0 && !patient(cond) && !d.spinner && !d.dead && d.pace.Begin()
	if lead {
		d.setSpinner(true)
	}
	for {
		if lead && d.lead(cond, deadline) {
			d.leave()
			return nil
		}
		err := d.park(cond, deadline) // park calls leave
		if !errors.Is(err, errLead) {
			return err
		}
		lead = true // handOver has left spinner set for this thread
		d.enter()
	}
}

// lead polls the port until cond is true, or until the spin time is over. It returns whether cond
// is true. The caller has called enter and has not called leave. lead calls leave and enter between
// the polls.
func (d *Device) lead(cond verbsengine.Condition, deadline clock.Time) bool {
	end := d.clock.Now().Add(d.spin)
	for {
		now := d.clock.Now()
		found := d.progress(now)
		switch {
		case cond.Ready(d.e):
			d.pace.Found()
			d.handOver()
			return true
		case d.dead || now >= deadline:
			d.handOver()
			return false
		case found:
			end = now.Add(d.spin) // frames arrive: the next one may make cond true
		case now >= end:
			d.setSpinner(false)
			return false
		}
		d.leave()
		crowded := !found && d.pace.Pause() // only the leader, which polls for all waiting threads, uses pace
		d.enter()
		if crowded {
			end = now // the machine is busy: poll once more, then block
		}
	}
}

func (p *polls) setSpinner(on bool) {
	p.spinner = on
	p.polling.Store(on)
}

// handOver makes another waiting thread the leader, which polls the port for all waiting threads. A
// thread whose condition is patient never becomes the leader (see patient). If all waiting threads
// are of this kind, there is no leader.
func (d *Device) handOver() {
	d.notify() // waiters whose condition is true need not become leader
	// The thread at the end of the list was the last one to run, so its memory is still in the
	// processor's cache.
	for i, w := range slices.Backward(d.waiting) {
		if !patient(w.cond) {
			d.waiting = slices.Delete(d.waiting, i, i+1)
			w.result <- errLead
			return
		}
	}
	d.setSpinner(false)
}

// park blocks until cond is true, the deadline has come (ErrTimeout), the device is dead
// (ErrClosed), or this thread must become the leader (errLead). The caller has called enter; park
// calls leave.
func (d *Device) park(cond verbsengine.Condition, deadline clock.Time) error {
	switch {
	case d.dead:
		d.leave()
		return verbs.ErrClosed
	case d.clock.Now() >= deadline:
		// The deadline may have passed while this thread did not run. Frames that have arrived
		// meanwhile are handled first: they may make cond true.
		d.progress(d.clock.Now())
		ready := cond.Ready(d.e)
		d.leave()
		if ready {
			return nil
		}
		return verbs.ErrTimeout
	}
	w := d.newWaiter(cond)
	d.waiting = append(d.waiting, w)
	if !d.spinner {
		d.kick.raise()
	}
	d.leave()

	var expired <-chan time.Time
	if deadline != clock.Never {
		w.timer.Reset(d.clock.Until(deadline))
		expired = w.timer.C
	}
	var err error
	select {
	case err = <-w.result:
	case <-expired:
		err = d.unpark(w)
	}
	w.timer.Stop()
	d.recycle(w)
	return err
}

// unpark removes w from the list of waiters after its deadline. If w has got a result at the same
// moment, unpark returns this result. It may be errLead: then this thread must become the leader.
func (d *Device) unpark(w *waiter) error {
	d.mu.Lock()
	defer d.link.release(&d.mu)
	i := slices.Index(d.waiting, w)
	if i < 0 {
		return <-w.result
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	return verbs.ErrTimeout
}

func (l *waits) newWaiter(cond verbsengine.Condition) *waiter {
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

func (d *Device) recycle(w *waiter) {
	d.mu.Lock()
	defer d.link.release(&d.mu)
	w.cond = nil
	if len(d.free) < maxFreeWaiters {
		d.free = append(d.free, w)
	}
}
