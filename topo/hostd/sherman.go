package hostd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Endpoints of the tree Sherman. Every host that has clients is a compute node; there is no server but the memory services.
const (
	PathTreeStart = "/tree/start" // POST TreeConfig: TreeInfo; the host becomes a compute node
	PathTreeStop  = "/tree/stop"  // POST: none; it forgets the tree
	PathTreeOp    = "/tree/op"    // POST TreeOp: TreeAnswer
	PathTreeStat  = "/tree/stat"  // POST: TreeStat
	PathTreeCheck = "/tree/check" // POST TreeCheck: TreeVerdict
	PathTreeLoad  = "/tree/load"  // POST TreeLoad: TreeLoaded
)

func (h *Host) treeRoutes(m *control.Mux) {
	control.Handle(m, "POST "+PathTreeStart, h.startTree)
	control.Handle(m, "POST "+PathTreeStop, func(*http.Request, none) (none, error) { h.app.stopTree(); return none{}, nil })
	control.Handle(m, "POST "+PathTreeOp, h.treeOp)
	control.Handle(m, "POST "+PathTreeStat, func(r *http.Request, _ none) (TreeStat, error) { return h.treeStat(r) })
	control.Handle(m, "POST "+PathTreeCheck, h.checkTree)
	control.Handle(m, "POST "+PathTreeLoad, h.loadTree)
}

// lockTable is the lock table of a memory service on the NIC, in bytes (Sherman §4).
const lockTable = 256 << 10

// deviceMemory is that of a NIC, in bytes: room for a lock table, and as much for everybody else.
const deviceMemory = 2 * lockTable

// TreeConfig describes a tree and how a host uses it.
type TreeConfig struct {
	// Servers are the names of the memory servers, in an order that must be the same everywhere.
	Servers []string `json:"servers"`
	// Format makes a tree where there is none, Fresh also where there is one. Without both the tree must be there.
	Format bool `json:"format,omitempty"`
	Fresh  bool `json:"fresh,omitempty"`
	// Keep leaves a host that is a compute node of a tree on these servers as it is.
	Keep bool `json:"keep,omitempty"`
	// Layout is sound or faithful; "": sound. Page and Value are in bytes; 0: 1024 and 8.
	Layout string `json:"layout,omitempty"`
	Page   int    `json:"page,omitempty"`
	Value  int    `json:"value,omitempty"`
	// Locks are lock words of each server; 0: 32768. HostLocks puts them into host memory.
	Locks     int  `json:"locks,omitempty"`
	HostLocks bool `json:"hostLocks,omitempty"`
	// Lease of locks (0: 500 ms, because a process may have to wait so long for a processor), Cache of the index in bytes (negative: none), HandOver and BackOff: see sherman.NodeConfig.
	Lease    time.Duration `json:"leaseNs,omitempty"`
	Cache    int           `json:"cache,omitempty"`
	HandOver int           `json:"handOver,omitempty"`
	BackOff  time.Duration `json:"backOffNs,omitempty"`
}

// TreeInfo describes a tree that is there.
type TreeInfo struct {
	Generation uint64 `json:"generation"`
	Layout     string `json:"layout"`
	Page       int    `json:"page"`
	Value      int    `json:"value"`
	Servers    int    `json:"servers"`
	Locks      int    `json:"locks"`
	HostLocks  bool   `json:"hostLocks"`
	Chunk      int    `json:"chunk"`
	// Made says that it was made now.
	Made bool `json:"made,omitempty"`
}

func treeInfo(s layout.Superblock) TreeInfo {
	return TreeInfo{
		Generation: s.Generation, Layout: s.Shape.Kind.String(), Page: s.Shape.Page, Value: s.Shape.Value, Servers: s.Servers,
		Locks: s.Locks, HostLocks: s.HostLocks, Chunk: s.Chunk,
	}
}

// TreeOp is one operation.
type TreeOp struct {
	// Op is get, put, insert, upsert, delete or scan.
	Op    string `json:"op"`
	Key   uint64 `json:"key"`
	Value []byte `json:"value,omitempty"`
	// N is how many records a scan wants; at most maxTreeScan.
	N int `json:"n,omitempty"`
	// Patience is the deadline, from when the client has connected; 0: 5 s.
	Patience time.Duration `json:"patienceNs,omitempty"`
}

