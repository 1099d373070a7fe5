package clover

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client that collects its appends for long reports, and then only reads, reports them before
// half of its lease has passed: if a switch has absorbed an append, its node is in no chain, and
// only the report lets the metadata server free the node.
func TestReportsDoNotWaitForFurtherAppends(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		held := func() uint64 {
			st, err := c.Stats(inTwoMinutes(rt))
			if err != nil {
				t.Error(err)
			}
			return st.Held
		}
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		reads := func(n int, want string) {
			for range n {
				rt.Sleep(y.lease / 8)
				y.read(c, rt, "meanwhile", want)
				if _, err := c.Get(otherKey, nil, inTwoMinutes(rt)); !errors.Is(err, kv.ErrNotFound) { // which renews the lease
					t.Error(err)
				}
			}
		}
		reads(24, "first") // the metadata server follows all chains because a client is new
		for range 3 {
			if err := c.Put(wornKey, padded("next"), inTwoMinutes(rt)); err != nil {
				return err
			}
		}
		if n := held(); n != 3 {
			t.Errorf("the client holds %d nodes before it reports, want 3", n)
		}
		reads(6, "next")
		if n := held(); n > 0 {
			t.Errorf("the client holds %d nodes after most of a lease", n)
		}
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}
