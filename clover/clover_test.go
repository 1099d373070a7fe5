package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

const rackYAML = "name: clover" + hostsYAML

const hostsYAML = `
hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-1]", role: memory}
  - {name: "cn[0-2]", role: compute}
`

// rig is a rack in virtual time with memory services and a metadata server.
type rig struct {
	*simrack.Rack
	t      *testing.T
	region int
	server *meta.Server
	cfg    meta.Config
	lent   map[string][]byte // the memory of each memory server
	owners map[string]*memservice.Owners
	fences *slowFences // makes the connections of the present metadata server
	// again: a metadata server that cannot load the store tries again, as an operator would.
	again bool
}

func newRig(t *testing.T, opt simrack.Options, cfg meta.Config, region int) *rig {
	t.Helper()
	return newRigOf(t, rackYAML, opt, cfg, region)
}

// atSwitch returns an Options.Wrap that replaces the switch by the result of wrap.
func atSwitch(wrap func(n simnet.Node) simnet.Node) func(name string, n simnet.Node) simnet.Node {
	return func(name string, n simnet.Node) simnet.Node {
		if name != rackfile.SwitchName {
			return n
		}
		return wrap(n)
	}
}

// newRigOf is newRig for the rack file rack, which may have more memory servers.
func newRigOf(t *testing.T, rack string, opt simrack.Options, cfg meta.Config, region int) *rig {
	t.Helper()
	s, err := rackfile.Parse([]byte(rack))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	g := &rig{Rack: r, t: t, region: region, cfg: cfg, lent: map[string][]byte{}, owners: map[string]*memservice.Owners{}}
	for _, h := range s.ByRole(rackfile.Memory) {
		g.memory(h.Name)
	}
	g.meta()
	return g
}

// memory starts the passive memory service of a host.
func (g *rig) memory(name string) {
	h := g.Host(name)
	h.Go("memory", true, func(ctx verbs.Context) {
		g.lent[name], g.owners[name] = make([]byte, g.region), new(memservice.Owners)
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Buffer: g.lent[name], Owners: g.owners[name]})
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			g.t.Error(name, err)
		}
	})
}

// meta starts the metadata server.
func (g *rig) meta() { g.metaOn("md0") }

// metaOn starts a metadata server on a host.
func (g *rig) metaOn(name string) {
	h := g.Host(name)
	h.Go("meta", true, func(ctx verbs.Context) {
		cfg := g.cfg
		g.fences = &slowFences{Manager: h.Manager(ctx), rt: ctx.Runtime(), done: map[netip.Addr]int{}}
		cfg.Context, cfg.Manager = ctx, g.fences
		cfg.Servers = nil
		for _, h := range g.Hosts() {
			if h.Spec.Role == rackfile.Memory {
				cfg.Servers = append(cfg.Servers, h.Addr())
			}
		}
		s, err := meta.New(cfg)
		for ; g.again && err != nil && !errors.Is(err, verbs.ErrClosed); s, err = meta.New(cfg) {
			ctx.Runtime().Sleep(time.Millisecond)
		}
		if err == nil {
			g.server = s
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			g.t.Error("metadata server:", err)
		}
	})
}

// client runs f as an application of a host with a client of the store.
func (g *rig) client(host string, f func(c *clover.Client, rt verbs.Runtime) error) {
	g.clientOf(host, clover.Config{}, f)
}

// clientOf is client with a configuration. The rig fills in the context, the manager and the
// address of the metadata server.
func (g *rig) clientOf(host string, cfg clover.Config, f func(c *clover.Client, rt verbs.Runtime) error) {
	h := g.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		cfg.Context, cfg.Manager, cfg.Meta = ctx, h.Manager(ctx), g.Host("md0").Addr()
		c, err := clover.Open(cfg, rt.Now().Add(20*time.Second))
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

const region = 1 << 20

func soon(rt verbs.Runtime) clock.Time { return rt.Now().Add(10 * time.Second) }

func value(key uint64, n, size int) []byte {
	b := bytes.Repeat([]byte{byte(n)}, size)
	copy(b, fmt.Sprintf("%d/%d/", key, n))
	return b
}

func TestOneClient(t *testing.T) {
	for _, format := range []layout.Format{layout.Hardened, layout.Keyed, layout.Published} {
		t.Run(fmt.Sprintf("%+v", format), func(t *testing.T) {
			g := newRig(t, simrack.Options{}, meta.Config{Format: format, Keys: 64}, region)
			g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error { return oneClient(c, rt, format) })
			g.run()
		})
	}
}

