package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// brokenTree is the error for a defect of the tree at the end of a run.
type brokenTree struct{ err error }

func (b *brokenTree) Error() string { return b.err.Error() }
func (b *brokenTree) Unwrap() error { return b.err }

// judge judges the run, with links that have no faults any more: a last client reads and writes
// every key, and then reads the whole tree. If memory was lost, only the history is checked, and
// how long operations took and whether they were answered.
func (r *treeRun) judge() error {
	e := r.env
	for _, h := range e.rack.Hosts() {
		h.SetFaults(nil)
	}
	if r.trigger != nil {
		r.trigger.left = 0 // the trigger injects no fault any more
	}
	if !r.lost {
		r.env.client("cn3", "judge", r.last)
		if err := e.rack.Run(); err != nil {
			return err
		}
	}
	e.note("%d operations, %d of them ended without an answer, %d found memory gone, %d no page, the longest took %v", r.history.Len(), r.unknown, r.refused, r.full, r.longest)
	r.noteNodes()
	if err := r.history.Check(kv.MostStates); err != nil {
		return err
	}
	calm := len(r.plan.faults) == 0
	switch {
	case r.longest > treePatience+r.slack():
		return fmt.Errorf("an operation with a deadline of %v took %v", treePatience, r.longest)
	case r.unknown > 0 && calm && len(r.plan.rules) == 0:
		return fmt.Errorf("%d operations ended without an answer, and nothing was wrong", r.unknown)
	case r.final == nil:
		return nil
	}
	e.note("%v", r.final)
	return r.verdict()
}

// last runs the last client: it reads and writes every key, and then checks the tree.
func (r *treeRun) last(ctx verbs.Context) error {
	rt := ctx.Runtime()
	n, err := sherman.NewNode(r.nodeConfig())
	if err != nil {
		return err
	}
	// The deadline is long: a server may have accepted the connection of a client that died
	// meanwhile. The server waits for the dead client for some seconds before it accepts this one.
	c, err := n.Open(r.config(r.env.rack.Host("cn3"), ctx), rt.Now().Add(20*treePatience))
	if err != nil {
		return err
	}
	s := kv.Record(c, r.history, r.plan.clients, rt.Now)
	for _, key := range r.keys {
		deadline := rt.Now().Add(20 * treePatience)
		_, err := s.Get(key, nil, deadline)
		value := s.Value(key, r.plan.shape.Value)
		switch {
		case errors.Is(err, kv.ErrNotFound):
			if err = s.Insert(key, value, deadline); r.plan.small && errors.Is(err, kv.ErrFull) {
				r.absent[key], err = true, nil
			}
		case err == nil:
			err = s.Put(key, value, deadline)
		}
		if err = errors.Join(err, s.Err()); err != nil {
			return fmt.Errorf("the last client: key %d: %w", key, err)
		}
	}
	r.final, err = r.readTree(c, rt)
	return errors.Join(err, c.Close())
}

// readTree reads the whole tree and checks its pages, keys and values.
func (r *treeRun) readTree(c *sherman.Client, rt verbs.Runtime) (*check.Report, error) {
	cfg, err := audit.Config(c, rt.Now().Add(time.Minute))
	if err != nil {
		return nil, err
	}
	cfg.Unreachable, cfg.HalfSplits = r.wrecks(), r.wrecks()
	if r.plan.small {
		cfg.HalfSplits = -1 // any number: clients may have found no free page to split a parent
	}
	want := new(check.Content)
	for _, key := range r.keys {
		if !r.absent[key] {
			want.Add(key)
		}
	}
	cfg.Want = want
	cfg.Visit = func(key uint64, value []byte) error {
		_, err := kv.CheckValue(key, value)
		return err
	}
	return check.Check(cfg)
}

// wrecks bounds the pages that may be unreachable, and those that may have no separator: one for
// each operation that was interrupted and, for each client, 2 more and one for each fault that was
// injected. The pages that are counted for each client are those of clients that made a new root at
// the same time.
func (r *treeRun) wrecks() int { return r.unknown + (2+r.injected)*r.plan.clients }

// verdict judges the report on the tree. Owners that are dead may leave locks that no client has
// needed since: at most as many as there are clients, and only if operations were interrupted. Live
// clients may leave none.
func (r *treeRun) verdict() error {
	rep, allowed := r.final, 0
	if r.injected > 0 || r.unknown > 0 {
		allowed = r.plan.clients
	}
	if rep.Dead == rep.Wrong && rep.Dead <= allowed {
		return nil
	}
	if err := rep.Err(); err != nil {
		return &brokenTree{err}
	}
	if alive := rep.Locked - rep.Dead; alive > 0 && r.injected == 0 && r.unknown == 0 {
		return &brokenTree{fmt.Errorf("%d locks are held after all clients have gone", alive)}
	}
	return nil
}

// noteNodes adds the sums of the compute nodes' counters to the report.
func (r *treeRun) noteNodes() {
	var sum sherman.NodeStats
	for _, n := range r.nodes {
		s := n.Stats()
		addCounters(&sum, &s)
	}
	r.env.note("%d locks got, %d by hand-over, %d CAS; %d taken from the dead, %d nodes fenced; %d splits, %d roots, %d separators for others, %d steps right, %d pages read again; %d leaves closed with records, %d pages merged, %d reused, %d searches begun again",
		sum.Acquires, sum.HandOvers, sum.CAS, sum.Recovered, sum.Fenced, sum.Splits, sum.Roots, sum.Healed, sum.Moves, sum.Torn,
		sum.Joined, sum.Merged, sum.Reused, sum.Restarts)
}
