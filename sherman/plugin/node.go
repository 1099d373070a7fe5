package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Control requests of the tree, as last parts of a path. Every host that has clients is a compute
// node; there is no server but the memory services.
const (
	PathStat  = "stat"  // POST: Stat
	PathCheck = "check" // POST CheckRequest: Checked
	PathLoad  = "load"  // POST LoadRequest: Loaded
)

// node is the store's part of a host: the tree, if the host is a compute node of one.
type node struct {
	h store.Host

	mu   sync.Mutex // guards tree, and the generation of trees
	tree *tree
}

func newNode(h store.Host) store.Node { return &node{h: h} }

// Routes implements store.Node.
func (n *node) Routes(m *control.Mux) {
	type none = struct{}
	post := func(request string) string { return "POST " + Store.Path(request) }
	control.Handle(m, post(store.PathStart), n.start)
	control.Handle(m, post(store.PathStop), func(*http.Request, none) (none, error) { return none{}, n.Crash() })
	control.Handle(m, post(PathStat), func(r *http.Request, _ none) (Stat, error) { return n.stat(r) })
	control.Handle(m, post(PathCheck), n.check)
	control.Handle(m, post(PathLoad), n.load)
}

// Clients implements store.Node.
func (n *node) Clients(store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	t, err := n.theTree()
	return func(v verbs.Context) store.Clients { return &clients{t, n.config(v)} }, err
}

// clients opens clients of a tree in one verbs context.
type clients struct {
	tree *tree
	conf sherman.Config
}

// Open opens a client.
func (c *clients) Open(deadline clock.Time) (kv.Store, error) {
	s, err := c.tree.node.Open(c.conf, deadline)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close does nothing: clients share only what the node keeps.
func (*clients) Close() error { return nil }

// Status implements store.Node. The values are in the order of columns.
func (n *node) Status() store.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tree == nil {
		return store.Status{}
	}
	s := n.tree.node.Stats()
	return store.Status{Up: true, Values: []uint64{s.Acquires, s.HandOvers, s.Fenced}}
}

// columns are the names of the values of Status.
var columns = []string{"LOCKS", "HANDED", "FENCED"}

// Crash makes the host forget the tree. The memory servers keep it.
func (n *node) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tree = nil
	return nil
}

// NICGone leaves the tree as it is: clients connect again.
func (n *node) NICGone() error { return nil }

// Config describes a tree and how a host uses it.
type Config struct {
	// Servers are the names of the memory servers, in the same order on all hosts.
	Servers []string `json:"servers"`
	// Format makes a tree if there is none, Fresh also if there is one. Without both, there must be
	// a tree.
	Format bool `json:"format,omitempty"`
	Fresh  bool `json:"fresh,omitempty"`
	// Keep leaves the host as it is if it already is a compute node of a tree on these servers.
	Keep bool `json:"keep,omitempty"`
	// Layout is hardened or published, or an old name (kinds); "": hardened. Page and Value are in
	// bytes; 0: 1024 and 8.
	Layout string `json:"layout,omitempty"`
	Page   int    `json:"page,omitempty"`
	Value  int    `json:"value,omitempty"`
	// Locks is the number of lock words of each server; 0: 32768. HostLocks puts them into host
	// memory.
	Locks     int  `json:"locks,omitempty"`
	HostLocks bool `json:"hostLocks,omitempty"`
	// Lease is the lease of locks; 0: 500 ms, because a process may have to wait that long for a
	// processor. Cache is the size of the index cache in bytes; negative: none. See
	// sherman.NodeConfig for HandOver and BackOff.
	Lease    time.Duration `json:"leaseNs,omitempty"`
	Cache    int           `json:"cache,omitempty"`
	HandOver int           `json:"handOver,omitempty"`
	BackOff  time.Duration `json:"backOffNs,omitempty"`
}

// Info describes a tree that exists.
type Info struct {
	Generation uint64 `json:"generation"`
	Layout     string `json:"layout"`
	Page       int    `json:"page"`
	Value      int    `json:"value"`
	Servers    int    `json:"servers"`
	Locks      int    `json:"locks"`
	HostLocks  bool   `json:"hostLocks"`
	Chunk      int    `json:"chunk"`
	// Made: this request has made the tree.
	Made bool `json:"made,omitempty"`
}

func infoOf(s layout.Superblock) Info {
	return Info{
		Generation: s.Generation, Layout: kindName(s.Shape.Kind), Page: s.Shape.Page, Value: s.Shape.Value, Servers: s.Servers,
		Locks: s.Locks, HostLocks: s.HostLocks, Chunk: s.Chunk,
	}
}

// kinds of pages by name. The last two are the old names, which are still accepted.
var kinds = map[string]layout.Kind{
	"": layout.Hardened, "hardened": layout.Hardened, "published": layout.Published, "sound": layout.Hardened, "faithful": layout.Published,
}

func kindOf(name string) (layout.Kind, error) {
	k, ok := kinds[name]
	if !ok {
		return k, fmt.Errorf("layout %q: want hardened or published", name)
	}
	return k, nil
}

