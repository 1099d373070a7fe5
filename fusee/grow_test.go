package fusee_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// The index grows while clients insert, replace, read and delete keys, with 1 to 3 replicas: no key is
// lost or doubled, and no operation takes more round trips than the bound.
func TestTheIndexGrowsUnderLoad(t *testing.T) {
	for _, s := range []struct {
		servers int
		fusee.FormatConfig
	}{
		{1, fusee.FormatConfig{Groups: 8, Grow: 5}},
		{2, fusee.FormatConfig{Groups: 8, Depth: 1, Grow: 4, Replicas: 1, IndexReplicas: 2}},
		{3, fusee.FormatConfig{Groups: 8, Grow: 5, Replicas: 1, IndexReplicas: 3}},
	} {
		t.Run(name(s.servers, s.FormatConfig), func(t *testing.T) {
			g := newRig(t, s.servers, simrack.Options{})
			s.Block = 16 << 10
			g.format(s.FormatConfig)
			const clients, keys = 6, 250
			longest := map[int]int{}
			running := clients
			for id := range clients {
				g.client(fmt.Sprintf("cn%d", id%4), func(c *fusee.Client, rt verbs.Runtime) error {
					defer func() { running-- }()
					spent := func(what string, key uint64, err error) error {
						longest[c.Last().RTTs]++
						if err != nil {
							err = fmt.Errorf("%s %d: %w", what, key, err)
						}
						return err
					}
					for n := range uint64(keys) {
						key := uint64(id)*keys + n
						err := spent("INSERT", key, c.Insert(key, kv.MakeValue(key, 1, 100), quick(rt)))
						old := uint64(id)*keys + n/2
						err = errors.Join(err, spent("PUT", old, c.Put(old, kv.MakeValue(old, 2+n, 100), quick(rt))))
						_, e := c.Get(old, nil, quick(rt))
						err = errors.Join(err, spent("GET", old, e))
						if n%5 == 4 {
							err = errors.Join(err, spent("DELETE", key, c.Delete(key, quick(rt))), spent("INSERT", key, c.Insert(key, kv.MakeValue(key, 3, 100), quick(rt))))
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
				for running > 0 {
					rt.Sleep(time.Millisecond)
				}
				for key := range uint64(clients * keys) {
					v, err := c.Get(key, nil, quick(rt))
					if err != nil {
						return fmt.Errorf("GET %d: %w", key, err)
					}
					if _, err := kv.CheckValue(key, v); err != nil {
						return fmt.Errorf("GET %d: %w", key, err)
					}
				}
				if _, err := c.RecoverAll(quick(rt)); err != nil {
					return err
				}
				out, err := c.Audit(quick(rt))
				if err != nil || out.Keys != clients*keys || len(out.Defects) > 0 || out.Unfinished > 0 {
					t.Errorf("%+v: %s, %v", out, strings.Join(out.Defects, "\n"), err)
				}
				t.Logf("%d keys in %d slots of %d subtables, %d being split; round trips of operations: %v", out.Keys, out.Slots, out.Subtables, out.Splitting, longest)
				return nil
			})
			g.run()
			for rtts, n := range longest {
				if rtts > mostRTTs {
					t.Errorf("%d operations take %d round trips", n, rtts)
				}
			}
		})
	}
}

// mostRTTs is how many round trips an operation may take in a small index of which a large part is being
// split. With full buckets an INSERT works on the split until its buckets are settled.
const mostRTTs = 25

// quick is a deadline that an operation misses only if it does not go on.
func quick(rt verbs.Runtime) clock.Time { return rt.Now().Add(50 * time.Millisecond) }
