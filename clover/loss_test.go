package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A chain that leads into lost memory must never lead to a node of another key: two keys would
// share it. The key is lost, and all other keys keep their values.

// A client has written a node when its server loses its memory; the append, to a node on the other
// server, arrives after the metadata server has handled the loss. It must not be carried out: the
// client's connections have ended before the node is given to another one.
func TestAppendOfALostNode(t *testing.T) {
	l := &lossy{late: &late{}, refused: true}
	l.put = func(c *clover.Client, rt verbs.Runtime) error {
		l.late.keep = true
		// nodes come from the servers in turn: this one is on ms1
		err := c.Put(lostKey, value(lostKey, 1, lostSize), soon(rt))
		if errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrLost) {
			err = nil
		}
		return err
	}
	l.ready = func() bool { return l.late.kept != nil }
	l.come = func(rt verbs.Runtime) {
		l.late.send = true
		rt.Sleep(10 * time.Millisecond)
	}
	l.run(t)
}

// While the metadata server handles the loss, it cannot see that a chain leads into the lost
// memory, because the server of the preceding node does not answer.
func TestLossWhileAnotherServerIsAway(t *testing.T) {
	l := &lossy{late: &late{}}
	written := false
	l.put = func(c *clover.Client, rt verbs.Runtime) error {
		err := c.Put(lostKey, value(lostKey, 1, lostSize), soon(rt)) // the client reports this append later, together with others
		written = true
		rt.Sleep(lostLease / 2)
		return err
	}
	l.ready = func() bool {
		if written {
			l.rack.Host("ms0").SetLink(false)
		}
		return written
	}
	l.come = func(rt verbs.Runtime) {
		l.rack.Host("ms0").SetLink(true)
		rt.Sleep(100 * time.Millisecond)
	}
	l.run(t)
}

const (
	lostKey, lostSize = 1, 40
	lostLease         = 6 * time.Second
)

// lossy is a rack whose ms1 loses its memory, with a chain that leads there, or will do so.
type lossy struct {
	late *late
	rack *rig
	put  func(c *clover.Client, rt verbs.Runtime) error
	// refused is set if the append must not be carried out and the key must not be lost.
	refused bool
	ready   func() bool            // whether the memory may be lost now
	come    func(rt verbs.Runtime) // is called when the metadata server knows of the loss; it makes the server follow the chain
}

func (l *lossy) run(t *testing.T) {
	g := newRig(t, l.late.options(), meta.Config{
		Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}, Lease: lostLease, Grace: lostLease,
	}, 6<<10)
	l.rack = g
	g.Host("cn0").Go("one", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: g.Host("cn0").Manager(ctx), Meta: g.Host("md0").Addr(), Batch: 1, Records: 16, Spread: true}, soon(rt))
		if err == nil {
			err = c.Insert(lostKey, value(lostKey, 0, lostSize), soon(rt)) // on ms0
		}
		if err == nil {
			err = l.put(c, rt)
		}
		if err = errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error { return l.others(c, rt) })
	g.run()
	if err := g.Settle(4 * lostLease); err != nil {
		t.Fatal(err)
	}
	if st := g.server.Snapshot(); st.Broken > 0 || st.Held > 0 || st.Linked != st.Keys {
		t.Errorf("%+v", st)
	}
}

// others takes all nodes that the metadata server gives it, and uses them for other keys.
func (l *lossy) others(c *clover.Client, rt verbs.Runtime) error {
	for ; !l.ready(); rt.Sleep(time.Millisecond) {
	}
	rt.Sleep(10 * time.Millisecond)
	began := rt.Now()
	l.rack.At(began, l.rack.Host("ms1").Crash)
	rt.Sleep(time.Millisecond)
	l.rack.At(rt.Now(), func() {
		l.rack.Host("ms1").Restart()
		l.rack.memory("ms1")
	})
	last := lostKey
	insert := func(until func() bool) {
		for n := 0; last < 60 && n < 100 && !until(); n++ {
			k := uint64(last + 1)
			if err := c.Insert(k, value(k, 0, lostSize), rt.Now().Add(500*time.Millisecond)); err == nil || errors.Is(err, kv.ErrExists) {
				last++ // perhaps the previous attempt has inserted it
			}
		}
	}
	known := func() bool { return l.rack.server.Snapshot().Losses > 0 }
	insert(known)
	late := began.Add(lostLease)
	if insert(func() bool { return rt.Now() > late.Add(-lostLease/2) }); !known() || rt.Now() >= late {
		return fmt.Errorf("with %d keys the loss is not known, or the lease has ended at %v", last, rt.Now())
	}
	l.come(rt)
	if insert(func() bool { return rt.Now() > late }); last < 20 {
		return fmt.Errorf("%d keys were inserted", last)
	}
	v, err := c.Get(lostKey, nil, rt.Now().Add(time.Second))
	if l.refused && (err != nil || !bytes.Equal(v, value(lostKey, 0, lostSize))) {
		return fmt.Errorf("with keys to %d: the append was refused; GET says: %.20q %w", last, v, err)
	}
	if !l.refused && !errors.Is(err, kv.ErrLost) {
		return fmt.Errorf("with keys to %d: the chain leads to a node that is lost; GET says: %w", last, err)
	}
	rt.Sleep(2*lostLease + 100*time.Millisecond)
	return l.use(c, last, func() clock.Time { return soon(rt) })
}

// use writes and reads all keys up to last, on nodes of both servers, and inserts the lost one
// again.
func (l *lossy) use(c *clover.Client, last int, soon func() clock.Time) error {
	for n := 1; n < 5; n++ {
		for k := uint64(lostKey + 1); k <= uint64(last); k++ {
			if err := c.Put(k, value(k, n, lostSize), soon()); err != nil {
				return fmt.Errorf("PUT %d of key %d: %w", n, k, err)
			}
		}
	}
	for k := uint64(lostKey + 1); k <= uint64(last); k++ {
		v, err := c.Get(k, nil, soon())
		if err != nil || !bytes.Equal(v, value(k, 4, lostSize)) {
			return fmt.Errorf("key %d is %.20q: %w", k, v, err)
		}
	}
	if l.refused {
		return c.Put(lostKey, value(lostKey, 2, lostSize), soon())
	}
	return c.Insert(lostKey, value(lostKey, 2, lostSize), soon())
}
