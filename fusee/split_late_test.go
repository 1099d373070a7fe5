package fusee

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A deadline passes at each task of a client's work on a split, when one of two keys that move has left its
// slot already. The client goes on later, and both keys are in the twin.
func TestADeadlinePassesInTheMiddleOfASplit(t *testing.T) {
	for late := flip; late <= settle; late++ {
		for first := range 2 { // which of the keys has left
			if err := splitLate(t, late, first); err != nil {
				t.Errorf("task %d, key %d has left: %v", late, first, err)
			}
		}
	}
}

func splitLate(t *testing.T, late task, first int) (failed error) {
	s, err := rackfile.Parse([]byte("{name: t, hosts: [{name: \"ms[0-1]\", role: memory}, {name: cn0, role: compute}]}"))
	if err != nil {
		t.Fatal(err)
	}
	rack, err := simrack.New(s, simrack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rack.Close()
	cfg := Config{}
	for _, name := range []string{"ms0", "ms1"} {
		h := rack.Host(name)
		cfg.Servers = append(cfg.Servers, h.Addr())
		h.Go("memory", true, func(ctx verbs.Context) {
			s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: 2 << 20})
			if err == nil {
				err = s.Serve()
			}
			if err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		})
	}
	h := rack.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		failed = func() error {
			cfg.Context, cfg.Manager = ctx, h.Manager(ctx)
			end := ctx.Runtime().Now().Add(10 * time.Second)
			if _, err := Format(cfg, FormatConfig{Groups: 1, Grow: 1, IndexReplicas: 2, Block: 16 << 10}, end); err != nil {
				return err
			}
			c, err := Open(cfg, end)
			if err != nil {
				return err
			}
			var keys []uint64
			for key := uint64(1); len(keys) < 2; key++ {
				if layout.HashOf(key).Moves(0) {
					keys = append(keys, key)
				}
			}
			for _, key := range keys {
				if err := c.Insert(key, nil, end); err != nil {
					return err
				}
			}
			if err := c.splits.begins(0, c.space.dir.At(0), end); err != nil {
				return err
			}
			c.splits.joins(&c.index.sight)
			for c.splits.split.does != vacate {
				if err := c.splits.step(end); err != nil {
					return err
				}
			}
			moved := &c.splits.split.moves[first]
			moved.to = c.space.super.Shape.Format.Leave(moved.slot)
			if err := c.splits.replaceAll([]move{*moved}, end); err != nil {
				return err
			}
			moved.slot, moved.left = moved.to, true
			if late < vacate {
				c.splits.split.does = flip
			}
			for c.splits.split.does != late {
				if err := c.splits.step(end); err != nil {
					return err
				}
			}
			if err := c.splits.step(c.mem.rt.Now()); !errors.Is(err, kv.ErrTimeout) && err != nil {
				return err
			}
			if err := c.splits.complete(true, end); err != nil {
				return err
			}
			for _, key := range keys {
				if _, err := c.Get(key, nil, end); err != nil {
					return err
				}
			}
			return c.Close()
		}()
	})
	return errors.Join(rack.Run(), failed)
}
