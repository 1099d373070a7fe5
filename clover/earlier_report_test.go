package clover

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// One client uses up most versions of all nodes. Then another one alone appends to two keys, and its
// reports wait (Config.Records). When no node is free, the metadata server follows the chains, an epoch
// ends, and the client gets a node again for which a report of the earlier epoch still waits. That
// report must not be taken for one of the node's new use: the newest node of the second key would be
// given out.
func TestReportsOfAnEarlierEpoch(t *testing.T) {
	y := newEpochStoryOn(t, func(n simnet.Node) simnet.Node { return n })
	y.lease = 10 * time.Second
	const busy, worn, seldom, almostWorn = 1, 2, 3, 254
	y.client("cn1", 1, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(worn, padded("worn"), inTwoMinutes(rt)); err != nil {
			return err
		}
		for n := 0; ; n++ {
			l, err := c.appender.take(0, worn, false, inTwoMinutes(rt))
			if err != nil {
				return err
			}
			c.session.spare[0] = append(c.session.spare[0], l)
			if l.Version >= almostWorn {
				break
			}
			if err := c.Put(worn, padded(fmt.Sprint(n)), inTwoMinutes(rt)); err != nil {
				return err
			}
		}
		y.stage = 1
		return c.Close()
	})
	y.client("cn0", 48, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 1)
		rt.Sleep(50 * time.Millisecond)
		want := make(map[uint64]string)
		put := func(key uint64, n int) error {
			want[key] = fmt.Sprint("value ", n)
			return c.Put(key, padded(want[key]), inTwoMinutes(rt))
		}
		for _, key := range []uint64{busy, seldom} {
			if err := c.Insert(key, padded("first"), inTwoMinutes(rt)); err != nil {
				return err
			}
			want[key] = "first"
		}
		for n := range 300 {
			key := uint64(busy)
			if n == 0 || n == 14 {
				key = seldom
			}
			if err := put(key, n); err != nil {
				return fmt.Errorf("PUT %d: %w", n, err)
			}
			for key, value := range want {
				c.finder.cache.drop(key)
				v, err := c.Get(key, nil, rt.Now().Add(2*time.Second))
				if got := string(bytes.TrimRight(v, ".")); err != nil || got != value {
					return fmt.Errorf("after PUT %d, key %d is %q, want %q: %w", n, key, got, value, err)
				}
			}
			if n%50 == 49 {
				rt.Sleep(30 * time.Millisecond)
			}
		}
		y.stage = 2
		return nil
	})
	if err := y.rack.Run(); err != nil || y.stage != 2 {
		t.Fatal(y.stage, err)
	}
}
