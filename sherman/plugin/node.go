package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Control requests of the tree, as last parts of a path. Every host that has clients is a compute
// node; there is no server but the memory services.
const (
	PathStat  = "stat"  // POST: Stat
	PathCheck = "check" // POST CheckRequest: Checked
	PathLoad  = "load"  // POST LoadRequest: Loaded
)

// node is the store's part of a host. What the host knows is the compute node that it is.
type node struct {
	store.Passive[tree, *sherman.Client]
}

func newNode(h store.Host) store.Node {
	return &node{store.Passive[tree, *sherman.Client]{Host: h, Store: &Store, What: "tree", Dial: (*tree).open}}
}

// Routes implements store.Node.
func (n *node) Routes(m *control.Mux) {
	n.Stops(m)
	post := func(request string) string { return "POST " + Store.Path(request) }
	control.Handle(m, post(store.PathStart), n.start)
	control.Handle(m, post(PathStat), func(r *http.Request, _ struct{}) (Stat, error) { return n.stat(r) })
	control.Handle(m, post(PathCheck), n.check)
	control.Handle(m, post(PathLoad), n.load)
}

// Status implements store.Node. The values are in the order of columns.
func (n *node) Status() store.Status {
	t, _, err := n.Known()
	if err != nil {
		return store.Status{}
	}
	s := t.node.Stats()
	return store.Status{Up: true, Values: []uint64{s.Acquires, s.HandOvers, s.Fenced}}
}

// columns are the names of the values of Status.
var columns = []string{"LOCKS", "HANDED", "FENCED"}

// Config describes a tree and how a host uses it. It is the body of store.PathStart.
type Config struct {
	store.Finding
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
	// Step names one of sherman.Steps; "": Sherman. It decides how the host uses the tree. For a new
	// tree, a step other than Sherman also decides Layout, and whether pages have their lock words.
	Step string `json:"step,omitempty"`
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
	PageLocks  bool   `json:"pageLocks,omitempty"`
	Chunk      int    `json:"chunk"`
	// Made: this request has made the tree.
	Made bool `json:"made,omitempty"`
}

func infoOf(s layout.Superblock) Info {
	return Info{
		Generation: s.Generation, Layout: kindName(s.Shape.Kind), Page: s.Shape.Page, Value: s.Shape.Value, Servers: s.Servers,
		Locks: s.Locks, HostLocks: s.HostLocks, PageLocks: s.PageLocks, Chunk: s.Chunk,
	}
}

// kinds of pages by name, also by the two older names that are still accepted.
var kinds = map[string]layout.Kind{
	"": layout.Hardened, "hardened": layout.Hardened, "published": layout.Published, "sound": layout.Hardened, "faithful": layout.Published,
	"checksummed": layout.Checksummed,
}

func kindOf(name string) (layout.Kind, error) {
	k, ok := kinds[name]
	if !ok {
		return k, fmt.Errorf("layout %q: want %s", name, strings.Join(layouts, ", "))
	}
	return k, nil
}

// settle applies the step, and returns the kind of pages of a new tree.
func (c *Config) settle() (layout.Kind, error) {
	step, err := sherman.FindStep(c.Step)
	if err != nil {
		return 0, err
	}
	c.Step = step.Name
	if step.Kind != layout.Hardened {
		if c.Layout != "" && kinds[c.Layout] != step.Kind {
			return 0, fmt.Errorf("layout %q: step %s has %s pages; leave out the layout", c.Layout, step.Name, kindName(step.Kind))
		}
		c.Layout = kindName(step.Kind)
	}
	return kindOf(c.Layout)
}

// fits returns an error if a tree that exists is not one of the step. Sherman uses every tree.
func (c *Config) fits(s layout.Superblock) error {
	step, err := sherman.FindStep(c.Step)
	want, have := lockPlace(step.PageLocks, c.HostLocks), lockPlace(s.PageLocks, s.HostLocks)
	if err != nil || step.Kind == layout.Hardened || step.Kind == s.Shape.Kind && want == have {
		return err
	}
	return control.Errorf(http.StatusConflict, "step %s has %s pages and locks %s, and the tree that is there has %s pages and locks %s; "+
		"`rdmalab sherman start --fresh --step %s` makes an empty tree in its place",
		c.Step, kindName(step.Kind), want, kindName(s.Shape.Kind), have, c.Step)
}

// lockPlace says where a tree has its lock words.
func lockPlace(inPages, host bool) string {
	switch {
	case inPages:
		return "in its pages"
	case host:
		return "in host memory"
	}
	return "on the NICs"
}

