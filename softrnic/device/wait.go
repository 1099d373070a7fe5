package device

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// waiter is a blocked application.
type waiter struct {
	cond   binding.Condition
	result chan error // capacity 1
	timer  *time.Timer
}

// maxFreeWaiters bounds the waiters that are kept for later.
const maxFreeWaiters = 256

// await is a hybrid wait: one application at a time polls the port itself for the spin time; after that, and if
// another one polls already, it blocks until whoever makes progress wakes it.
func (d *Device) await(cond binding.Condition, deadline clock.Time) error {
	start := d.enter()
	if cond.Ready(d.e) {
		d.leave()
		return nil
	}
	spin := d.spin > 0 && !d.spinner && !d.dead && !d.crowd.skip()
	if !spin {
		return d.park(cond, deadline) // leaves
	}
	d.setSpinner(true)
	end := start.Add(d.spin)
	for {
		now := d.clock.Now()
		found := d.progress()
		switch {
		case cond.Ready(d.e):
			d.crowd.gone()
			d.endSpin()
			d.leave()
			return nil
		case d.dead || now >= end && !found || now >= deadline:
			d.endSpin()
			return d.park(cond, deadline)
		case found:
			end = now.Add(d.spin) // the link is alive: what is waited for may be next
		}
		d.idle = !found
		d.leave()
		if after := d.enter(); !found && after.Sub(now) > crowdedStep {
			d.crowd.found()
			end = after // one more look, and then sleep
		}
	}
}

func (d *Device) setSpinner(on bool) {
	d.spinner = on
	d.polling.Store(on)
}

// endSpin gives up polling. Those who are blocked need the progress goroutine from here on.
func (d *Device) endSpin() {
	d.setSpinner(false)
	if len(d.waiting) > 0 {
		d.resume()
	}
}

// park blocks until cond or the deadline. It is called inside of enter and leaves.
func (d *Device) park(cond binding.Condition, deadline clock.Time) error {
	switch {
	case d.dead:
		d.leave()
		return verbs.ErrClosed
	case d.clock.Now() >= deadline:
		// A caller that only looks still sees what has arrived.
		d.progress()
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
		d.resume()
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

// unpark takes w out of the list after its deadline. A result that came at the same moment wins.
func (d *Device) unpark(w *waiter) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.waiting, w)
	if i < 0 {
		return <-w.result
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	return verbs.ErrTimeout
}

func (d *Device) newWaiter(cond binding.Condition) *waiter {
	if n := len(d.free); n > 0 {
		w := d.free[n-1]
		d.free = d.free[:n-1]
		w.cond = cond
		return w
	}
	w := &waiter{cond: cond, result: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

func (d *Device) recycle(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.cond = nil
	if len(d.free) < maxFreeWaiters {
		d.free = append(d.free, w)
	}
}
