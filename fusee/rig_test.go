package fusee_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// rig is a rack in virtual time with memory services.
type rig struct {
	*simrack.Rack
	t       testing.TB
	servers []netip.Addr
	memory  [][]byte // of the servers
	params  rdmacm.Params
	lease   time.Duration // of clients
	// published: clients have the holes of the public code.
	published bool
	// patience is how long a client lets a master be silent.
	patience time.Duration
	// ahead is Config.Ahead of all clients.
	ahead int
	// wrap, if set, puts a context with a bug around a client's.
	wrap func(verbs.Context) verbs.Context
}

// region is how much memory a server has. A store writes zeros into all of it when it is made, and
// nearly all tests make one, or hundreds. Those whose point is how much fits take large.
const (
	region = 512 << 10
	large  = 2 << 20
)

func newRig(t testing.TB, servers int, opt simrack.Options) *rig {
	t.Helper()
	return newRigOf(t, servers, region, opt)
}

// newRigOf makes a rig whose servers have that much memory.
func newRigOf(t testing.TB, servers, size int, opt simrack.Options) *rig {
	t.Helper()
	s, err := rackfile.Parse(fmt.Appendf(nil, "name: fusee\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-3]\", role: compute}\n", servers-1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	g := &rig{Rack: r, t: t}
	for i := range servers {
		g.servers = append(g.servers, g.Host(fmt.Sprintf("ms%d", i)).Addr())
		g.memory = append(g.memory, make([]byte, size))
		g.serve(i)
	}
	return g
}

// serve runs the memory service of a server.
func (g *rig) serve(i int) {
	h := g.Host(fmt.Sprintf("ms%d", i))
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Buffer: g.memory[i]})
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			g.t.Error(h.Spec.Name, err)
		}
	})
}

// restart brings a server back that has crashed. Its memory is empty.
func (g *rig) restart(i int) {
	clear(g.memory[i])
	g.Host(fmt.Sprintf("ms%d", i)).Restart()
	g.serve(i)
}

func (g *rig) config(h *simrack.Host, ctx verbs.Context) fusee.Config {
	if g.wrap != nil {
		ctx = g.wrap(ctx)
	}
	return fusee.Config{Context: ctx, Manager: h.Manager(ctx), Servers: g.servers, Params: g.params, Lease: g.lease, ClientLease: g.patience, Ahead: g.ahead, Published: g.published}
}

// format makes the store.
func (g *rig) format(f fusee.FormatConfig) {
	g.t.Helper()
	h := g.Host("cn0")
	h.Go("format", false, func(ctx verbs.Context) {
		cfg := fusee.Config{Context: ctx, Manager: h.Manager(ctx), Servers: g.servers, Params: g.params}
		if s, err := fusee.Format(cfg, f, soon(ctx.Runtime())); err != nil {
			g.t.Error(err)
		} else if testing.Verbose() {
			g.t.Logf("%+v", s.Shape)
		}
	})
	g.run()
}

// client runs f as an application of a host with a client.
func (g *rig) client(host string, f func(c *fusee.Client, rt verbs.Runtime) error) {
	g.clientAfter(host, func(verbs.Runtime) {}, f)
}

// clientAfter is client, but calls first before it opens the client.
func (g *rig) clientAfter(host string, first func(rt verbs.Runtime), f func(c *fusee.Client, rt verbs.Runtime) error) {
	h := g.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		first(rt)
		c, err := fusee.Open(g.config(h, ctx), soon(rt))
		if err == nil {
			err = errors.Join(f(c, rt), c.Close())
		}
		if err != nil {
			g.t.Errorf("client of %s: %v", host, err)
		}
	})
}

func (g *rig) run() {
	g.t.Helper()
	if err := g.Run(); err != nil {
		g.t.Fatal(err)
	}
}

func soon(rt verbs.Runtime) clock.Time { return rt.Now().Add(10 * time.Second) }
