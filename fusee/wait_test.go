package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// hangOn hangs the threads of a host when a packet to it is sent for which match returns true; the NIC
// receives it. They go on after a time.
type hangOn struct {
	g     *rig
	host  string
	armed bool
	match func(f *wire.Frame) bool
	long  time.Duration
	then  func()
	frame wire.Frame
}

func (x *hangOn) see(ev *simnet.Event) {
	if !x.armed || ev.Kind != simnet.Sent || ev.Link() != x.host || ev.Dir() != fault.Down || wire.ParseFrame(ev.Frame, &x.frame) != nil || !x.match(&x.frame) {
		return
	}
	x.armed = false
	x.g.At(x.g.Now(), func() {
		h := x.g.Host(x.host)
		h.HangAll()
		h.Resume()
		x.g.At(x.g.Now().Add(x.long), h.ResumeAll)
		x.then()
	})
}

// A client that waits for a winner is hung, with the answer of its last READ of the primary, until the
// lease is over. The winner has gone on meanwhile. It is not taken for dead: the client reads once more.
func TestAWaiterThatWasHungFencesNoOther(t *testing.T) {
	const key = 5
	winner := &hangOn{host: "cn0", long: 2 * time.Millisecond, match: func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck }}
	reads := 0
	waiter := &hangOn{host: "cn1", long: 50 * time.Millisecond, then: func() {}, match: func(f *wire.Frame) bool {
		if f.BTH.Opcode == wire.RCReadResponseOnly && len(f.Payload) == 8 {
			reads++
		}
		return reads == 3
	}}
	g := newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
		winner.see(ev)
		waiter.see(ev)
	}})
	winner.g, waiter.g, g.lease = g, g, 10*time.Millisecond
	g.format(fusee.FormatConfig{Groups: 2, IndexReplicas: 2, Block: 16 << 10})
	var super layout.Superblock
	stage := 0
	upTo := func(rt verbs.Runtime, n int) {
		for stage < n {
			rt.Sleep(time.Microsecond)
		}
	}
	winner.then = func() { stage, waiter.armed = 2, true }
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		number := c.Number()
		err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
		stage = 1
		rt.Sleep(time.Millisecond)
		winner.armed = true
		err = errors.Join(err, c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)))
		upTo(rt, 3)
		if err = errors.Join(err, c.Put(key, kv.MakeValue(key, 4, 100), soon(rt))); err != nil || c.Number() != number {
			return fmt.Errorf("a winner that has gone on in time: client %d is %d: %w", number, c.Number(), err)
		}
		return nil
	})
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		upTo(rt, 1)
		_, err := c.Get(key, nil, soon(rt))
		upTo(rt, 2)
		began := rt.Now()
		err = errors.Join(err, c.Put(key, kv.MakeValue(key, 3, 100), soon(rt)))
		if waiter.armed || rt.Now().Sub(began) < waiter.long {
			t.Errorf("the waiter was not hung: it took %v", rt.Now().Sub(began))
		}
		stage = 3
		return err
	})
	g.run()
	g.audit(super, "after it")
}

// The same for a client that waits for another INSERT of its key: it is hung with the answer of a READ
// that shows the other one pending.
func TestARivalThatWasHungFencesNoOther(t *testing.T) {
	const key = 5
	first := &hangOn{host: "cn0", long: 2 * time.Millisecond, match: func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck }}
	reads := 0
	second := &hangOn{host: "cn1", long: 50 * time.Millisecond, then: func() {}, match: func(f *wire.Frame) bool {
		if f.BTH.Opcode == wire.RCReadResponseOnly && len(f.Payload) == layout.Unit {
			reads++
		}
		return reads == 3
	}}
	g := newRig(t, 1, simrack.Options{Trace: func(ev *simnet.Event) {
		first.see(ev)
		second.see(ev)
	}})
	first.g, second.g, g.lease = g, g, 10*time.Millisecond
	g.format(fusee.FormatConfig{Groups: 2, Block: 16 << 10})
	var super layout.Superblock
	ready := false
	first.then = func() { ready, second.armed = true, true }
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		number := c.Number()
		err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt))
		first.armed = true
		err = errors.Join(err, c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)))
		for second.armed {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(2 * second.long)
		if err = errors.Join(err, c.Put(key, kv.MakeValue(key, 2, 100), soon(rt))); err != nil || c.Number() != number {
			return fmt.Errorf("an INSERT that has gone on in time: client %d is %d: %w", number, c.Number(), err)
		}
		return nil
	})
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		err := c.Insert(2, kv.MakeValue(2, 1, 100), soon(rt))
		for !ready {
			rt.Sleep(time.Microsecond)
		}
		began := rt.Now()
		if err2 := c.Insert(key, kv.MakeValue(key, 3, 100), soon(rt)); !errors.Is(err2, kv.ErrExists) {
			t.Errorf("the second INSERT: %v", err2)
		}
		if second.armed || rt.Now().Sub(began) < second.long {
			t.Errorf("the second client was not hung: it took %v", rt.Now().Sub(began))
		}
		return err
	})
	g.run()
	g.audit(super, "after it")
}