// TreeAnswer is what it brought.
type TreeAnswer struct {
	Value   []byte        `json:"value,omitempty"`
	Records []TreeRecord  `json:"records,omitempty"`
	Cost    TreeCost      `json:"cost"`
	Took    time.Duration `json:"tookNs"`
}

// TreeRecord is a record of a scan.
type TreeRecord struct {
	Key   uint64 `json:"key"`
	Value []byte `json:"value"`
}

// TreeCost is what an operation took: see sherman.Cost.
type TreeCost struct {
	kv.Cost
	CAS       int           `json:"cas"`
	HandOvers int           `json:"handOvers"`
	Wait      time.Duration `json:"waitNs"`
	Bytes     int           `json:"bytes"`
}

const maxTreeScan = 10_000

// joinPatience bounds connecting to memory servers, and making a tree there: as long as a busy machine may take for it.
const joinPatience = 20 * time.Second

// rackLease is the lease of locks on a rack: longer than a busy machine keeps a process that holds a lock from going on.
const rackLease = 500 * time.Millisecond

// tree is a host as a compute node.
type tree struct {
	cfg   TreeConfig
	addrs []netip.Addr
	node  *sherman.Node
	// generation names the tree: another one may be made on the same servers. The application guards it.
	generation uint64
}

// errNoTree says that a host is no compute node.
func errNoTree(name string) error {
	return control.Errorf(http.StatusConflict, "%s knows no tree; start one: `rdmalab sherman start`", name)
}

// newTree is what a compute node of a tree has.
func (h *Host) newTree(cfg TreeConfig) (*tree, error) {
	if cfg.Lease == 0 {
		cfg.Lease = rackLease
	}
	t := &tree{cfg: cfg}
	for _, name := range cfg.Servers {
		addr, err := h.address(name)
		if err != nil {
			return nil, err
		}
		t.addrs = append(t.addrs, addr)
	}
	var err error
	t.node, err = sherman.NewNode(sherman.NodeConfig{
		Servers: t.addrs, CacheBytes: cfg.Cache, HandOver: cfg.HandOver, Lease: cfg.Lease, BackOff: cfg.BackOff, LostSearch: cfg.Layout == layout.Faithful.String(),
	})
	if err != nil {
		return nil, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	return t, nil
}

// startTree makes the host a compute node of a tree, and the tree if it shall. A host that is one of the same tree stays it.
func (h *Host) startTree(r *http.Request, cfg TreeConfig) (out TreeInfo, err error) {
	kind, err := layout.KindOf(cfg.Layout)
	if err != nil {
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	young, err := h.newTree(cfg)
	if err != nil {
		return out, err
	}
	t := young
	if old, err := h.theTree(); cfg.Keep && err == nil && slices.Equal(old.addrs, t.addrs) {
		t = old
	}
	err = h.app.do(r, "sherman start", func(_ context.Context, v verbs.Context) error {
		rt, conf := v.Runtime(), h.treeClient(v)
		deadline := rt.Now().Add(joinPatience)
		if !cfg.Fresh {
			c, err := t.node.Open(conf, deadline)
			if t != young && errors.Is(err, kv.ErrLost) { // it knows a tree that has been replaced
				t = young
				c, err = t.node.Open(conf, deadline)
			}
			if err == nil {
				out = treeInfo(c.Super())
				return c.Close()
			}
			if !cfg.Format || !errors.Is(err, layout.ErrSuperblock) {
				return err
			}
		}
		t = young // a node knows one tree
		s, err := sherman.Format(conf, t.addrs, sherman.FormatConfig{
			Shape: layout.Shape{Kind: kind, Page: cfg.Page, Value: cfg.Value}, Locks: cfg.Locks, HostLocks: cfg.HostLocks,
		}, deadline)
		out = treeInfo(s)
		out.Made = true
		return err
	})
	if err != nil {
		return out, storeStatus(err)
	}
	h.app.keepTree(t, out.Generation)
	h.log.Info("compute node of a tree", "memory", cfg.Servers, "made", out.Made)
	return out, nil
}

// keepTree replaces what the host knows of trees, unless it is the same.
func (a *application) keepTree(t *tree, generation uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.tree; old != nil && old.generation == generation && slices.Equal(old.addrs, t.addrs) && old.cfg.Lease == t.cfg.Lease && old.cfg.Cache == t.cfg.Cache &&
		old.cfg.HandOver == t.cfg.HandOver && old.cfg.BackOff == t.cfg.BackOff && old.cfg.Layout == t.cfg.Layout {
		return
	}
	a.tree, t.generation = t, generation
}

// stopTree forgets the tree. The memory servers keep it.
func (a *application) stopTree() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tree = nil
}

// theTree is the tree of the host, which does not change while a caller uses it.
func (h *Host) theTree() (*tree, error) {
	h.app.mu.Lock()
	defer h.app.mu.Unlock()
	if h.app.tree == nil {
		return nil, errNoTree(h.self.Name)
	}
	return h.app.tree, nil
}

// treeClient is what clients of the host bring.
func (h *Host) treeClient(v verbs.Context) sherman.Config {
	return sherman.Config{Context: v, Manager: h.conn}
}

// withTree runs f with a client of the tree.
func (h *Host) withTree(r *http.Request, name string, f func(*tree, *sherman.Client, verbs.Runtime) error) error {
	t, err := h.theTree()
	if err != nil {
		return err
	}
	err = h.app.do(r, "sherman "+name, func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := t.node.Open(h.treeClient(v), rt.Now().Add(joinPatience))
		if err != nil {
			return fmt.Errorf("%w; is the tree there? `rdmalab sherman start`", err)
		}
		return errors.Join(f(t, c, rt), c.Close())
	})
	return storeStatus(err)
}

