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

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Control requests of the table, as last parts of a path. There is no server but the memory services.
const (
	PathStat  = "stat"  // POST: Stat
	PathCheck = "check" // POST CheckRequest: Checked
)

// node is the store's part of a host: the table that its clients use.
type node struct {
	h store.Host

	mu    sync.Mutex // guards table
	table *table
}

// table is where the clients of a host find the table.
type table struct {
	cfg        Config
	addrs      []netip.Addr
	generation uint64
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
}

// Clients implements store.Node.
func (n *node) Clients(store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	t, err := n.theTable()
	return func(v verbs.Context) store.Clients { return &clients{n.config(v, t)} }, err
}

// clients opens clients of a table in one verbs context.
type clients struct{ conf fusee.Config }

// Open opens a client.
func (c *clients) Open(deadline clock.Time) (kv.Store, error) {
	s, err := fusee.Open(c.conf, deadline)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close does nothing: clients share nothing.
func (*clients) Close() error { return nil }

// Status implements store.Node.
func (n *node) Status() store.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return store.Status{Up: n.table != nil}
}

// Crash makes the host forget the table. The memory servers keep it.
func (n *node) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.table = nil
	return nil
}

// NICGone leaves the table as it is: clients connect again.
func (n *node) NICGone() error { return nil }

// Config describes a table and how a host uses it.
type Config struct {
	// Servers are the names of the memory servers, in the same order on all hosts.
	Servers []string `json:"servers"`
	// Format makes a table if there is none, Fresh also if there is one. Without both, there must
	// be a table.
	Format bool `json:"format,omitempty"`
	Fresh  bool `json:"fresh,omitempty"`
	// Replicas, IndexReplicas, Groups and Block are the fields of fusee.FormatConfig with these
	// names.
	Replicas      int `json:"replicas,omitempty"`
	IndexReplicas int `json:"indexReplicas,omitempty"`
	Groups        int `json:"groups,omitempty"`
	Block         int `json:"block,omitempty"`
	// Cache and Threshold are the fields of fusee.Config with these names.
	Cache     int     `json:"cache,omitempty"`
	Threshold float64 `json:"threshold,omitempty"`
}

// Info describes a table that exists.
type Info struct {
	Generation    uint64 `json:"generation"`
	Servers       int    `json:"servers"`
	Replicas      int    `json:"replicas"`
	IndexReplicas int    `json:"indexReplicas"`
	Slots         int    `json:"slots"`
	Blocks        int    `json:"blocks"`
	Block         int    `json:"block"`
	// Made: this request has made the table.
	Made bool `json:"made,omitempty"`
}

func infoOf(s layout.Superblock) Info {
	return Info{
		Generation: s.Generation, Servers: s.Shape.Servers, Replicas: s.Shape.Replicas, IndexReplicas: s.Shape.IndexReplicas,
		Slots: int(s.Shape.SubtableLen()) / layout.BucketLen * layout.BucketSlots << s.Shape.Depth, Blocks: s.Shape.Blocks,
		Block: s.Shape.BlockUnits * layout.Unit,
	}
}

// joinPatience bounds the time to connect to memory servers and to make a table there; it allows for
// a busy machine.
const joinPatience = 20 * time.Second

// config returns the configuration of clients of the host.
func (n *node) config(v verbs.Context, t *table) fusee.Config {
	return fusee.Config{Context: v, Manager: n.h.Manager(), Servers: t.addrs, Cache: t.cfg.Cache, Threshold: t.cfg.Threshold}
}

