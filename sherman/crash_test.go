package sherman_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The costs of the published system (SIGMOD 2022; §5 of its code): a search takes one round trip
// with a warm cache, a write three, two when the lock is handed over. The bytes are those of IP
// packets.
func TestRoundTrips(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	n := g.node(sherman.NodeConfig{})
	g.client("cn0", n, func(c *sherman.Client, rt verbs.Runtime) error {
		for k := range uint64(200) {
			if err := c.Insert(k, value(k, 0), soon(rt)); err != nil {
				return err
			}
		}
		for k := range uint64(200) {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return err
			}
		}
		if _, err := c.Get(77, nil, soon(rt)); err != nil || c.LastCost() != (sherman.Cost{Cost: kv.Cost{RTTs: 1}, Bytes: 60 + 1072}) {
			return fmt.Errorf("search: %+v %w", c.LastCost(), err)
		}
		for _, write := range []func() error{
			func() error { return c.Put(77, value(77, 1), soon(rt)) }, func() error { return c.Delete(78, soon(rt)) },
			func() error { return c.Insert(78, value(78, 1), soon(rt)) },
		} {
			err := write()
			cost := c.LastCost()
			cost.Wait = 0
			if want := (sherman.Cost{Cost: kv.Cost{RTTs: 3}, CAS: 1, Bytes: 72 + 56 + 60 + 1072 + 80 + 68 + 48}); err != nil || cost != want {
				return fmt.Errorf("write: %+v, want %+v: %w", cost, want, err)
			}
		}
		return nil
	})
	g.run()
	handedOver := 0
	for range 4 {
		g.client("cn0", n, func(c *sherman.Client, rt verbs.Runtime) error {
			for i := range uint64(50) {
				if err := c.Put(77, value(77, i), soon(rt)); err != nil {
					return err
				}
				if cost := c.LastCost(); cost.HandOvers == 1 && cost.CAS == 0 {
					handedOver++
					if cost.RTTs > 2 && handedOver > 4 { // the first operations connect
						return fmt.Errorf("a write with the lock handed over: %+v", cost)
					}
				}
			}
			return nil
		})
	}
	g.run()
	if handedOver < 50 {
		t.Errorf("%d hand-overs", handedOver)
	}
}

// A client that dies with a lock delays others only by the lease, and no acknowledged write is
// lost. At whatever step of a split the client dies, the tree has no problems.
func TestDeathInASplit(t *testing.T) {
	recovered := 0
	for step := range 24 {
		if deathInASplit(t, time.Duration(step)*2500*time.Nanosecond) {
			recovered++
		}
	}
	if recovered < 4 {
		t.Errorf("the victim had a lock at %d of 24 deaths", recovered)
	}
}

// deathInASplit kills a client at the given time after it has begun an insert that splits, and
// reports whether it held the lock.
func deathInASplit(t *testing.T, after time.Duration) bool {
	// fence is what takes time besides the lease: to connect, the request to the server, and the
	// write itself, over links with a delay of a microsecond.
	const lease, fence = 5 * time.Millisecond, 500 * time.Microsecond
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}, Locks: 1})
	full := uint64(layout.Shape{Page: 256}.WithDefaults().Slots(0))
	dead := false
	h := g.Host("cn0")
	h.Go("victim", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for k := range full { // the next insert splits
			if err := c.Insert(10*k, value(k, 0), soon(rt)); err != nil {
				t.Error(err)
			}
		}
		g.At(rt.Now().Add(after), func() { dead = true; h.Crash() })
		_ = c.Insert(35, value(35, 7), soon(rt))
		rt.Sleep(time.Millisecond)
	})
	other := g.node(sherman.NodeConfig{Lease: lease})
	g.client("cn2", other, func(c *sherman.Client, rt verbs.Runtime) error {
		for !dead {
			rt.Sleep(time.Microsecond)
		}
		began := rt.Now()
		err := c.Upsert(45, value(45, 1), soon(rt))
		if took := rt.Now().Sub(began); err != nil || took > lease+fence {
			return fmt.Errorf("death after %v: a write then took %v: %w", after, took, err)
		}
		for k := range full {
			v, err := c.Get(10*k, nil, soon(rt))
			if err != nil || string(v) != string(value(k, 0)) {
				return fmt.Errorf("death after %v: key %d: %x %w", after, 10*k, v, err)
			}
		}
		return c.Insert(46, value(46, 1), soon(rt))
	})
	g.run()
	return other.Stats().Recovered > 0
}
