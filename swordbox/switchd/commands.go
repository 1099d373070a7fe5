package switchd

import (
	"errors"
	"sync"
	"sync/atomic"
)

// maxCommands is how many functions may wait for the loop.
const maxCommands = 256

// ErrStopped is the error of commands after the daemon's loop has ended.
var ErrStopped = errors.New("the switch is stopping")

// errBusy is the error of a command when maxCommands others wait already.
var errBusy = errors.New("too many commands wait for the switch; try again")

// commands are functions that the loop runs for other goroutines, between two rounds.
type commands struct {
	wake func() // makes the loop stop waiting for packets
	// pending is true when list is not empty; the loop reads it every round without taking the
	// lock.
	pending atomic.Bool
	mu      sync.Mutex
	list    []func()
	stopped bool
}

// Do runs f in the loop, between two rounds, and returns when it is done. The error is ErrStopped
// or errBusy.
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

// take removes the waiting functions and returns them. Loop only.
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
