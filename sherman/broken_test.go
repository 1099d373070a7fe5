package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// scribble writes bytes to memory without taking a lock.
func (g *rig) scribble(ctx verbs.Context, m rdmacm.Manager, a layout.Addr, b []byte) error {
	server, off := g.servers[a.Server()], a.Offset()
	f, err := remotemem.New(remotemem.Config{Context: ctx, Buffer: len(b)})
	if err != nil {
		return err
	}
	var mem memservice.Memory
	peer, err := f.AddPeer(server, 0, func(qp verbs.QP, until clock.Time) (err error) {
		mem, err = memservice.DialOwned(m, qp, server, rdmacm.Params{}, memservice.Claim{}, until)
		return err
	})
	end := soon(ctx.Runtime())
	if err = errors.Join(err, f.Open(peer, end), f.MR().WriteAt(b, 0)); err != nil {
		return err
	}
	var o remotemem.Op
	f.Write(&o, remotemem.Target{Peer: peer, Addr: mem.Addr + off, RKey: mem.RKey}, 0, len(b))
	return errors.Join(f.Do(end, &o), f.Close())
}

// If a page's sibling is missing, or leads back to the page, a write must fail, and a walk must
// end.
func TestDamagedSiblings(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		rt, m := ctx.Runtime(), h.Manager(ctx)
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: ctx, Manager: m}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for k := range uint64(200) { // so that the index cache knows the leaf
			if err := c.Insert(k, value(k, 0), soon(rt)); err != nil {
				t.Error(err)
			}
		}
		root, err := c.Root(soon(rt))
		b := make([]byte, c.Super().Shape.Page)
		var p layout.Page
		if err = errors.Join(err, c.ReadPage(root, b, soon(rt)), p.Parse(c.Super().Shape, b)); err != nil {
			t.Error(err)
		}
		leaf, _ := p.Separator(7)
		if err := c.ReadPage(leaf, b, soon(rt)); err != nil {
			t.Error(err)
		}
		for _, way := range []struct {
			to   layout.Addr
			want error
		}{{0, sherman.ErrBroken}, {leaf, kv.ErrTimeout}} {
			if err := p.Parse(c.Super().Shape, b); err != nil {
				t.Error(err)
			}
			p.End(5, way.to)
			if err := g.scribble(ctx, m, leaf, b); err != nil {
				t.Error(err)
			}
			for i, f := range []func(clock.Time) error{
				func(d clock.Time) error { return c.Upsert(7, value(7, 0), d) },
				func(d clock.Time) error { return c.Put(7, value(7, 0), d) },
				func(d clock.Time) error { _, err := c.Get(7, nil, d); return err },
				func(d clock.Time) error {
					return c.Scan(7, 9, func(uint64, []byte) bool { return true }, d)
				},
			} {
				began := rt.Now()
				err := f(began.Add(20 * time.Millisecond))
				if took := rt.Now().Sub(began); !errors.Is(err, way.want) || took > 100*time.Millisecond {
					t.Error(fmt.Errorf("operation %d, with the sibling set to %v: after %v: %w", i, way.to, took, err))
				}
			}
		}
		if _, err := c.Get(3, nil, soon(rt)); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.run()
}