// kindName is the name of a kind of pages.
func kindName(k layout.Kind) string {
	if k == layout.Published {
		return "published"
	}
	return "hardened"
}

// joinPatience bounds the time to connect to memory servers and to make a tree there; it allows for
// a busy machine.
const joinPatience = 20 * time.Second

// rackLease is the lease of locks on a rack: longer than a busy machine suspends a process that
// holds a lock.
const rackLease = 500 * time.Millisecond

// tree is the state of a host that is a compute node of a tree.
type tree struct {
	cfg   Config
	addrs []netip.Addr
	node  *sherman.Node
	// generation names the tree: another one may be made on the same servers. The lock of the
	// host's node guards it.
	generation uint64
}

// errNoTree returns the error of a host that is not a compute node of a tree.
func errNoTree(name string) error {
	return control.Errorf(http.StatusConflict, "%s knows no tree; start one: `rdmalab sherman start`", name)
}

// newTree makes the state of a compute node of a tree.
func (n *node) newTree(cfg Config) (*tree, error) {
	if cfg.Lease == 0 {
		cfg.Lease = rackLease
	}
	t := &tree{cfg: cfg}
	for _, name := range cfg.Servers {
		addr, err := n.h.Address(name)
		if err != nil {
			return nil, err
		}
		t.addrs = append(t.addrs, addr)
	}
	var err error
	t.node, err = sherman.NewNode(sherman.NodeConfig{
		Servers: t.addrs, CacheBytes: cfg.Cache, HandOver: cfg.HandOver, Lease: cfg.Lease, BackOff: cfg.BackOff, LostSearch: kinds[cfg.Layout] == layout.Published,
	})
	if err != nil {
		return nil, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	return t, nil
}

// start makes the host a compute node of a tree, and makes the tree if the configuration says so. A
// host that is a compute node of the same tree keeps its state.
func (n *node) start(r *http.Request, cfg Config) (out Info, err error) {
	kind, err := kindOf(cfg.Layout)
	if err != nil {
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	young, err := n.newTree(cfg)
	if err != nil {
		return out, err
	}
	t := young
	if old, err := n.theTree(); cfg.Keep && err == nil && slices.Equal(old.addrs, t.addrs) {
		t = old
	}
	err = n.h.Do(r, "sherman start", func(_ context.Context, v verbs.Context) error {
		rt, conf := v.Runtime(), n.config(v)
		deadline := rt.Now().Add(joinPatience)
		if !cfg.Fresh {
			c, err := t.node.Open(conf, deadline)
			if t != young && errors.Is(err, kv.ErrLost) { // the host knows a tree that was replaced
				t = young
				c, err = t.node.Open(conf, deadline)
			}
			if err == nil {
				out = infoOf(c.Super())
				return c.Close()
			}
			if !cfg.Format || !errors.Is(err, layout.ErrSuperblock) {
				return err
			}
		}
		t = young // a host is a node of one tree at a time
		s, err := sherman.Format(conf, t.addrs, sherman.FormatConfig{
			Shape: layout.Shape{Kind: kind, Page: cfg.Page, Value: cfg.Value}, Locks: cfg.Locks, HostLocks: cfg.HostLocks,
		}, deadline)
		out = infoOf(s)
		out.Made = true
		return err
	})
	if err != nil {
		return out, store.HTTPError(err)
	}
	n.keep(t, out.Generation)
	n.h.Log().Info("compute node of a tree", "memory", cfg.Servers, "made", out.Made)
	return out, nil
}

// keep makes t the host's tree, unless the host has the same tree already.
func (n *node) keep(t *tree, generation uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.tree; old != nil && old.generation == generation && slices.Equal(old.addrs, t.addrs) && old.cfg.Lease == t.cfg.Lease && old.cfg.Cache == t.cfg.Cache &&
		old.cfg.HandOver == t.cfg.HandOver && old.cfg.BackOff == t.cfg.BackOff && kinds[old.cfg.Layout] == kinds[t.cfg.Layout] {
		return
	}
	n.tree, t.generation = t, generation
}

// theTree returns the host's tree. The value does not change while a caller uses it.
func (n *node) theTree() (*tree, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tree == nil {
		return nil, errNoTree(n.h.Name())
	}
	return n.tree, nil
}

// config returns the configuration of clients of the host.
func (n *node) config(v verbs.Context) sherman.Config {
	return sherman.Config{Context: v, Manager: n.h.Manager()}
}

// with runs f with a client of the tree.
func (n *node) with(r *http.Request, name string, f func(*tree, *sherman.Client, verbs.Runtime) error) error {
	t, err := n.theTree()
	if err != nil {
		return err
	}
	err = n.h.Do(r, Store.Name+" "+name, func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := t.node.Open(n.config(v), rt.Now().Add(joinPatience))
		if err != nil {
			return fmt.Errorf("%w; %s", err, Store.HowToStart())
		}
		return errors.Join(f(t, c, rt), c.Close())
	})
	return store.HTTPError(err)
}
