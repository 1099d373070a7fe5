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
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// late is a switch that holds the next append of a host until the test asks for it, even long after
// the client has given it up. All other copies of the append are lost, and so are the packets that
// would end the connection.
type late struct {
	simnet.Node
	port int // of the host
	keep bool
	kept []byte
	to   wire.QPN
	psn  wire.PSN
	send bool
}

// Frame forwards a frame. Once send is set, the append follows the next frame.
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

// options are the options of a rack with this switch. The first client is at port 3.
func (l *late) options() simrack.Options {
	l.port = 3
	return simrack.Options{Datagrams: true, Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		l.Node = n
		return l
	})}
}

const steeredYAML = `
name: clover
switch:
  program: swordbox
  rules:
    - {server: ms0, action: steer, steer: both}
    - {server: ms1, action: steer, steer: both}
`

// An append reaches the switch when its client has given the connection up, has looked for its
// node, and has appended it again. The switch must not steer it to the newest node then: the node
// would be in the chain twice, and the chain would be a circle.
func TestLateAppendIsNotSteered(t *testing.T) {
	l := &late{}
	g := newRigOf(t, steeredYAML+hostsYAML, l.options(), meta.Config{
		Format: layout.Hardened, Keys: 16, Shares: [layout.Classes]int{1}, Lease: 20 * time.Second, Grace: time.Second,
	}, 16<<10)
	const key, size = 1, 40
	ready, done := false, false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(key, value(key, 0, size), soon(rt)); err != nil {
			return err
		}
		for n := range 20 { // the client is then connected to both servers, and the switch knows the chain
			if err := c.Put(key, value(key, n, size), soon(rt)); err != nil {
				return err
			}
		}
		ready = true
		rt.Sleep(time.Millisecond) // the second client appends
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

// An append is late: its client gives the connection up, makes another one, and appends over that.
// When the append arrives, the memory server must not execute it: the client has stated to the
// metadata server that none of its earlier requests is in flight.
func TestLateAppendOfAFormerConnectionIsNotExecuted(t *testing.T) {
	l := &late{}
	g := newRigOf(t, rackYAML, l.options(), meta.Config{
		Format: layout.Hardened, Keys: 16, Shares: [layout.Classes]int{1}, Lease: 20 * time.Second, Grace: time.Second,
	}, 16<<10)
	const key, size = 1, 40
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(key, value(key, 0, size), soon(rt)); err != nil {
			return err
		}
		l.keep = true
		if err := c.Put(key, value(key, 1, size), soon(rt)); err != nil {
			return err
		}
		atomics := func() uint64 {
			a, b := g.Host("ms0").Counters(), g.Host("ms1").Counters()
			return a.RxAtomicRequests + b.RxAtomicRequests
		}
		before := atomics()
		if l.send = true; l.kept == nil {
			return errors.New("no append was kept")
		}
		for range 2 { // the append follows a frame
			if _, err := c.Get(key, nil, soon(rt)); err != nil {
				return err
			}
		}
		rt.Sleep(time.Millisecond)
		if n := atomics(); l.send || n != before {
			return fmt.Errorf("the append was sent: %v, and %d atomics more were executed", !l.send, n-before)
		}
		return nil
	})
	g.run()
}
