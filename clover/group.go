package clover

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/qpshare"
)

// MaxGroup is the largest number of clients that share queue pairs.
const MaxGroup = 256

// Group is a set of clients of one application that share one queue pair to each memory server, as
// the threads of the published system do. Each client has its own connection to the metadata
// server. Any thread may call the methods of a Group, but only one thread uses each client.
type Group struct {
	cfg Config
	hub *qpshare.Hub
}

// NewGroup makes a group for up to n clients. It opens no client.
func NewGroup(cfg Config, n int) (*Group, error) {
	if n < 1 || n > MaxGroup {
		return nil, fmt.Errorf("%d clients on one queue pair: want 1 to %d", n, MaxGroup)
	}
	hub, err := qpshare.New(qpshare.Config{Context: cfg.Context, Manager: cfg.Manager, Members: n, Shared: []string{memservice.Service}})
	if err != nil {
		return nil, err
	}
	return &Group{cfg: cfg, hub: hub}, nil
}

// Open opens a new client of the group, like clover.Open.
func (g *Group) Open(deadline clock.Time) (*Client, error) {
	m, err := g.hub.Join()
	if err != nil {
		return nil, err
	}
	cfg := g.cfg
	cfg.Context, cfg.Manager, cfg.leave = m, m, m.Close
	cfg.device, cfg.dialer = g.cfg.Context, g.cfg.Manager
	c, err := Open(cfg, deadline)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return c, nil
}

// Close ends the connections. The caller has closed all clients of the group.
func (g *Group) Close() error { return g.hub.Close() }
