package memcable

import (
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Waiter waits for frames on memory ports. It blocks on channels, so it is durably blocked in the
// sense of testing/synctest. One goroutine waits at a time.
type Waiter struct {
	ports  []*Port
	ring   chan struct{} // frames came or a port closed; capacity 1
	woken  chan struct{} // Wake was called; capacity 1
	timer  *time.Timer   // limits Wait; nil until it is used for the first time
	closed atomic.Bool
}

var _ packetio.Waiter = (*Waiter)(nil)

// NewWaiter returns a waiter over ports.
func NewWaiter(ports ...*Port) *Waiter {
	w := &Waiter{ports: ports, ring: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	for _, p := range ports {
		p.in.attach(w.ring)
	}
	return w
}

// Wait blocks until a port has frames, Wake, or d. A closed waiter or port ends it with ErrClosed.
func (w *Waiter) Wait(d time.Duration) error {
	if done, err := w.check(); done || d == 0 {
		return err
	}
	var expired <-chan time.Time
	if d > 0 {
		if w.timer == nil {
			w.timer = time.NewTimer(d)
		} else {
			w.timer.Reset(d)
		}
		defer w.timer.Stop()
		expired = w.timer.C
	}
	for {
		select {
		case <-w.ring: // maybe stale: the frames may have been received since
			if done, err := w.checkPorts(); done {
				return err
			}
		case <-w.woken:
			_, err := w.checkPorts()
			return err
		case <-expired:
			return nil
		}
	}
}

// check reports whether Wait is over now.
func (w *Waiter) check() (bool, error) {
	select {
	case <-w.woken:
		_, err := w.checkPorts()
		return true, err
	default:
		return w.checkPorts()
	}
}

func (w *Waiter) checkPorts() (bool, error) {
	if w.closed.Load() {
		return true, ErrClosed
	}
	for _, p := range w.ports {
		switch ready, closed := p.in.state(); {
		case closed:
			return true, ErrClosed
		case ready:
			return true, nil
		}
	}
	return false, nil
}

// Wake ends the current or the next Wait.
func (w *Waiter) Wake() {
	select {
	case w.woken <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Close ends every Wait from now on.
func (w *Waiter) Close() error {
	if !w.closed.Swap(true) {
		for _, p := range w.ports {
			p.in.detach(w.ring)
		}
	}
	w.Wake()
	return nil
}
