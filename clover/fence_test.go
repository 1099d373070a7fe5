package clover_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client dies that holds nodes of ms1 only. ms0 does not answer, and a request of the client that
// appends one of these nodes may be in flight to it. So the nodes are not taken back until ms0 has
// ended the client's connections.
func TestNodesWaitForTheFence(t *testing.T) {
	const lease = 100 * time.Millisecond
	g := newRig(t, simrack.Options{Datagrams: true}, meta.Config{
		Format: layout.Hardened, Keys: 64, Lease: lease, Grace: lease, Params: rdmacm.Params{Timeout: 8, RetryCount: 1},
	}, region)
	h := g.Host("cn0")
	h.Go("dies", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		l, err := newLine(g, h, ctx)
		var a, b rpc.Answer
		if err == nil {
			a, err = l.ask(rpc.Request{Op: rpc.OpHello}, 1)
		}
		if err == nil {
			b, err = l.ask(rpc.Request{Op: rpc.OpAlloc, N: 8, Client: a.Welcome.Client}, 2)
		}
		if err != nil {
			t.Error(err)
			return
		}
		back := rpc.Request{Op: rpc.OpReturn, Client: a.Welcome.Client}
		for _, at := range b.Locations[:b.N] {
			if p, _ := a.Welcome.Space.Place(at.Handle); p.Server == 0 {
				back.Records[back.N].New = at
				back.N++
			}
		}
		if _, err := l.ask(back, 3); err != nil || back.N != 4 {
			t.Errorf("%d nodes go back: %v", back.N, err)
		}
		ms0 := g.Host("ms0")
		g.At(rt.Now(), func() { ms0.SetLink(false) })
		rt.Sleep(20 * lease)
		if st := g.server.Snapshot(); st.Clients != 1 || st.Held != 4 {
			t.Errorf("while a memory server does not answer, %d clients hold %d nodes", st.Clients, st.Held)
		}
		g.At(rt.Now(), func() { ms0.SetLink(true) })
		rt.Sleep(40 * lease)
		if st := g.server.Snapshot(); st.Clients != 0 || st.Held != 0 {
			t.Errorf("after the fence %d clients hold %d nodes", st.Clients, st.Held)
		}
	})
	g.run()
}

// Classes take segments while the store is used. A restarted metadata server finds every node that may
// be linked: it knows the classes from a table on each memory server, also of one whose memory was
// lost and formatted again.
func TestMetadataServerRestartsWithGrownClasses(t *testing.T) {
	const keys, lease = 60, 200 * time.Millisecond
	for _, loses := range []bool{false, true} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Lease: lease, Grace: lease}, 70*layout.UsualSegment+200<<10)
		g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			want := make(map[uint64][]byte)
			put := func(n int, keys uint64) error {
				for k := range keys {
					v := value(k, n, []int{100, 400, 1500, 3000}[k%4])
					if k >= 32 {
						v = value(k, n, 3000)
					}
					err := c.Put(k, v, soon(rt))
					if err != nil {
						err = c.Insert(k, v, soon(rt))
					}
					if want[k] = v; err != nil {
						return fmt.Errorf("key %d: %w", k, err)
					}
				}
				return nil
			}
			if err := put(0, 32); err != nil {
				return err
			}
			if loses {
				g.At(rt.Now(), g.Host("ms1").Crash)
				g.At(rt.Now().Add(time.Millisecond), func() {
					g.Host("ms1").Restart()
					g.memory("ms1")
				})
				rt.Sleep(4 * lease) // after that, the nodes in the lost memory are given out again
				for n := range 4 {
					// the new keys need more such nodes than a segment of the other server has
					if err := put(1+n, keys); err != nil {
						return err
					}
				}
			}
			g.At(rt.Now(), g.Host("md0").Crash)
			g.At(rt.Now().Add(time.Millisecond), func() {
				g.Host("md0").Restart()
				g.meta()
			})
			rt.Sleep(4 * lease)
			for k, size := range map[uint64]int{60: 200, 61: 900} { // classes that have no segment yet
				if err := c.Insert(k, value(k, 0, size), rt.Now().Add(2*time.Second)); err != nil {
					return err
				}
				for n := range 60 {
					if err := c.Put(k, value(k, n, size), rt.Now().Add(2*time.Second)); err != nil {
						return err
					}
				}
			}
			for k := range uint64(len(want)) {
				if v, err := c.Get(k, nil, rt.Now().Add(2*time.Second)); err != nil || !bytes.Equal(v, want[k]) {
					return fmt.Errorf("memory was lost before: %v; key %d is %.20q: %w", loses, k, v, err)
				}
			}
			return nil
		})
		g.run()
		if st := g.server.Snapshot(); st.Broken > 0 || st.LostKeys > 0 {
			t.Errorf("%+v", st)
		}
	}
}
