package plugin

import (
	"errors"
	"net/http"
	"sync"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store/kv"
)

// clients opens clients of one verbs context: each with queue pairs of its own, or several that
// share them.
type clients struct {
	cfg clover.Config
	// share is how many clients share queue pairs; 0 or 1: each client has its own.
	share int

	mu     sync.Mutex // guards the fields below
	opened int
	groups []*clover.Group
}

// checkShare reports whether n clients can share a queue pair.
func checkShare(n int) error {
	if n < 0 || n > clover.MaxGroup {
		return control.Errorf(http.StatusBadRequest, "%d clients on a queue pair: want 0 to %d", n, clover.MaxGroup)
	}
	return nil
}

// Open opens the next client.
func (c *clients) Open(deadline clock.Time) (kv.Store, error) {
	s, err := c.open(deadline)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *clients) open(deadline clock.Time) (*clover.Client, error) {
	if c.share < 2 {
		return clover.Open(c.cfg, deadline)
	}
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	return g.Open(deadline)
}

// group returns the group that the next client joins.
func (c *clients) group() (*clover.Group, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened%c.share == 0 {
		g, err := clover.NewGroup(c.cfg, c.share)
		if err != nil {
			return nil, err
		}
		c.groups = append(c.groups, g)
	}
	c.opened++
	return c.groups[len(c.groups)-1], nil
}

// Close ends the groups; their clients are closed.
func (c *clients) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, g.Close())
	}
	c.groups = nil
	return errors.Join(errs...)
}
