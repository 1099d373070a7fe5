package plugin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Control requests of the table to a host's daemon: each constant is the last part of the request's
// path.
const (
	PathStat   = "stat"   // POST; the answer is a Stat
	PathCheck  = "check"  // POST of a CheckRequest; the answer is a Checked
	PathMaster = "master" // POST of a MasterConfig; starts a master or its standby
	PathLease  = "lease"  // POST; the answer is a Lease
)

// node is the store's part of a host's daemon. When the host knows a table, Use says how the
// clients on this host use the table.
type node struct {
	store.Passive[Use, *fusee.Client]
	master master
}

func newNode(h store.Host) store.Node {
	return &node{Passive: store.Passive[Use, *fusee.Client]{Host: h, Store: &Store, What: "table", Dial: (*Use).open}}
}

// Routes implements store.Node.
func (n *node) Routes(m *control.Mux) {
	control.Handle(m, "POST "+Store.Path(store.PathStop), func(*http.Request, struct{}) (struct{}, error) { return struct{}{}, n.Crash() })
	post := func(request string) string { return "POST " + Store.Path(request) }
	control.Handle(m, post(store.PathStart), n.start)
	control.Handle(m, post(PathStat), func(r *http.Request, _ struct{}) (Stat, error) { return n.stat(r) })
	control.Handle(m, post(PathCheck), n.check)
	control.Handle(m, post(PathLease), func(*http.Request, struct{}) (Lease, error) { return n.lease(), nil })
	control.Handle(m, post(PathMaster), func(_ *http.Request, in MasterConfig) (struct{}, error) { return struct{}{}, n.rule(in) })
}

// Config describes a table and how a host uses it. It is the body of store.PathStart.
type Config struct {
	store.Finding
	// Replicas, IndexReplicas, Groups, Grow and Block are the fields of fusee.FormatConfig with the
	// same names.
	Replicas      int `json:"replicas,omitempty"`
	IndexReplicas int `json:"indexReplicas,omitempty"`
	Groups        int `json:"groups,omitempty"`
	Grow          int `json:"grow,omitempty"`
	Block         int `json:"block,omitempty"`
	Use
}

// Use says how the clients of a host use a table. Its fields are those of fusee.Config with the
// same names.
type Use struct {
	Cache     int     `json:"cache,omitempty"`
	Threshold float64 `json:"threshold,omitempty"`
}

// config returns the configuration of a client.
func (u *Use) config(cfg passive.Config) fusee.Config {
	return fusee.Config{
		Context: cfg.Context, Manager: cfg.Manager, Params: cfg.Params, Servers: cfg.Servers, Cache: u.Cache, Threshold: u.Threshold,
	}
}

// open opens a client of the table.
func (u *Use) open(cfg passive.Config, deadline clock.Time) (*fusee.Client, error) {
	return fusee.Open(u.config(cfg), deadline)
}

// Info describes a table that exists.
type Info struct {
	Generation    uint64 `json:"generation"`
	Servers       int    `json:"servers"`
	Replicas      int    `json:"replicas"`
	IndexReplicas int    `json:"indexReplicas"`
	// Slots is how many slots the table has at first. Most is how many it can grow to.
	Slots  int `json:"slots"`
	Most   int `json:"most"`
	Blocks int `json:"blocks"`
	Block  int `json:"block"`
	// Made is true if this request has made the table, which did not exist before.
	Made bool `json:"made,omitempty"`
	// Master is the host that runs the master; "" means that the start command named none.
	Master string `json:"master,omitempty"`
	// Standby is the host that runs the master's standby; "" means that the start command named
	// none.
	Standby string `json:"standby,omitempty"`
}

func infoOf(s layout.Superblock) Info {
	slots := int(s.Shape.SubtableLen()) / layout.BucketLen * layout.BucketSlots
	return Info{
		Generation: s.Generation, Servers: s.Shape.Servers, Replicas: s.Shape.Replicas, IndexReplicas: s.Shape.IndexReplicas,
		Slots: slots << s.Shape.Depth, Most: slots * s.Shape.Subtables, Blocks: s.Shape.Blocks,
		Block: s.Shape.BlockUnits * layout.Unit,
	}
}

