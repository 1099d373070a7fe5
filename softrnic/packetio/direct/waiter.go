package direct

import (
	"sync/atomic"
	"time"
)

// Waiter waits for Wake alone: frames are handled by the threads that have sent them.
type Waiter struct {
	woken  chan struct{} // capacity 1
	timer  *time.Timer   // used by Wait alone
	closed atomic.Bool
}

// NewWaiter returns a waiter.
func NewWaiter() *Waiter {
	w := &Waiter{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// Wait returns when Wake was called since the last Wait returned, or when d has passed; d < 0 means
// no limit, 0 does not wait.
func (w *Waiter) Wait(d time.Duration) error {
	if w.closed.Load() {
		return ErrClosed
	}
	if d == 0 {
		return nil
	}
	var expired <-chan time.Time
	if d > 0 {
		w.timer.Reset(d)
		expired = w.timer.C
		defer w.timer.Stop()
	}
	select {
	case <-w.woken:
	case <-expired:
	}
	return nil
}

// Wake ends the current or the next Wait.
func (w *Waiter) Wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it is woken already
	}
}

// Close makes Wait return ErrClosed from now on.
func (w *Waiter) Close() error {
	w.closed.Store(true)
	w.Wake()
	return nil
}
