package switchd

import (
	"errors"
	"sync"
	"sync/atomic"
)

// maxCommands is how many functions may wait for the loop at a time.
const maxCommands = 256

// ErrStopped is returned for commands after the daemon's loop has ended.
var ErrStopped = errors.New("the switch is stopping")

// errBusy is returned for a command if maxCommands others already wait.
var errBusy = errors.New("too many commands wait for the switch; try again")

// commands holds functions of other goroutines. The loop runs them between two rounds.
type commands struct {
	wake func() // makes the loop stop waiting for frames
	// pending is true if list is not empty. The loop reads it in every round, without taking the
	// lock.
	pending atomic.Bool
	mu      sync.Mutex
	list    []func()
	stopped bool
}

// Do makes the loop run f between two rounds, and returns when f has returned. The error is
// ErrStopped or errBusy.
func (c *commands) Do(f func()) error {
	done := make(chan struct{})
	c.mu.Lock()
	switch {
	case c.stopped:
		c.mu.Unlock()
		return ErrStopped
	case len(c.list) >= maxCommands:
		c.mu.Unlock()
		return errBusy
	}
	c.list = append(c.list, func() {
		defer close(done)
		f()
	})
	c.pending.Store(true)
	c.mu.Unlock()
	c.wake()
	<-done
	return nil
}

// Try makes the loop run f like Do, and returns the error of f.
func (c *commands) Try(f func() error) (err error) {
	if derr := c.Do(func() { err = f() }); derr != nil {
		return derr
	}
	return err
}

// take removes and returns the waiting functions. Only the loop calls it.
func (c *commands) take() []func() {
	if !c.pending.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	c.pending.Store(false)
	return list
}

// refuse makes Do return ErrStopped from now on.
func (c *commands) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}
