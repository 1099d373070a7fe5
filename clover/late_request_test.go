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
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// line is one connection to the metadata server, over which a test sends requests as a client would
// send them.
type line struct {
	fab      *remotemem.Fabric
	peer     int
	op       remotemem.Op
	answered bool
}

func newLine(g *rig, h *simrack.Host, ctx verbs.Context) (*line, error) {
	f, err := remotemem.New(remotemem.Config{Context: ctx, Buffer: rpc.MaxRequest + rpc.AnswerSlots*rpc.MaxAnswer, Access: verbs.RemoteWrite})
	if err != nil {
		return nil, err
	}
	l := &line{fab: f}
	f.OnNotify(func(uint32) { l.answered = true })
	l.peer, err = f.AddPeer(g.Host("md0").Addr(), rpc.AnswerSlots, rdmacmDial(g, h, ctx))
	if err != nil {
		return nil, err
	}
	for ; g.server == nil; ctx.Runtime().Sleep(time.Millisecond) {
	}
	return l, f.Open(l.peer, ctx.Runtime().Now().Add(5*time.Second))
}

// send posts a request with the given number.
func (l *line) send(r rpc.Request, seq uint32) error {
	mr := l.fab.MR()
	r.Seq, r.BufAddr, r.BufRKey = seq<<1, mr.Addr()+rpc.MaxRequest, mr.RKey()
	b := r.AppendTo(nil)
	if err := mr.WriteAt(b, 0); err != nil {
		return err
	}
	l.answered = false
	l.fab.Send(&l.op, l.peer, 0, len(b))
	return l.fab.Do(l.fab.Runtime().Now().Add(5*time.Second), &l.op)
}

// ask sends a request and returns the answer.
func (l *line) ask(r rpc.Request, seq uint32) (a rpc.Answer, err error) {
	if err := l.send(r, seq); err != nil {
		return a, err
	}
	if err := l.fab.Until(l.fab.Runtime().Now().Add(5*time.Second), func() bool { return l.answered }); err != nil {
		return a, fmt.Errorf("%v: %w", r.Op, err)
	}
	var b [rpc.MaxAnswer]byte
	if err := l.fab.MR().ReadAt(b[:], rpc.MaxRequest); err != nil {
		return a, err
	}
	return a, a.Parse(b[:], r.Op)
}

// lines runs f with two connections of one client. The packets on the first connection are late.
func lines(t *testing.T, f func(g *rig, former, present *line, rt verbs.Runtime) error) {
	t.Helper()
	g := newRig(t, simrack.Options{Datagrams: true}, meta.Config{Format: layout.Hardened, Keys: 64}, region)
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		former, err := newLine(g, h, ctx)
		var present *line
		if err == nil {
			present, err = newLine(g, h, ctx)
		}
		if err == nil {
			err = f(g, former, present, ctx.Runtime())
		}
		if err == nil {
			err = errors.Join(former.fab.Close(), present.fab.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	g.run()
}

// A client says hello again. The request is late, so the client repeats it on another connection
// and gets an answer there. Then the first copy arrives. The metadata server must not take it for
// the end of the client's present number, whose nodes it would give to others.
func TestLateHelloEndsNoClient(t *testing.T) {
	lines(t, func(g *rig, former, present *line, rt verbs.Runtime) error {
		a, err := former.ask(rpc.Request{Op: rpc.OpHello}, 1)
		if err != nil {
			return err
		}
		again := rpc.Request{Op: rpc.OpHello, Client: a.Welcome.Client, Owner: a.Welcome.Owner, Quiet: true}
		if a, err = present.ask(again, 3); err != nil {
			return err
		}
		if a.Welcome.Owner != again.Owner {
			return fmt.Errorf("owner %d, and %d before", a.Welcome.Owner, again.Owner)
		}
		b, err := present.ask(rpc.Request{Op: rpc.OpAlloc, N: 4, Client: a.Welcome.Client}, 4)
		if err != nil || b.N != 4 {
			return fmt.Errorf("%d nodes: %w", b.N, err)
		}
		if err := former.send(again, 2); err != nil {
			return err
		}
		rt.Sleep(100 * time.Millisecond) // the server ends leases at intervals
		if st := g.server.Snapshot(); st.Clients != 1 || st.Held != 4 {
			return fmt.Errorf("%d clients hold %d nodes, want one with 4", st.Clients, st.Held)
		}
		if b, err = present.ask(rpc.Request{Op: rpc.OpBeat, Client: a.Welcome.Client}, 5); err != nil || b.Status != rpc.OK {
			return fmt.Errorf("the client is answered %v: %w", b.Status, err)
		}
		return nil
	})
}

// An INSERT is late: the client repeats it on another connection, and is told that the key exists.
// It keeps the node for another key. Then the key is deleted, and the first copy of the request
// arrives. It must not open the key with the node.
func TestLateOpenOpensNoKey(t *testing.T) {
	const key = 7
	lines(t, func(g *rig, former, present *line, rt verbs.Runtime) error {
		h := g.Host("cn1")
		inserted, gone := false, false
		h.Go("other", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(rt))
			if err == nil {
				err = c.Insert(key, value(key, 0, 40), soon(rt))
			}
			for inserted = true; err == nil && !gone; rt.Sleep(time.Millisecond) {
			}
			if err == nil {
				err = errors.Join(c.Delete(key, soon(rt)), c.Close())
			}
			if gone = false; err != nil {
				g.t.Error(err)
			}
		})
		for ; !inserted; rt.Sleep(time.Millisecond) {
		}
		a, err := present.ask(rpc.Request{Op: rpc.OpHello}, 1)
		if err != nil {
			return err
		}
		id := a.Welcome.Client
		if a, err = present.ask(rpc.Request{Op: rpc.OpAlloc, N: 1, Client: id}, 2); err != nil || a.N != 1 {
			return fmt.Errorf("%d nodes: %w", a.N, err)
		}
		open := rpc.Request{Op: rpc.OpOpen, Key: key, At: a.Locations[0], Client: id}
		if a, err = present.ask(open, 4); err != nil || a.Status != rpc.Exists {
			return fmt.Errorf("%v: %w", a.Status, err)
		}
		for gone = true; gone; rt.Sleep(time.Millisecond) {
		}
		rt.Sleep(50 * time.Millisecond)
		if err := former.send(open, 3); err != nil {
			return err
		}
		rt.Sleep(10 * time.Millisecond)
		if a, err = present.ask(rpc.Request{Op: rpc.OpQuery, Key: key, Client: id}, 5); err != nil || a.Status != rpc.NotFound {
			return fmt.Errorf("the key is %v: %w", a.Status, err)
		}
		return nil
	})
}

