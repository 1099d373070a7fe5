// Package audit checks a Sherman tree through one of its clients. It gives package check the
// client's READs.
package audit

import (
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Locks lists the held locks of all servers.
func Locks(c *sherman.Client, deadline clock.Time) ([]sherman.LockState, error) {
	var out []sherman.LockState
	for i := range c.Super().Servers {
		list, err := c.Locks(i, deadline)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// Alive reports whether the owner of a lock can still release the lock, as far as the memory server
// knows. An owner that was fenced or that has no connection cannot.
func Alive(l *sherman.LockState) bool { return !l.Holder.Fenced && l.Holder.QPs > 0 }

// Config returns the configuration with which a client checks the whole tree. The caller must set
// Unreachable, HalfSplits and DeadLocks. They say how many traces of unfinished changes the check
// accepts. Clients leave such traces while they work, and when they die.
func Config(c *sherman.Client, deadline clock.Time) (check.Config, error) {
	cfg := check.Config{Super: c.Super(), Read: func(a layout.Addr, b []byte) error { return c.ReadPage(a, b, deadline) }}
	cfg.End = func(server int) (uint64, error) { return c.AllocEnd(server, deadline) }
	var err error
	if cfg.Root, err = c.Root(deadline); err != nil {
		return cfg, err
	}
	for i := range cfg.Super.Servers {
		end, err := c.AllocEnd(i, deadline)
		if err != nil {
			return cfg, err
		}
		cfg.Ends = append(cfg.Ends, end)
	}
	locks, err := Locks(c, deadline)
	for i := range locks {
		l := &locks[i]
		cfg.Locks = append(cfg.Locks, check.Lock{Server: l.Server, Index: l.Index, Tag: l.Tag, Alive: Alive(l)})
	}
	return cfg, err
}