// start tells the host where the table is, and makes the table if the configuration says so.
func (n *node) start(r *http.Request, cfg Config) (out Info, err error) {
	t := &table{cfg: cfg}
	for _, name := range cfg.Servers {
		addr, err := n.h.Address(name)
		if err != nil {
			return out, err
		}
		t.addrs = append(t.addrs, addr)
	}
	err = n.h.Do(r, "fusee start", func(_ context.Context, v verbs.Context) error {
		rt, conf := v.Runtime(), n.config(v, t)
		deadline := rt.Now().Add(joinPatience)
		if !cfg.Fresh {
			c, err := fusee.Open(conf, deadline)
			if err == nil {
				out = infoOf(c.Super())
				return c.Close()
			}
			if !cfg.Format || !errors.Is(err, layout.ErrSuperblock) {
				return err
			}
		}
		s, err := fusee.Format(conf, fusee.FormatConfig{
			Replicas: cfg.Replicas, IndexReplicas: cfg.IndexReplicas, Groups: cfg.Groups, Block: cfg.Block,
		}, deadline)
		out = infoOf(s)
		out.Made = true
		return err
	})
	if err != nil {
		return out, store.HTTPError(err)
	}
	t.generation = out.Generation
	n.mu.Lock()
	n.table = t
	n.mu.Unlock()
	n.h.Log().Info("clients use a table", "memory", cfg.Servers, "made", out.Made)
	return out, nil
}

// theTable returns the host's table. The value does not change while a caller uses it.
func (n *node) theTable() (*table, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.table == nil {
		return nil, control.Errorf(http.StatusConflict, "%s knows no table; start one: `rdmalab fusee start`", n.h.Name())
	}
	return n.table, nil
}

// with runs f with a client of the table.
func (n *node) with(r *http.Request, name string, f func(*fusee.Client, verbs.Runtime) error) error {
	t, err := n.theTable()
	if err != nil {
		return err
	}
	err = n.h.Do(r, Store.Name+" "+name, func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := fusee.Open(n.config(v, t), rt.Now().Add(joinPatience))
		if err != nil {
			return fmt.Errorf("%w; %s", err, Store.HowToStart())
		}
		return errors.Join(f(c, rt), c.Close())
	})
	return store.HTTPError(err)
}

// Stat describes a table as its memory servers hold it.
type Stat struct {
	Table Info `json:"table"`
	// Servers are the names of the memory servers.
	Servers []string `json:"servers"`
	fusee.Report
}

// wholePatience bounds the time to read a whole table.
const wholePatience = 10 * time.Minute

// stat reads the table.
func (n *node) stat(r *http.Request) (out Stat, err error) {
	t, err := n.theTable()
	if err != nil {
		return out, err
	}
	out.Servers = slices.Clone(t.cfg.Servers)
	err = n.with(r, "stat", func(c *fusee.Client, rt verbs.Runtime) (err error) {
		out.Table = infoOf(c.Super())
		out.Report, err = c.Audit(rt.Now().Add(wholePatience))
		return err
	})
	return out, err
}

// CheckRequest asks for a check of the table.
type CheckRequest struct {
	// Unfinished is how many slots clients that died may have left in the middle of a change;
	// negative: any number.
	Unfinished int `json:"unfinished"`
}

// Checked is the result of a check of the table.
type Checked struct {
	Table *fusee.Report `json:"table,omitempty"`
	// Why describes what is wrong; "": nothing.
	Why  string        `json:"why,omitempty"`
	Took time.Duration `json:"tookNs"`
}

// audits is how many times check reads a table in which something seems to be wrong: a client that
// changes the table during the check can cause that.
const audits = 3

// check reads the table and decides whether it is right.
func (n *node) check(r *http.Request, in CheckRequest) (out Checked, err error) {
	began := time.Now()
	err = n.with(r, "check", func(c *fusee.Client, rt verbs.Runtime) error {
		for i := range audits {
			if i > 0 {
				rt.Sleep(100 * time.Millisecond)
			}
			got, err := c.Audit(rt.Now().Add(wholePatience))
			if errors.Is(err, kv.ErrLost) { // a history that was made before the check keeps its verdict
				out.Table, out.Why = nil, err.Error()
				return nil
			}
			if err != nil {
				return err
			}
			if out.Table, out.Why = &got, in.wrong(&got); out.Why == "" {
				break
			}
		}
		return nil
	})
	out.Took = time.Since(began)
	return out, err
}

// wrong says what is wrong with a table; "": nothing.
func (in CheckRequest) wrong(r *fusee.Report) string {
	switch {
	case len(r.Defects) > 0:
		return r.Defects[0]
	case in.Unfinished >= 0 && r.Unfinished > in.Unfinished:
		return fmt.Sprintf("%d slots have changes that no client has finished, at most %d may have", r.Unfinished, in.Unfinished)
	}
	return ""
}
