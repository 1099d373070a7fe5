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

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Control requests of the store: the last part of their paths. Each host with clients is a compute
// node. The tree has no servers of its own: its clients use the memory services of the memory
// servers.
const (
	PathStat  = "stat"  // POST without a body, answered by Stat
	PathCheck = "check" // POST CheckRequest, answered by Checked
	PathLoad  = "load"  // POST LoadRequest, answered by Loaded
)

// node is the store's part of a host's daemon. When the host knows a tree, the host is a compute
// node of that tree.
type node struct {
	store.Passive[tree, *sherman.Client]
}

func newNode(h store.Host) store.Node {
	return &node{store.Passive[tree, *sherman.Client]{Host: h, Store: &Store, What: "tree", Dial: (*tree).open}}
}

func (n *node) Routes(m *control.Mux) {
	n.Stops(m)
	post := func(request string) string { return "POST " + Store.Path(request) }
	control.Handle(m, post(store.PathStart), n.start)
	control.Handle(m, post(PathStat), func(r *http.Request, _ struct{}) (Stat, error) { return n.stat(r) })
	control.Handle(m, post(PathCheck), n.check)
	control.Handle(m, post(PathLoad), n.load)
}

// Status implements store.Node. Its values are in the order of columns.
func (n *node) Status() store.Status {
	t, _, err := n.Known()
	if err != nil {
		return store.Status{}
	}
	s := t.node.Stats()
	return store.Status{Up: true, Values: []uint64{s.Acquires, s.HandOvers, s.Fenced}}
}

// columns are the names of the values that Status returns.
var columns = []string{"LOCKS", "HANDED", "FENCED"}

// Config describes a tree and how a host uses it. It is the body of store.PathStart.
type Config struct {
	store.Finding
	// Keep is true if the host should keep its settings in case it already is a compute node of a
	// tree on these servers.
	Keep bool `json:"keep,omitempty"`
	// Layout is hardened, published, checksummed, or an older name (see kinds); "" means hardened.
	// Page and Value are in bytes; 0 means 1024 and 8.
	Layout string `json:"layout,omitempty"`
	Page   int    `json:"page,omitempty"`
	Value  int    `json:"value,omitempty"`
	// Locks is the number of lock words on each server; 0 means 32768, or fewer if they do not fit.
	// HostLocks puts them into host memory.
	Locks     int  `json:"locks,omitempty"`
	HostLocks bool `json:"hostLocks,omitempty"`
	// Lease is the lease of locks; 0 means 500 ms (see rackLease). Cache is the size of the index
	// cache in bytes; 0 means 64 MiB. A negative number means that there is no cache. For HandOver
	// and BackOff see sherman.NodeConfig.
	Lease    time.Duration `json:"leaseNs,omitempty"`
	Cache    int           `json:"cache,omitempty"`
	HandOver int           `json:"handOver,omitempty"`
	BackOff  time.Duration `json:"backOffNs,omitempty"`
	// Step names one of sherman.Steps; "" means Sherman. It decides how the host uses the tree. A
	// step other than Sherman also decides the Layout of a new tree, and whether its lock words are
	// in the pages.
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
	// Made is true if this request has made the tree, which did not exist before.
	Made bool `json:"made,omitempty"`
}

func infoOf(s layout.Superblock) Info {
	return Info{
		Generation: s.Generation, Layout: layouts[s.Shape.Kind], Page: s.Shape.Page, Value: s.Shape.Value, Servers: s.Servers,
		Locks: s.Locks, HostLocks: s.HostLocks, PageLocks: s.PageLocks, Chunk: s.Chunk,
	}
}

// kinds are the kinds of pages by name. The two older names are still accepted.
var kinds = map[string]layout.Kind{
	"": layout.Hardened, "hardened": layout.Hardened, "published": layout.Published, "sound": layout.Hardened, "faithful": layout.Published,
	"checksummed": layout.Checksummed,
}

func kindOf(name string) (layout.Kind, error) {
	k, ok := kinds[name]
	if !ok {
		return k, fmt.Errorf("layout %.40q: %swant %s", name, nearest.Meant(name, layouts), strings.Join(layouts, ", "))
	}
	return k, nil
}

