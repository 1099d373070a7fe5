package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Writers finish the splits that a dead client has left half done, on every level of their path
// from the root.
func TestHalfSplitsOfAllLevelsAreHealed(t *testing.T) {
	left := 0
	for try := range 12 {
		left += halfSplits(t, time.Duration(try)*130*time.Microsecond+time.Millisecond)
	}
	if left == 0 {
		t.Error("no death left a split half done")
	}
}

// halfSplits kills a client at the given time after it has begun to insert. It returns how many
// missing separators other clients have added afterwards.
func halfSplits(t *testing.T, after time.Duration) int {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}, Chunk: 4096})
	h := g.Host("cn0")
	dead, done, found := false, uint64(0), 0
	h.Go("victim", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		g.At(rt.Now().Add(after), func() { dead = true; h.Crash() })
		for !dead && c.Insert(done, value(done, 0), soon(rt)) == nil {
			done++
		}
	})
	g.client("cn1", g.node(sherman.NodeConfig{CacheBytes: -1, Lease: time.Millisecond}), func(c *sherman.Client, rt verbs.Runtime) error {
		for !dead {
			rt.Sleep(time.Microsecond)
		}
		rt.Sleep(time.Millisecond)
		look := func(halves int) (*check.Report, error) {
			cfg, err := audit.Config(c, soon(rt))
			if err != nil {
				return nil, err
			}
			cfg.HalfSplits, cfg.Unreachable, cfg.DeadLocks = halves, -1, -1
			r, err := check.Check(cfg)
			if err == nil {
				err = r.Err()
			}
			return r, err
		}
		before, err := look(-1)
		if err != nil {
			return err
		}
		// the second pass adds the separators for splits that were found while the first pass added
		// others
		for range 2 {
			for k := range done + 1 { // the last one may be the only key of a new page
				if err := c.Upsert(k, value(k, 1), soon(rt)); err != nil {
					return fmt.Errorf("key %d of %d: %w", k, done, err)
				}
			}
		}
		_, err = look(0)
		if found = before.HalfSplits; err != nil {
			return errors.Join(fmt.Errorf("death after %v, %d keys, %d half-done splits", after, done, found), err)
		}
		return nil
	})
	g.run()
	return found
}