// ackLoser is a switch that loses the acknowledgements of one host to another while drop is set.
type ackLoser struct {
	simnet.Node
	from int // the port of the host that sends the acknowledgements
	to   [4]byte
	drop bool
	lost int
}

func (l *ackLoser) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if l.drop && port == l.from && wire.ParseFrame(f.Data, &g) == nil && g.BTH.Opcode == wire.RCAck && g.IPv4.Dst == l.to {
		l.lost++
		return
	}
	l.Node.Frame(now, port, f, out)
}

// An INSERT fails although its record is in the directory, or the record's mirror: only the
// acknowledgement of the WRITE was lost. The record is on one of two memory servers, the mirror on the
// other one. The client dies, and later its node belongs to another key. A restarted metadata server
// must not find the first key by that record.
func TestRecordOfAFailedInsertIsErased(t *testing.T) {
	for ms := range 2 {
		t.Run(fmt.Sprint("ms", ms), func(t *testing.T) { recordIsErased(t, ms+1) })
	}
}

// recordIsErased tells the story with the acknowledgements lost that the host at a port of the switch
// sends to the metadata server.
func recordIsErased(t *testing.T, port int) {
	const key, other = 7, 1
	const lease = 200 * time.Millisecond
	l := &ackLoser{from: port}
	g := newRigOf(t, rackYAML, simrack.Options{Datagrams: true, Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		l.Node = n
		return l
	})}, meta.Config{
		Format: layout.Hardened, Keys: 4, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease, Params: rdmacm.Params{Timeout: 8, RetryCount: 1},
	}, 3<<10)
	l.to = g.Host("md0").Addr().As4()
	dead := false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		last := value(other, 0, 40)
		if err := c.Insert(other, last, soon(rt)); err != nil {
			return err
		}
		h := g.Host("cn1")
		h.Go("dies", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), Batch: 2}, soon(rt))
			if err != nil {
				t.Error(err)
				return
			}
			l.drop = true
			if err := c.Insert(key, value(key, 0, 40), rt.Now().Add(150*time.Millisecond)); err == nil || l.lost == 0 {
				t.Errorf("%d acknowledgements are lost, and the INSERT ends with %v", l.lost, err)
			}
			g.At(rt.Now(), h.CrashApps)
			dead = true
			rt.Sleep(time.Hour)
		})
		for ; !dead; rt.Sleep(time.Millisecond) {
		}
		rt.Sleep(lease) // for requests that wait in the metadata server
		l.drop = false
		rt.Sleep(4 * lease)
		for n := range 200 {
			last = value(other, n, 40)
			if err := c.Put(other, last, soon(rt)); err != nil {
				return fmt.Errorf("PUT %d: %w; %+v", n, err, g.server.Snapshot())
			}
		}
		g.At(rt.Now(), g.Host("md0").Crash)
		g.At(rt.Now().Add(time.Millisecond), func() {
			g.Host("md0").Restart()
			g.meta()
		})
		rt.Sleep(4 * lease)
		if v, err := c.Get(other, nil, soon(rt)); err != nil || !bytes.Equal(v, last) {
			return fmt.Errorf("the other key is %.20q: %w", v, err)
		}
		if v, err := c.Get(key, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
			return fmt.Errorf("the key is %.20q: %w", v, err)
		}
		return nil
	})
	g.run()
	if st := g.server.Snapshot(); st.Broken > 0 {
		t.Errorf("%+v", st)
	}
}