// treeOp makes one operation.
func (h *Host) treeOp(r *http.Request, in TreeOp) (out TreeAnswer, err error) {
	if in.Patience <= 0 {
		in.Patience = storePatience
	}
	if in.Op == "scan" && (in.N < 1 || in.N > maxTreeScan) {
		return out, control.Errorf(http.StatusBadRequest, "scan of %d records: want 1 to %d", in.N, maxTreeScan)
	}
	err = h.withTree(r, in.Op, func(_ *tree, c *sherman.Client, rt verbs.Runtime) error {
		began := rt.Now()
		err := out.run(c, &in, began.Add(in.Patience))
		cost := c.LastCost()
		out.Cost = TreeCost{Cost: cost.Cost, CAS: cost.CAS, HandOvers: cost.HandOvers, Wait: cost.Wait, Bytes: cost.Bytes}
		out.Took = rt.Now().Sub(began)
		return err
	})
	return out, err
}

func (a *TreeAnswer) run(c *sherman.Client, in *TreeOp, deadline clock.Time) (err error) {
	switch in.Op {
	case "get":
		a.Value, err = c.Get(in.Key, nil, deadline)
	case "put":
		err = c.Put(in.Key, in.Value, deadline)
	case "insert":
		err = c.Insert(in.Key, in.Value, deadline)
	case "upsert":
		err = c.Upsert(in.Key, in.Value, deadline)
	case "delete":
		err = c.Delete(in.Key, deadline)
	case "scan":
		err = c.Scan(in.Key, in.N, func(key uint64, value []byte) bool {
			a.Records = append(a.Records, TreeRecord{key, slices.Clone(value)})
			return true
		}, deadline)
	default:
		err = control.Errorf(http.StatusBadRequest, "operation %q: want get, put, insert, upsert, delete or scan", in.Op)
	}
	return err
}

// storeSherman is the Store of a RunRequest for the tree.
const storeSherman = "sherman"

// treeOpener opens clients of the host's tree.
func (h *Host) treeOpener() (func(verbs.Context) func(clock.Time) (kv.Store, error), error) {
	t, err := h.theTree()
	return func(v verbs.Context) func(clock.Time) (kv.Store, error) {
		return func(deadline clock.Time) (kv.Store, error) { return t.node.Open(h.treeClient(v), deadline) }
	}, err
}