func oneClient(c *clover.Client, rt verbs.Runtime, f layout.Format) error {
	if _, err := c.Get(1, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
		return fmt.Errorf("a key that was not inserted: %w", err)
	}
	for key := uint64(1); key <= 20; key++ {
		for n := range 5 {
			v := value(key, n, f.Capacity(1024)) // without a length in the node, the value is as long as the node's space for it
			var err error
			if n == 0 {
				err = c.Insert(key, v, soon(rt))
			} else {
				err = c.Put(key, v, soon(rt))
			}
			if err != nil {
				return fmt.Errorf("write %d of key %d: %w", n, key, err)
			}
			got, err := c.Get(key, nil, soon(rt))
			if err != nil || !bytes.Equal(got, v) {
				return fmt.Errorf("key %d is %.20q, want %.20q: %w", key, got, v, err)
			}
		}
	}
	if err := c.Insert(7, value(7, 9, 100), soon(rt)); !errors.Is(err, kv.ErrExists) {
		return fmt.Errorf("insert of a key that exists: %w", err)
	}
	if err := c.Delete(7, soon(rt)); err != nil {
		return err
	}
	if _, err := c.Get(7, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
		return fmt.Errorf("a deleted key: %w", err)
	}
	if err := c.Put(7, value(7, 9, 100), soon(rt)); !errors.Is(err, kv.ErrNotFound) {
		return fmt.Errorf("put to a deleted key: %w", err)
	}
	v := value(7, 9, f.Capacity(128))
	if err := c.Insert(7, v, soon(rt)); err != nil {
		return fmt.Errorf("insert of a deleted key: %w", err)
	}
	got, err := c.Get(7, nil, soon(rt))
	if err != nil || !bytes.Equal(got, v) {
		return fmt.Errorf("key 7 is %.20q: %w", got, err)
	}
	return nil
}

// The conformance tests that every store passes.
func TestConformance(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d copies", replicas), func(t *testing.T) { testConformance(t, replicas) })
	}
}

func testConformance(t *testing.T, replicas int) {
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas}, replicas*4<<20)
	g.client("cn0", func(a *clover.Client, rt verbs.Runtime) error {
		h := g.Host("cn0")
		var b *clover.Client
		done := false
		h.Go("second", false, func(ctx verbs.Context) {
			var err error
			b, err = clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(ctx.Runtime()))
			if err != nil {
				t.Error(err)
			}
			for !done {
				ctx.Runtime().Sleep(time.Second)
			}
		})
		for b == nil {
			rt.Sleep(time.Millisecond)
		}
		defer func() { done = true }()
		return kvtest.Check(kvtest.Env{A: a, B: b, Now: rt.Now, Largest: layout.Hardened.Capacity(8192), Exact: true})
	})
	g.run()
}

// The published system's best case: GET one round trip, PUT two (Clover §4).
func TestBestCase(t *testing.T) {
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(1, value(1, 0, 1000), soon(rt)); err != nil {
			return err
		}
		// the first calls of the metadata server give the client a few nodes each, and that for the
		// PUT with number 16 gives 16
		const first, end = 16, 32
		for n := 1; n < end; n++ {
			if err := c.Put(1, value(1, n, 1000), soon(rt)); err != nil {
				return err
			}
			if n > first && c.Last() != (kv.Cost{RTTs: 2}) {
				t.Errorf("PUT %d: %+v", n, c.Last())
			}
			if _, err := c.Get(1, nil, soon(rt)); err != nil {
				return err
			}
			if n > first && c.Last() != (kv.Cost{RTTs: 1}) {
				t.Errorf("GET %d: %+v", n, c.Last())
			}
		}
		return nil
	})
	g.run()
}

// Several writers of one key: every write succeeds, and in the end every node is free or linked.
func TestContention(t *testing.T) {
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16, Lease: 50 * time.Millisecond, Grace: 50 * time.Millisecond}, 64<<10)
	writes := 0
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		return c.Insert(1, value(1, 0, 40), soon(rt))
	})
	g.run()
	for i := range 6 {
		g.client(fmt.Sprintf("cn%d", i%3), func(c *clover.Client, rt verbs.Runtime) error {
			for n := range 300 {
				if err := c.Put(1, value(1, n, 40), soon(rt)); err != nil {
					return fmt.Errorf("write %d: %w", n, err)
				}
				writes++
			}
			return nil
		})
	}
	g.run()
	if err := g.Settle(time.Second); err != nil {
		t.Fatal(err)
	}
	if writes != 1800 {
		t.Errorf("%d writes", writes)
	}
	st := g.server.Snapshot()
	if st.Keys != 1 || st.Linked != 1 || st.Held != 0 || st.Broken != 0 {
		t.Errorf("after all clients have gone: %+v", st)
	}
	t.Logf("%+v", st)
}