// start tells the host where the table is. It makes the table if in.Finding asks for that. If the
// host runs a master or standby of another table, start ends that.
func (n *node) start(r *http.Request, in Config) (out Info, err error) {
	out.Made, err = n.Find(
		r, in.Finding, &in.Use, layout.ErrSuperblock,
		func(cfg passive.Config, deadline clock.Time) error {
			c, err := in.open(cfg, deadline)
			if err != nil {
				return err
			}
			out = infoOf(c.Super())
			return c.Close()
		},
		func(cfg passive.Config, deadline clock.Time) error {
			s, err := fusee.Format(in.config(cfg), fusee.FormatConfig{
				Replicas: in.Replicas, IndexReplicas: in.IndexReplicas, Groups: in.Groups, Grow: in.Grow, Block: in.Block,
			}, deadline)
			out = infoOf(s)
			return err
		},
	)
	if err == nil {
		err = n.master.leave(out.Generation)
	}
	return out, err
}

// Stat describes a table as its memory servers have it.
type Stat struct {
	Table Info `json:"table"`
	// Servers are the names of the memory servers.
	Servers []string `json:"servers"`
	fusee.Report
}

// wholePatience is the time limit for reading a whole table.
const wholePatience = 10 * time.Minute

// stat reads and audits the table.
func (n *node) stat(r *http.Request) (out Stat, err error) {
	_, servers, err := n.Known()
	if err != nil {
		return out, err
	}
	out.Servers = slices.Clone(servers)
	err = n.With(r, "stat", func(_ *Use, c *fusee.Client, rt verbs.Runtime) (err error) {
		out.Table = infoOf(c.Super())
		out.Report, err = c.Audit(rt.Now().Add(wholePatience))
		return err
	})
	return out, err
}

// CheckRequest asks for a check of the table.
type CheckRequest struct {
	// Unfinished is how many slots may have changes that dead clients have not finished; a negative
	// number allows any number.
	Unfinished int `json:"unfinished"`
	// Recover is true if the check first recovers all clients that own blocks (see
	// fusee.Client.RecoverAll).
	Recover bool `json:"recover,omitempty"`
}

// Checked is the result of a check of the table.
type Checked struct {
	store.Proof
	// Table is the report of the check; nil if a server's memory was lost.
	Table *fusee.Report `json:"table,omitempty"`
	// Recovered are the numbers of the clients that the check has recovered.
	Recovered []uint32 `json:"recovered,omitempty"`
}

// audits is how many times check reads a table at most until it finds nothing wrong. A client that
// changes the table during the check can make it seem wrong.
const audits = 3

// check reads the table and reports whether it is right.
func (n *node) check(r *http.Request, in CheckRequest) (out Checked, err error) {
	began := time.Now()
	err = n.With(r, "check", func(_ *Use, c *fusee.Client, rt verbs.Runtime) (err error) {
		if in.Recover {
			if out.Recovered, err = c.RecoverAll(rt.Now().Add(wholePatience)); err != nil {
				return err
			}
		}
		for i := range audits {
			if i > 0 {
				rt.Sleep(100 * time.Millisecond)
			}
			got, err := c.Audit(rt.Now().Add(wholePatience))
			// A lost table is a result of the check, not an error of the request. Otherwise the
			// caller would lose the verdict that it already has about the history of a workload.
			if errors.Is(err, kv.ErrLost) {
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

// wrong describes what is wrong with a table; "" means nothing.
func (in CheckRequest) wrong(r *fusee.Report) string {
	switch {
	case len(r.Defects) > 0:
		return r.Defects[0]
	case in.Unfinished >= 0 && r.Unfinished > in.Unfinished:
		return fmt.Sprintf("%d slots have changes that no client has finished, at most %d may have", r.Unfinished, in.Unfinished)
	}
	return ""
}
