package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/topo/sim"
	"github.com/rdmalab/rdmalab/topo/simrack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// late is a switch that gets the next append of a host when the test says so, however long after its client gave up: all other copies
// of it are lost, and so is what would tell that the connection has ended.
type late struct {
	sim.Node
	port int // of the host
	keep bool
	kept []byte
	to   wire.QPN
	psn  wire.PSN
	send bool
}

// Frame hands a frame on. The append comes with the next one when send says so.
func (l *late) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	if l.send {
		l.send = false
		l.Node.Frame(now, l.port, packetio.Frame{Data: bytes.Clone(l.kept)}, out)
	}
	if port != l.port || !l.loses(f.Data) {
		l.Node.Frame(now, port, f, out)
	}
}

func (l *late) loses(data []byte) bool {
	var g wire.Frame
	if wire.ParseFrame(data, &g) != nil {
		return false
	}
	switch g.BTH.Opcode {
	case wire.RCCmpSwap:
		if l.keep {
			l.keep, l.kept, l.to, l.psn = false, bytes.Clone(data), g.BTH.DestQP, g.BTH.PSN
		}
		return l.kept != nil && g.BTH.DestQP == l.to && g.BTH.PSN == l.psn
	case wire.UDSendOnly:
		var h mad.Header
		m, err := mad.Parse(g.Payload, &h)
		_, end := m.(*mad.DREQ)
		return err == nil && end && l.kept != nil
	default:
		return false
	}
}

// options put it into a rack. The first client is behind port 3.
func (l *late) options() simrack.Options {
	l.port = 3
	return simrack.Options{Datagrams: true, Wrap: func(name string, n sim.Node) sim.Node {
		if name == spec.SwitchName {
			l.Node = n
			return l
		}
		return n
	}}
}

const steeredYAML = `
name: clover
switch:
  program: swordbox
  rules:
    - {server: ms0, action: steer, steer: both}
    - {server: ms1, action: steer, steer: both}
`

// An append reaches the switch when its client has given the connection up, has looked for its node, and has appended it. It must
// not be steered to the newest node by then: the node would be in the chain twice, and the chain a circle.
func TestAppendSteeredBehindALook(t *testing.T) {
	l := &late{}
	g := newRigOf(t, steeredYAML+hostsYAML, l.options(), meta.Config{
		Format: layout.Sound, Keys: 16, Shares: [layout.Classes]int{1}, Lease: 20 * time.Second, Grace: time.Second,
	}, 16<<10)
	const key, size = 1, 40
	ready, done := false, false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(key, value(key, 0, size), soon(rt)); err != nil {
			return err
		}
		for n := range 20 { // both servers are connected, the switch knows the chain
			if err := c.Put(key, value(key, n, size), soon(rt)); err != nil {
				return err
			}
		}
		ready = true
		rt.Sleep(time.Millisecond) // the other one appends
		l.keep = true
		err := c.Put(key, value(key, 100, size), soon(rt))
		done = true
		return err
	})
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		for ; !ready; rt.Sleep(100 * time.Microsecond) {
		}
		var last []byte
		rewrite := func(from, to int) error {
			for n := from; n < to; n++ {
				last = value(key, n, size)
				if err := c.Put(key, last, soon(rt)); err != nil {
					return fmt.Errorf("PUT %d: %w", n, err)
				}
			}
			v, err := c.Get(key, nil, rt.Now().Add(time.Second))
			if err != nil || !bytes.Equal(v, last) {
				return fmt.Errorf("after PUT %d the key is %.20q: %w", to, v, err)
			}
			return nil
		}
		if err := rewrite(50, 52); err != nil {
			return err
		}
		for ; !done; rt.Sleep(time.Millisecond) {
		}
		if err := rewrite(101, 104); err != nil {
			return err
		}
		if l.send = true; l.kept == nil {
			return errors.New("no append was kept")
		}
		rt.Sleep(10 * time.Millisecond)
		v, err := c.Get(key, nil, rt.Now().Add(time.Second))
		if err != nil || !bytes.Equal(v, last) {
			return fmt.Errorf("after the append came, the key is %.20q: %w", v, err)
		}
		return rewrite(104, 110)
	})
	g.run()
	if st := g.server.Snapshot(); st.Broken > 0 {
		t.Errorf("%+v", st)
	}
}

// A client has written a node when the server of it loses its memory; the append, to a node on the other server, is carried out when the
// metadata server has worked on the loss. The node's place must not be somebody else's by then: two keys would share it.
func TestAppendOfALostNode(t *testing.T) {
	const key, size, lease = 1, 40, 4 * time.Second
	l := &late{}
	g := newRig(t, l.options(), meta.Config{
		Format: layout.Sound, Keys: 64, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease,
	}, 6<<10)
	g.Host("cn0").Go("late", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: g.Host("cn0").Manager(ctx), Meta: g.Host("md0").Addr(), Batch: 1}, soon(rt))
		if err == nil {
			err = c.Insert(key, value(key, 0, size), soon(rt)) // on ms0
		}
		if err == nil {
			l.keep = true
			err = c.Put(key, value(key, 1, size), soon(rt)) // by turns: on ms1
		}
		if err != nil && !errors.Is(err, kv.ErrTimeout) && !errors.Is(err, kv.ErrLost) {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		for ; l.kept == nil; rt.Sleep(time.Millisecond) {
		}
		rt.Sleep(10 * time.Millisecond)
		began := rt.Now()
		g.At(g.Now(), g.Host("ms1").Crash)
		rt.Sleep(time.Millisecond)
		g.At(g.Now(), func() {
			g.Host("ms1").Restart()
			g.memory("ms1")
		})
		// As many keys as find room take all nodes that can be had. The metadata server learns of the loss by that.
		last := key
		for failed := 0; last < 60 && failed < 2; {
			k := uint64(last + 1)
			switch err := c.Insert(k, value(k, 0, size), rt.Now().Add(time.Second)); {
			case err == nil, errors.Is(err, kv.ErrExists): // by the attempt before
				last++
			default:
				failed++
			}
		}
		if g.server.Snapshot().Losses == 0 || rt.Now() >= began.Add(lease) {
			return fmt.Errorf("with %d keys the loss is not known, or the lease has ended at %v", last, rt.Now())
		}
		l.send = true
		rt.Sleep(10 * time.Millisecond)
		t.Logf("%d keys", last)
		_, err := c.Get(key, nil, rt.Now().Add(time.Second))
		if !errors.Is(err, kv.ErrLost) {
			return fmt.Errorf("with %d more keys: the append came, its node is lost; GET says: %w", last-key, err)
		}
		rt.Sleep(2*lease + 100*time.Millisecond)
		for n := 1; n < 5; n++ { // nodes of both servers are used
			for k := key + 1; k <= last; k++ {
				if err := c.Put(uint64(k), value(uint64(k), n, size), soon(rt)); err != nil {
					return fmt.Errorf("PUT %d of key %d: %w", n, k, err)
				}
			}
		}
		for k := key + 1; k <= last; k++ {
			v, err := c.Get(uint64(k), nil, soon(rt))
			if err != nil || !bytes.Equal(v, value(uint64(k), 4, size)) {
				return fmt.Errorf("key %d is %.20q: %w", k, v, err)
			}
		}
		return c.Insert(key, value(key, 2, size), soon(rt))
	})
	g.run()
	if err := g.Settle(4 * lease); err != nil {
		t.Fatal(err)
	}
	if st := g.server.Snapshot(); st.Broken > 0 || st.Held > 0 || st.Linked != st.Keys {
		t.Errorf("%+v", st)
	}
}
