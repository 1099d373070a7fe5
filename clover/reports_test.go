package clover_test

import (
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
)

// between cuts the path between two hosts while drop is set.
type between struct {
	simnet.Node
	a, b [4]byte
	drop bool
}

func (l *between) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if l.drop && wire.ParseFrame(f.Data, &g) == nil && (g.IPv4.Src == l.a && g.IPv4.Dst == l.b || g.IPv4.Src == l.b && g.IPv4.Dst == l.a) {
		return
	}
	l.Node.Frame(now, port, f, out)
}

// TestReportsGoOn: a report is in flight when the connection to the metadata server fails during a
// call, which makes another connection. Later appends are reported on that one.
func TestReportsGoOn(t *testing.T) {
	l := &between{}
	g := newRigOf(t, rackYAML, simrack.Options{Datagrams: true, Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		l.Node = n
		return l
	})}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}, Lease: 20 * time.Second, Grace: 20 * time.Second}, 64<<10)
	l.a, l.b = g.Host("cn0").Addr().As4(), g.Host("md0").Addr().As4()
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), Records: 1}, rt.Now().Add(20*time.Second))
		if err == nil {
			err = func() error {
				if err := c.Insert(1, value(1, 0, 40), soon(rt)); err != nil {
					return err
				}
				for n := range 4 {
					if err := c.Put(1, value(1, n, 40), soon(rt)); err != nil {
						return err
					}
				}
				rt.Sleep(10 * time.Millisecond)
				l.drop = true
				if err := c.Put(1, value(1, 9, 40), soon(rt)); err != nil { // its report is not answered
					return err
				}
				g.At(rt.Now().Add(600*time.Millisecond), func() { l.drop = false })
				if err := c.Insert(2, value(2, 0, 40), soon(rt)); err != nil {
					return err
				}
				before := g.server.Snapshot().Requests
				for n := range 10 {
					if err := c.Put(1, value(1, 10+n, 40), soon(rt)); err != nil {
						return err
					}
					rt.Sleep(time.Millisecond)
				}
				if n := g.server.Snapshot().Requests - before; n < 10 {
					return fmt.Errorf("10 PUTs, each to be reported, made %d requests", n)
				}
				began := rt.Now()
				err := c.Close()
				rt.Sleep(100 * time.Millisecond)
				if st := g.server.Snapshot(); st.Clients != 0 || st.Held != 0 {
					return errors.Join(err, fmt.Errorf("Close took %v; %d clients, %d nodes held", rt.Now().Sub(began), st.Clients, st.Held))
				}
				return err
			}()
		}
		if err != nil {
			t.Error(err)
		}
	})
	g.run()
}

// The clients of a process that share a Reporter make fewer calls for the same appends than clients
// that report by themselves, and the metadata server hears of all of them.
func TestReporterMerges(t *testing.T) {
	const clients, puts = 48, 100
	requests := func(merge bool) uint64 {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}}, 1<<20)
		h := g.Host("cn0")
		h.Go("process", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			cfg := clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), Records: 4}
			r := clover.NewReporter(cfg)
			if merge {
				cfg.Reporter = r
			}
			for id := range uint64(clients) {
				rt.Go(fmt.Sprint("client", id), func() {
					c, err := clover.Open(cfg, soon(rt))
					if err == nil {
						err = c.Insert(id, value(id, 0, 40), soon(rt))
					}
					for n := 0; n < puts && err == nil; n++ {
						err = c.Put(id, value(id, n, 40), soon(rt))
					}
					if err == nil {
						err = c.Close()
					}
					if err != nil {
						t.Errorf("client %d: %v", id, err)
					}
				})
			}
			rt.Wait()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		g.run()
		if err := g.Settle(time.Second); err != nil {
			t.Fatal(err)
		}
		st := g.server.Snapshot()
		if st.Held != 0 || st.Linked != clients || st.Refused != 0 || st.Clients != 0 {
			t.Errorf("counters %+v", st)
		}
		return st.Requests
	}
	alone, merged := requests(false), requests(true)
	t.Logf("%d requests, merged %d", alone, merged)
	if 2*merged > alone {
		t.Errorf("%d requests; if each client reports by itself, %d", merged, alone)
	}
}
