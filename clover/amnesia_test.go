package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A memory server loses its memory, and the metadata server dies before, during or after it handles
// that. In every incarnation of the metadata server, each key either has its value or is reported
// as lost. Only a key that was deleted before is unknown.
func TestLostKeysStayLost(t *testing.T) {
	const keys, deleted = 24, 3
	for _, victim := range []string{"ms0", "ms1", "ms0 shared", "ms1 shared"} {
		victim, shared := strings.CutSuffix(victim, " shared")
		size, region, shares := 40, 16<<10, [layout.Classes]int{1}
		if shared {
			size, region, shares = 400, 70*layout.UsualSegment, [layout.Classes]int{}
		}
		for after := -2 * time.Millisecond; after < 30*time.Millisecond; after += 1700 * time.Microsecond {
			g := newRig(t, simrack.Options{}, meta.Config{
				Format: layout.Hardened, Keys: 64, Shares: shares, Lease: 20 * time.Millisecond, Grace: 20 * time.Millisecond,
			}, region)
			g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
				for k := range uint64(keys) {
					if err := errors.Join(c.Insert(k, value(k, 0, size), soon(rt)), c.Put(k, value(k, 1, size), soon(rt))); err != nil {
						return err
					}
				}
				if err := c.Delete(deleted, soon(rt)); err != nil {
					return err
				}
				rt.Sleep(50 * time.Millisecond) // then the deletions are in the directory
				now := rt.Now()
				g.At(now, g.Host(victim).Crash)
				back := now.Add(5 * time.Millisecond)
				g.At(back, func() {
					g.Host(victim).Restart()
					g.memory(victim)
				})
				for range 2 { // the second time with nothing to recover
					dies := back.Add(after)
					g.At(dies, g.Host("md0").Crash)
					g.At(dies.Add(10*time.Millisecond), func() {
						g.Host("md0").Restart()
						g.meta()
					})
					rt.Sleep(200 * time.Millisecond)
					back = rt.Now().Add(50 * time.Millisecond)
				}
				lost := 0
				for k := range uint64(keys) {
					v, err := c.Get(k, nil, soon(rt))
					switch {
					case k == deleted && errors.Is(err, kv.ErrNotFound):
					case errors.Is(err, kv.ErrLost):
						if lost++; k == deleted {
							return fmt.Errorf("key %d was deleted, and is lost now", k)
						}
						if err := c.Insert(k, value(k, 2, size), soon(rt)); err != nil {
							return fmt.Errorf("key %d is lost and cannot be inserted: %w", k, err)
						}
					case err != nil || !bytes.Equal(v, value(k, 1, size)):
						return fmt.Errorf("key %d is %.20q: %w", k, v, err)
					}
				}
				if lost == 0 || lost == keys {
					return fmt.Errorf("%d of %d keys are lost with one of two servers", lost, keys)
				}
				return nil
			})
			g.run()
			if t.Failed() {
				t.Fatalf("%s lost its memory, the metadata server died %v after that", victim, after)
			}
		}
	}
}
