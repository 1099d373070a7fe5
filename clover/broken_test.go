package clover_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Clients end their connections while the metadata server is busy and their requests wait in its
// completion queue. The server posts the receives of these requests again: after more such requests
// than there are receives, no request draws an RNR NAK.
func TestBrokenClientsKeepNoReceives(t *testing.T) {
	const rounds, clients, requests = 6, 80, 12 // the server has 4096 receives
	g := newRig(t, simrack.Options{Datagrams: true}, meta.Config{Format: layout.Hardened, Keys: 64}, region)
	stalled := make([]bool, rounds)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		for i := range rounds {
			if err := c.Insert(uint64(2*i), value(1, 0, 64), soon(rt)); err != nil {
				return err
			}
			// The WRITEs of the metadata server to memory are lost, so it waits for their
			// acknowledgements. Its answers to clients have another opcode and are not lost.
			g.Host("md0").SetFaults([]fault.Rule{{
				Link: "md0", Dir: fault.Up, Kind: fault.Loss, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteOnly}},
			}})
			stalled[i] = true
			err := c.Insert(uint64(2*i+1), value(1, 0, 64), rt.Now().Add(300*time.Millisecond))
			g.Host("md0").SetFaults(nil)
			if err == nil {
				return fmt.Errorf("round %d: an INSERT that the metadata server could not record", i)
			}
			rt.Sleep(3 * time.Second) // until nothing is in flight
		}
		return nil
	})
	for n := range clients {
		h := g.Host("cn1")
		h.Go("breaks off", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for i := range rounds {
				for !stalled[i] {
					rt.Sleep(10 * time.Millisecond)
				}
				if err := breakOff(g, h, ctx, requests); err != nil {
					t.Errorf("client %d: %v", n, err)
				}
			}
		})
	}
	g.run()
	md := g.Host("md0").Counters()
	if md.SendRnrErr != 0 {
		t.Errorf("the metadata server had no receive for %d requests", md.SendRnrErr)
	}
}

// Close returns for a client whose application was killed before it reported its appends.
func TestCloseAfterTheContext(t *testing.T) {
	g := newRig(t, simrack.Options{Datagrams: true}, meta.Config{Format: layout.Hardened, Keys: 64}, region)
	h, closed := g.Host("cn0"), false
	h.Go("killed", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(rt))
		if err == nil {
			err = errors.Join(c.Insert(1, value(1, 0, 64), soon(rt)), c.Put(1, value(1, 1, 64), soon(rt)), ctx.Close())
		}
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.Close() // the metadata server finds the appends that the client could not report
		closed = true
	})
	g.run()
	if !closed {
		t.Error("the client did not end")
	}
}

// breakOff sends requests and ends the connection before they are answered.
func breakOff(g *rig, h *simrack.Host, ctx verbs.Context, requests int) error {
	f, err := remotemem.New(remotemem.Config{Context: ctx, Buffer: rpc.MaxRequest})
	if err != nil {
		return err
	}
	peer, err := f.AddPeer(g.Host("md0").Addr(), 1, rdmacmDial(g, h, ctx))
	if err != nil {
		return err
	}
	until := ctx.Runtime().Now().Add(5 * time.Second)
	if err := f.Open(peer, until); err != nil {
		return err
	}
	r := rpc.Request{Op: rpc.OpBeat}
	b := r.AppendTo(nil)
	if err := f.MR().WriteAt(b, 0); err != nil {
		return err
	}
	ops := make([]*remotemem.Op, requests)
	for i := range ops {
		ops[i] = new(remotemem.Op)
		f.Send(ops[i], peer, 0, len(b))
		if err := f.Start(ops[i]); err != nil {
			return err
		}
	}
	_ = f.Wait(until, ops...) // this waits for the acknowledgements, not for the answers
	return f.Close()
}

func rdmacmDial(g *rig, h *simrack.Host, ctx verbs.Context) remotemem.Connect {
	manager := h.Manager(ctx)
	return func(qp verbs.QP, until clock.Time) error {
		_, err := manager.Dial(qp, g.Host("md0").Addr(), rpc.Service, rdmacm.Params{}, nil, until)
		return err
	}
}
