package fusee_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Clients that update keys without pause, of which some move and some remain, hold up no split: another
// client's INSERTs into the same subtables succeed, no operation takes long, and no PUT is lost.
func TestKeysThatAreUpdatedWithoutPauseHoldUpNoSplit(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		for writers := 1; writers <= 3; writers++ {
			t.Run(fmt.Sprintf("%d replicas, %d writers", replicas, writers), func(t *testing.T) {
				g := newRig(t, 3, simrack.Options{})
				g.format(fusee.FormatConfig{Groups: 40, Grow: 3, Replicas: 1, IndexReplicas: replicas, Block: 16 << 10})
				const busy, keys = 4, 2500
				rtts := map[string]map[int]int{"INSERT": {}, "PUT": {}, "GET": {}}
				count := func(what string, c *fusee.Client, err error) error {
					if cost := c.Last(); cost.RPCs == 0 {
						rtts[what][cost.RTTs]++
					}
					return err
				}
				begun, ended := false, false
				for id := range writers {
					g.client(fmt.Sprintf("cn%d", 1+id), func(c *fusee.Client, rt verbs.Runtime) error {
						for !begun {
							rt.Sleep(poll)
						}
						for n := uint64(1); !ended; n++ {
							key := n % busy
							if writers > 1 {
								key = uint64(id) % 2
							}
							if err := count("PUT", c, c.Put(key, kv.MakeValue(key, uint64(id)<<32|n, 100), quick(rt))); err != nil {
								return fmt.Errorf("PUT %d: %w", key, err)
							}
							v, err := c.Get(key, nil, quick(rt))
							if err := count("GET", c, err); err != nil {
								return fmt.Errorf("GET %d: %w", key, err)
							}
							if got, err := kv.CheckValue(key, v); writers < 3 && (err != nil || got != uint64(id)<<32|n) {
								return fmt.Errorf("GET %d: value %#x after the PUT of %#x: %w", key, got, uint64(id)<<32|n, err)
							}
						}
						return nil
					})
				}
				g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
					defer func() { ended = true }()
					for key := range uint64(keys) {
						if err := count("INSERT", c, c.Insert(key, kv.MakeValue(key, 1, 100), quick(rt))); err != nil {
							return fmt.Errorf("INSERT %d: %w", key, err)
						}
						begun = key > busy
					}
					return nil
				})
				g.run()
				g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
					_, err := c.RecoverAll(soon(rt))
					out, e := c.Audit(soon(rt))
					if err = errors.Join(err, e); err != nil || out.Keys != keys || len(out.Defects) > 0 || out.Unfinished > 0 {
						t.Errorf("%+v: %s, %v", out, strings.Join(out.Defects, "\n"), err)
					}
					t.Logf("%d keys in %d slots of %d subtables; round trips of operations: %v", out.Keys, out.Slots, out.Subtables, rtts)
					return nil
				})
				g.run()
				for what, list := range rtts {
					for n, count := range list {
						if n > mostPause {
							t.Errorf("%d %ss take %d round trips", count, what, n)
						}
					}
				}
			})
		}
	}
}

// poll is how long a client waits for another one.
const poll = 10 * time.Microsecond
