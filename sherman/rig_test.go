package sherman_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const rackYAML = `
name: sherman
hosts:
  - {name: "ms[0-1]", role: memory}
  - {name: "cn[0-3]", role: compute}
`

// rig is a rack in virtual time with memory services.
type rig struct {
	*simrack.Rack
	t       *testing.T
	region  int
	servers []netip.Addr
}

func newRig(t *testing.T, opt simrack.Options, region int) *rig {
	t.Helper()
	s, err := rackfile.Parse([]byte(rackYAML))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	g := &rig{Rack: r, t: t, region: region}
	for _, name := range []string{"ms0", "ms1"} {
		g.memory(name)
		g.servers = append(g.servers, g.Host(name).Addr())
	}
	return g
}

// memory starts the passive memory service of a host.
func (g *rig) memory(name string) {
	h := g.Host(name)
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{
			Region: g.region, Locks: 8 * layout.DefaultLocks,
		})
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			g.t.Error(name, err)
		}
	})
}

// format makes the tree.
func (g *rig) format(f sherman.FormatConfig) {
	g.t.Helper()
	h := g.Host("cn0")
	h.Go("format", false, func(ctx verbs.Context) {
		cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx)}
		if _, err := sherman.Format(cfg, g.servers, f, soon(ctx.Runtime())); err != nil {
			g.t.Error(err)
		}
	})
	g.run()
}

func (g *rig) node(cfg sherman.NodeConfig) *sherman.Node {
	g.t.Helper()
	cfg.Servers = g.servers
	n, err := sherman.NewNode(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// client runs f as an application of a host with a client of a node.
func (g *rig) client(host string, n *sherman.Node, f func(c *sherman.Client, rt verbs.Runtime) error) {
	h := g.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := n.Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, rt.Now().Add(20*time.Second))
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

const region = 4 << 20

func soon(rt verbs.Runtime) clock.Time { return rt.Now().Add(10 * time.Second) }
