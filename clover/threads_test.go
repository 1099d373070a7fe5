package clover_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// With request threads no call for nodes waits for the headers that the metadata server reads to
// follow reports: the memory servers are a millisecond away, and every call takes less. Without, calls
// wait for them.
func TestCallsDoNotWaitForHeaders(t *testing.T) {
	const far = time.Millisecond
	for _, threads := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Threads: threads}, region)
			for _, ms := range []string{"ms0", "ms1"} {
				g.Host(ms).SetFaults([]fault.Rule{{Link: ms, Kind: fault.Delay, Delay: far}})
			}
			over := false
			for id := range 3 {
				g.clientOf(fmt.Sprintf("cn%d", id), clover.Config{Records: 1}, func(c *clover.Client, rt verbs.Runtime) error {
					defer func() { over = true }()
					key := uint64(id)
					err := c.Insert(key, value(key, 0, 40), soon(rt))
					for n := 1; n <= 50 && err == nil; n++ {
						err = c.Put(key, value(key, n, 40), soon(rt))
					}
					return err
				})
			}
			var longest time.Duration
			g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
				rt.Sleep(20 * time.Millisecond) // the keys are there
				for n := 0; !over; n++ {
					began := rt.Now()
					if calls, err := c.Exchange(soon(rt)); err != nil || calls != 2 {
						return fmt.Errorf("exchange %d: %d calls, %w", n, calls, err)
					}
					longest = max(longest, rt.Now().Sub(began))
				}
				return nil
			})
			g.run()
			if err := g.Settle(time.Second); err != nil {
				t.Fatal(err)
			}
			if waits := longest >= far; waits != (threads == 0) {
				t.Errorf("with %d request threads two calls took up to %v", threads, longest)
			}
			st := g.server.Snapshot()
			if st.Walked == 0 || st.Linked > st.Keys || st.Held != 0 {
				t.Errorf("counters %+v", st)
			}
		})
	}
}

// With more clients than request threads, and few nodes: clients wait for nodes that others have
// superseded, which only the main thread can free.
func TestThreadsShareFewNodes(t *testing.T) {
	for _, threads := range []int{1, 2, meta.MaxThreads} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 4, Shares: [layout.Classes]int{1}, Threads: threads}, 2<<10)
			for id := range 6 {
				g.clientOf(fmt.Sprintf("cn%d", id%3), clover.Config{Batch: 2}, func(c *clover.Client, rt verbs.Runtime) error {
					key := uint64(id % 3)
					if err := c.Insert(key, value(key, 0, 20), soon(rt)); err != nil && !errors.Is(err, kv.ErrExists) {
						return err
					}
					for n := range 200 {
						if err := c.Put(key, value(key, n, 20), soon(rt)); err != nil {
							return fmt.Errorf("client %d, PUT %d: %w", id, n, err)
						}
					}
					return nil
				})
			}
			g.run()
			if err := g.Settle(time.Second); err != nil {
				t.Fatal(err)
			}
			if st := g.server.Snapshot(); st.Linked > 3 || st.Held != 0 || st.Keys != 3 || st.Broken != 0 {
				t.Errorf("counters %+v", st)
			}
		})
	}
}
