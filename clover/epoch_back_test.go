package clover

import (
	"strconv"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// TestEpochsDoNotGoBack: a client that has learnt of an epoch never goes back to an earlier one.
func TestEpochsDoNotGoBack(t *testing.T) {
	for _, records := range []int{2, 3, 5} {
		t.Run(strconv.Itoa(records), func(t *testing.T) { epochsOf(t, records) })
	}
}

// epochsOf runs a client that reports after the given number of records.
func epochsOf(t *testing.T, records int) {
	y := newEpochStoryOn(t, func(n simnet.Node) simnet.Node { return n })
	back, last := 0, uint32(0)
	y.client("cn0", records, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(otherKey, padded("x"), inTwoMinutes(rt)); err != nil {
			return err
		}
		for range verbstest.Tries(30_000, 10_000) {
			if err := c.Put(otherKey, padded("x"), inTwoMinutes(rt)); err != nil {
				return err
			}
			before := c.session.lease.epoch
			if c.session.hear(); c.session.lease.epoch < before {
				back++
			}
			last = max(last, before)
		}
		return c.Close()
	})
	y.rack.Run()
	if last < 4 {
		t.Errorf("the last epoch is %d: too few have passed", last)
	}
	if back > 0 {
		t.Errorf("the client went back to an earlier epoch %d times", back)
	}
}