// kindName is the name of a kind of pages.
func kindName(k layout.Kind) string {
	return layouts[k]
}

// layouts are the names of the kinds of pages, in the order of the kinds.
var layouts = []string{"hardened", "published", "checksummed"}

// joinPatience bounds the time to connect to memory servers and to make a tree there; it allows for
// a busy machine.
const joinPatience = 20 * time.Second

// rackLease is the lease of locks on a rack: longer than a busy machine suspends a process that
// holds a lock.
const rackLease = 500 * time.Millisecond

// tree is the state of a host that is a compute node of a tree.
type tree struct {
	cfg  Config
	node *sherman.Node
	// generation names the tree: another one may be made on the same servers.
	generation uint64
}

// newTree makes the state of a compute node of a tree.
func newTree(in Config, servers []netip.Addr) (tree, error) {
	var node *sherman.Node
	step, err := sherman.FindStep(in.Step)
	if err == nil {
		node, err = sherman.NewNode(step.Node(sherman.NodeConfig{
			Servers: servers, CacheBytes: in.Cache, HandOver: in.HandOver, Lease: in.Lease, BackOff: in.BackOff,
			LostSearch: kinds[in.Layout] == layout.Published,
		}))
	}
	if err != nil {
		err = control.Errorf(http.StatusBadRequest, "%v", err)
	}
	return tree{cfg: in, node: node}, err
}

// config is the configuration of a client.
func config(cfg passive.Config) sherman.Config {
	return sherman.Config{Context: cfg.Context, Manager: cfg.Manager}
}

// open opens a client.
func (t *tree) open(cfg passive.Config, deadline clock.Time) (*sherman.Client, error) {
	return t.node.Open(config(cfg), deadline)
}

// sameAs reports whether the two are the same tree, used in the same way.
func (t *tree) sameAs(o *tree) bool {
	return t.generation == o.generation && slices.Equal(t.cfg.Servers, o.cfg.Servers) && t.cfg.Lease == o.cfg.Lease && t.cfg.Cache == o.cfg.Cache &&
		t.cfg.HandOver == o.cfg.HandOver && t.cfg.BackOff == o.cfg.BackOff && kinds[t.cfg.Layout] == kinds[o.cfg.Layout] &&
		t.cfg.Step == o.cfg.Step
}

// start makes the host a compute node of a tree, and makes the tree if the configuration says so. A
// host that is a compute node of the same tree keeps its state.
func (n *node) start(r *http.Request, in Config) (out Info, err error) {
	kind, err := in.settle()
	if err != nil {
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	step, err := sherman.FindStep(in.Step)
	if err != nil {
		return out, err
	}
	in.Lease = cmp.Or(in.Lease, rackLease)
	t := new(tree)
	out.Made, err = n.Find(
		r, in.Finding, t, layout.ErrSuperblock,
		func(cfg passive.Config, deadline clock.Time) (err error) {
			out, err = n.join(t, in, cfg, deadline)
			return err
		},
		func(cfg passive.Config, deadline clock.Time) (err error) {
			if *t, err = newTree(in, cfg.Servers); err != nil {
				return err
			}
			s, err := sherman.Format(config(cfg), cfg.Servers, sherman.FormatConfig{
				Shape: layout.Shape{Kind: kind, Page: in.Page, Value: in.Value}, Locks: in.Locks, HostLocks: in.HostLocks, PageLocks: step.PageLocks,
			}, deadline)
			out, t.generation = infoOf(s), s.Generation
			return err
		},
	)
	return out, err
}

// join makes t a compute node of the tree on the servers: the one that the host is already, if that
// is of the same tree and, unless in.Keep, has the same settings; otherwise a new one.
func (n *node) join(t *tree, in Config, cfg passive.Config, deadline clock.Time) (out Info, err error) {
	young, err := newTree(in, cfg.Servers)
	if err != nil {
		return out, err
	}
	*t = young
	old, servers, err := n.Known()
	known := err == nil
	if known && in.Keep && slices.Equal(servers, in.Servers) {
		*t = *old
	}
	c, err := t.open(cfg, deadline)
	if t.node != young.node && errors.Is(err, kv.ErrLost) { // the host knows a tree that was replaced
		*t = young
		c, err = t.open(cfg, deadline)
	}
	if err != nil {
		return out, err
	}
	if err := in.fits(c.Super()); err != nil {
		return out, errors.Join(err, c.Close())
	}
	out = infoOf(c.Super())
	if t.generation = out.Generation; known && t.sameAs(old) {
		*t = *old
	}
	return out, c.Close()
}
