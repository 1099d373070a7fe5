package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// One client inserts keys until the first of them finds no room, in ascending, descending or random
// order. Then at least 95 % of the leaves' places for records have a record, and at least 95 % of the
// pages are in the tree. That is the form's limit for the bytes: a page of 1024 bytes has a header of
// 64 bytes and three records of 18 bytes in each of its other 15 lines, so records can fill 79 % of
// it; and one page in 46 to 24 is an internal one.
func TestATreeIsFilledWhateverTheOrderOfKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 4))
	for _, order := range []struct {
		name string
		key  func(i uint64) uint64
	}{
		{"ascending", func(i uint64) uint64 { return i + 1<<40 }},
		{"descending", func(i uint64) uint64 { return 1<<40 - i }},
		{"random", func(uint64) uint64 { return r.Uint64() }},
	} {
		t.Run(order.name, func(t *testing.T) {
			g := newRig(t, simrack.Options{}, 128<<10)
			g.format(sherman.FormatConfig{})
			n := g.node(sherman.NodeConfig{})
			g.client("cn1", n, func(c *sherman.Client, rt verbs.Runtime) error {
				var err error
				keys := uint64(0)
				for ; err == nil; keys++ {
					err = c.Insert(order.key(keys), value(keys, 0), soon(rt))
				}
				if keys--; !errors.Is(err, kv.ErrFull) || !errors.Is(err, kv.ErrNoEffect) {
					return fmt.Errorf("after %d keys: %w", keys, err)
				}
				rep, err := whole(c, rt, 0)
				if err != nil {
					return err
				}
				s, pages := c.Super(), uint64(0)
				for range s.Servers {
					pages += (s.Len - s.FirstChunk()) / uint64(s.Shape.Page)
				}
				places := pages * uint64(s.Shape.Slots(0))
				bytes := keys * uint64(s.Shape.RecordLen(0))
				t.Logf("%d of %d places (%.1f %%), %.1f %% of the bytes: %v", keys, places, 100*float64(keys)/float64(places),
					100*float64(bytes)/float64(pages*uint64(s.Shape.Page)), rep)
				used := 0
				for _, n := range rep.Levels {
					used += n
				}
				if rep.Content.Keys != keys || keys*100 < rep.Room*95 || uint64(used)*100 < pages*95 {
					t.Errorf("full with %d keys in %d pages of %d", keys, used, pages)
				}
				return nil
			})
			g.run()
		})
	}
}
