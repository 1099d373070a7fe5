package hostd

import (
	"errors"
	"net/http"
	"sync"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
)

// cloverOpener opens clients of one verbs context: each with queue pairs of its own, or several that share them.
type cloverOpener struct {
	cfg clover.Config
	// share is how many clients share queue pairs; 0 or 1: none do.
	share int

	mu     sync.Mutex // guards what follows
	opened int
	groups []*clover.Group
}

// checkShare says whether so many clients can share a queue pair.
func checkShare(n int) error {
	if n < 0 || n > clover.MaxGroup {
		return control.Errorf(http.StatusBadRequest, "%d clients on a queue pair: want 0 to %d", n, clover.MaxGroup)
	}
	return nil
}

// open opens the next client.
func (o *cloverOpener) open(deadline clock.Time) (*clover.Client, error) {
	if o.share < 2 {
		return clover.Open(o.cfg, deadline)
	}
	g, err := o.group()
	if err != nil {
		return nil, err
	}
	return g.Open(deadline)
}

// group is that of the next client.
func (o *cloverOpener) group() (*clover.Group, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opened%o.share == 0 {
		g, err := clover.NewGroup(o.cfg, o.share)
		if err != nil {
			return nil, err
		}
		o.groups = append(o.groups, g)
	}
	o.opened++
	return o.groups[len(o.groups)-1], nil
}

// close ends the groups; their clients are closed.
func (o *cloverOpener) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, g := range o.groups {
		errs = append(errs, g.Close())
	}
	o.groups = nil
	return errors.Join(errs...)
}
