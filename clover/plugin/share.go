package plugin

import (
	"errors"
	"net/http"
	"sync"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// clients opens clients of one verbs context. Each client has queue pairs of its own, or several
// clients share them.
type clients struct {
	cfg clover.Config
	// share is how many clients share queue pairs; 0 or 1 means that each client has its own.
	share int

	mu     sync.Mutex // guards the fields below
	opened int        // how many clients have joined a group
	groups []*clover.Group
}

// checkShare returns an error if o asks clients to share queue pairs, caches or a reporter in a way
// that is not possible, or if o names an unknown mode.
func checkShare(o *store.ClientOptions) error {
	if o.Share < 0 || o.Share > clover.MaxGroup {
		return control.Errorf(http.StatusBadRequest, "%d clients on a queue pair: want 0 to %d", o.Share, clover.MaxGroup)
	}
	for _, of := range []string{o.Cache, o.Reporter} {
		if of != "" && of != store.OfProcess && of != store.OfClient {
			return control.Errorf(http.StatusBadRequest, "cache or reporter of a %.20q: want %s or %s", of, store.OfProcess, store.OfClient)
		}
	}
	if of := o.Mode; of != "" && of != store.ModeFast && of != store.ModePublished {
		return control.Errorf(http.StatusBadRequest, "clients of mode %.20q: want %s or %s", of, store.ModeFast, store.ModePublished)
	}
	return nil
}

// newClients returns the clients of one request to the daemon, none of them open yet. They share
// queue pairs as o says. Unless o says otherwise, they also share a location cache, as the threads
// of one process do. Unless o.Mode is published, they also have Turns, Chase and LazyShortcut
// (clover.Config).
func newClients(cfg clover.Config, o *store.ClientOptions) *clients {
	if o.Cache != store.OfClient {
		cfg.Cache = clover.NewCache(cfg.Cached)
	}
	if o.Mode != store.ModePublished {
		cfg.Turns, cfg.Chase, cfg.LazyShortcut = clover.NewTurns(), true, true
	}
	if o.Reporter == store.OfProcess {
		cfg.Reporter = clover.NewReporter(cfg)
	}
	return &clients{cfg: cfg, share: o.Share}
}

// Open opens one more client. If groups of clients share queue pairs, the client joins the newest
// group. If that group is full, the client is the first one of a new group.
func (c *clients) Open(deadline clock.Time) (kv.Store, error) { return store.Opened(c.open(deadline)) }

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

// Close ends the groups and the reporter. The caller has closed their clients.
func (c *clients) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	if c.cfg.Reporter != nil {
		errs = append(errs, c.cfg.Reporter.Close())
	}
	for _, g := range c.groups {
		errs = append(errs, g.Close())
	}
	c.groups = nil
	return errors.Join(errs...)
}
