package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// whole checks the tree, which may have the given number of unreachable pages.
func whole(c *sherman.Client, rt verbs.Runtime, unreachable int) (*check.Report, error) {
	cfg, err := audit.Config(c, rt.Now().Add(time.Minute))
	if err != nil {
		return nil, err
	}
	cfg.HalfSplits, cfg.Unreachable = -1, unreachable
	rep, err := check.Check(cfg)
	if err == nil {
		err = rep.Err()
	}
	return rep, err
}

// Clients that come and go take no memory as long as the leaves have room.
func TestClientsWithoutSplitsTakeNoMemory(t *testing.T) {
	g := newRig(t, simrack.Options{}, 4<<20)
	g.format(sherman.FormatConfig{})
	full := 0
	for i := range 200 {
		g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
			rt.Sleep(time.Duration(i) * time.Millisecond)
			err := c.Insert(uint64(i%3), value(uint64(i%3), 0), rt.Now().Add(time.Second))
			if errors.Is(err, kv.ErrFull) {
				full++
				return nil
			}
			if errors.Is(err, kv.ErrExists) {
				return nil
			}
			return err
		})
	}
	g.run()
	if full > 0 {
		t.Errorf("%d of 200 clients were told that the store is full, which has three keys", full)
	}
}

// The pages of deleted keys are used for other keys, and the error of a full tree names what is
// full.
func TestDeletesGiveRoomBack(t *testing.T) {
	g := newRig(t, simrack.Options{}, 512<<10)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}})
	g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		n := uint64(0)
		var err error
		for ; err == nil; n++ {
			err = c.Insert(n, value(n, 0), soon(rt))
		}
		if n--; !errors.Is(err, kv.ErrFull) || !errors.Is(err, kv.ErrNoEffect) {
			return fmt.Errorf("after %d keys: %w", n, err)
		}
		if want := "store is full: a split needs a page, and all 1015808 bytes of pages on 2 memory servers are in use"; len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("the error does not say what is full: %v", err)
		}
		for k := range n {
			if k%10 != 0 {
				if err := c.Delete(k, soon(rt)); err != nil {
					return err
				}
			}
		}
		for k := range n / 4 {
			if err := c.Insert(n+k, value(n+k, 1), soon(rt)); err != nil {
				return fmt.Errorf("insert of key %d of %d after 9 of 10 keys were deleted: %w", k, n/4, err)
			}
		}
		_, err = whole(c, rt, 0)
		return err
	})
	g.run()
}

// Empty memory is filled until the tree is full by 200 clients, ten times, or three times in a short
// run, with other keys and sizes each time. The tree may be full only when 95 % of the bytes are in its pages, and 95 % of the
// places for records in its leaves have a record.
func TestFillAndEmpty(t *testing.T) {
	const nodes, perNode = 4, 50
	g := newRig(t, simrack.Options{}, 48<<10)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256, Value: 16}})
	var list []*sherman.Node
	for range nodes {
		list = append(list, g.node(sherman.NodeConfig{Lease: time.Second}))
	}
	keys := make([][]uint64, nodes*perNode)
	for round := range verbstest.Tries(10, 3) {
		for i := range keys {
			r := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			g.client(fmt.Sprintf("cn%d", i%3), list[i/perNode], func(c *sherman.Client, rt verbs.Runtime) error {
				for {
					key := r.Uint64()
					err := c.Insert(key, make([]byte, r.IntN(17)), rt.Now().Add(time.Minute))
					if errors.Is(err, kv.ErrFull) {
						return nil
					}
					if err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
					keys[i] = append(keys[i], key)
				}
			})
		}
		g.run()
		g.client("cn0", list[0], func(c *sherman.Client, rt verbs.Runtime) error {
			rep, err := whole(c, rt, 0)
			if err != nil {
				return err
			}
			s, pages, total := c.Super(), 0, 0
			for _, n := range rep.Levels {
				pages += n
			}
			for range s.Servers {
				total += int((s.Len - s.FirstChunk()) / uint64(s.Shape.Page))
			}
			if pages*100 < total*95 || rep.Content.Keys*100 < rep.Room*95 {
				return fmt.Errorf("round %d: full with %d of %d pages in the tree: %v", round, pages, total, rep)
			}
			t.Logf("round %d: %d of %d pages: %v", round, pages, total, rep)
			return nil
		})
		g.run()
		for i := range keys {
			g.client(fmt.Sprintf("cn%d", i%3), list[i/perNode], func(c *sherman.Client, rt verbs.Runtime) error {
				for _, key := range keys[i] {
					if err := c.Delete(key, rt.Now().Add(time.Minute)); err != nil {
						return fmt.Errorf("round %d: delete: %w", round, err)
					}
				}
				keys[i] = keys[i][:0]
				return nil
			})
		}
		g.run()
		g.client("cn0", list[0], func(c *sherman.Client, rt verbs.Runtime) error {
			rep, err := whole(c, rt, 0)
			t.Logf("round %d, emptied: %v", round, rep)
			return err
		})
		g.run()
	}
	for _, n := range list[:1] {
		t.Logf("%+v", n.Stats())
	}
}