// settle takes the design that the configuration names (Config.Step, between FG+ and Sherman), and
// writes its full name and the name of its pages' layout into the configuration. It returns the
// design, and the kind of the pages of a new tree.
func (c *Config) settle() (step sherman.Step, kind layout.Kind, err error) {
	if step, err = sherman.FindStep(c.Step); err != nil {
		return step, 0, err
	}
	c.Step = step.Name
	if step.Kind != layout.Hardened {
		if c.Layout != "" && kinds[c.Layout] != step.Kind {
			return step, 0, fmt.Errorf("layout %q: step %s has %s pages; leave out the layout", c.Layout, step.Name, layouts[step.Kind])
		}
		c.Layout = layouts[step.Kind]
	}
	kind, err = kindOf(c.Layout)
	return step, kind, err
}

// fits returns an error if an existing tree does not fit the configured step. The step Sherman fits
// every tree.
func (c *Config) fits(s layout.Superblock) error {
	step, err := sherman.FindStep(c.Step)
	want, have := lockPlace(step.PageLocks, c.HostLocks), lockPlace(s.PageLocks, s.HostLocks)
	if err != nil || step.Kind == layout.Hardened || step.Kind == s.Shape.Kind && want == have {
		return err
	}
	return control.Errorf(http.StatusConflict, "step %s has %s pages and locks %s, and the tree that is there has %s pages and locks %s; "+
		"`rdmalab sherman start --fresh --step %s` makes an empty tree in its place",
		c.Step, layouts[step.Kind], want, layouts[s.Shape.Kind], have, c.Step)
}

// lockPlace says in words where a tree has its lock words.
func lockPlace(inPages, host bool) string {
	switch {
	case inPages:
		return "in its pages"
	case host:
		return "in host memory"
	}
	return "on the NICs"
}

// layouts are the names of the kinds of pages, in the order of the kinds.
var layouts = []string{"hardened", "published", "checksummed"}

// joinPatience is the time limit for connecting to memory servers and making a tree there. It
// leaves room for a busy machine.
const joinPatience = 20 * time.Second

// rackLease is the default lease of locks on a rack. It is longer than a process that holds a lock
// waits for a processor on a busy machine.
const rackLease = 500 * time.Millisecond

// tree is the state that makes a host a compute node of a tree.
type tree struct {
	cfg  Config
	node *sherman.Node
	// generation identifies the tree: another tree may be made later on the same servers.
	generation uint64
}

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

func config(cfg passive.Config) sherman.Config {
	return sherman.Config{Context: cfg.Context, Manager: cfg.Manager}
}

func (t *tree) open(cfg passive.Config, deadline clock.Time) (*sherman.Client, error) {
	return t.node.Open(config(cfg), deadline)
}

// sameAs reports whether t and o are the same tree, used with the same settings.
func (t *tree) sameAs(o *tree) bool {
	return t.generation == o.generation && slices.Equal(t.cfg.Servers, o.cfg.Servers) && t.cfg.Lease == o.cfg.Lease && t.cfg.Cache == o.cfg.Cache &&
		t.cfg.HandOver == o.cfg.HandOver && t.cfg.BackOff == o.cfg.BackOff && kinds[t.cfg.Layout] == kinds[o.cfg.Layout] &&
		t.cfg.Step == o.cfg.Step
}

// start makes the host a compute node of a tree. It makes the tree if in.Finding asks for that. If
// the host already is a compute node of the same tree with the same settings, it keeps its state.
func (n *node) start(r *http.Request, in Config) (out Info, err error) {
	step, kind, err := in.settle()
	if err != nil {
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
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

// join makes t a compute node of the existing tree on the servers. It keeps the host's present
// compute node if that belongs to the same tree, and has the same settings or in.Keep is true.
// Otherwise it makes a new compute node.
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
	// The tree of the host's present compute node was replaced by another tree.
	if t.node != young.node && errors.Is(err, kv.ErrLost) {
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
