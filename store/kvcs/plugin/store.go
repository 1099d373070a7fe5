package plugin

import (
	"cmp"
	_ "embed" // of help.md
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

//go:embed help.md
var helpText string

// Store describes the store to the daemon of a host and the command line.
var Store = store.Store{
	Name: "kvcs", Title: "KVCS", Note: "a replica on each memory host, needs 1RMA NICs, not with --on sim", Server: store.MetadataHost, Upserts: true, Value: 100, Broken: kvcs.ErrEnded,
}

func init() {
	Store.Node = newNode
	Store.Commands = store.Commands{
		Short: "Run the key-value store KVCS on 1RMA NICs, with a replica on each memory host",
		Help:  helpText,
		Start: store.Command{
			Short: "Start the coordinator with an empty table, and the replicas",
			New:   newStart,
		},
		Stop: store.Command{
			Short: "Stop replicas and coordinator; the table is lost",
			New:   newStop,
		},
		Stat: store.Command{
			Short:  "Show the replicas, how many were fenced, and how often clients have turned to another replica",
			Output: true, Running: true, New: newStat,
		},
		StatWord: "show the replicas, and counters",
		NoLoss:   true, // each replica has all keys
		Prepare: func(c *store.Call, w store.Workload) (loaded bool, err error) {
			_, err = start(c, request{Shape: shapeFor(int(min(2*w.Config.Keys, maxKeys)), max(w.Config.Value, defaultValue))})
			return false, err
		},
	}
	store.Register(Store)
}

// Lengths and bounds of a table.
const (
	defaultKeys  = 8192
	defaultValue = 256
	maxKeys      = 1 << 21
	// maxBytes bounds a table, which each replica and the coordinator have in memory.
	maxBytes = 1 << 30
	// spare is how many cells there are for changes in progress.
	spare = 2 * maxClients
)

// shapeFor returns the shape of a table for this many keys, which fill a third of the slots.
func shapeFor(keys, value int) kvcs.Shape {
	return kvcs.Shape{Buckets: max(8, keys*3/8), Cells: keys + spare, Value: value}
}

// checkShape refuses shapes that a host has no memory for.
func checkShape(s kvcs.Shape) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Bytes() > maxBytes {
		return fmt.Errorf("a table of %d bytes: at most %d are possible; use fewer keys or shorter values", s.Bytes(), maxBytes)
	}
	return nil
}

// request and info are the body and the answer of store.PathStart.
type request struct {
	// Coordinator is the host of the coordinator, for the start of a replica; "" starts the
	// coordinator.
	Coordinator string     `json:"coordinator,omitempty"`
	Shape       kvcs.Shape `json:"shape"`
	// Fresh is true if a coordinator is to begin with an empty table even if one runs already.
	Fresh bool `json:"fresh,omitempty"`
}

type info struct {
	Shape kvcs.Shape `json:"shape"`
	Made  bool       `json:"made"`
	// Replicas are the hosts that run a replica.
	Replicas []string `json:"replicas,omitempty"`
}

func (i *info) Write(out io.Writer) error {
	what := "found"
	if i.Made {
		what = "made"
	}
	_, err := fmt.Fprintf(out, "%s a table for %d keys with values of up to %d bytes, with replicas on %s\n", what, i.Shape.Cells-spare, i.Shape.Value,
		cmp.Or(strings.Join(i.Replicas, ", "), "no host"))
	return err
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	var fresh bool
	var keys, value int
	fs.BoolVar(&fresh, "fresh", false, "end the store that runs, and make an empty one")
	fs.IntVar(&keys, "keys", 0, fmt.Sprintf("how many keys the table has room for, 1 to %d (default %d)", maxKeys, defaultKeys))
	fs.IntVar(&value, "value", 0, fmt.Sprintf("longest value, in bytes, 1 to %d, or less with many --keys, because a table has at most %d GiB (default %d)", kvcs.MaxValue, maxBytes>>30, defaultValue))
	return func(c *store.Call) (store.Result, error) {
		if keys < 0 || keys > maxKeys {
			return nil, store.BadUse("--keys %d: want 1 to %d", keys, maxKeys)
		}
		shape := shapeFor(cmp.Or(keys, defaultKeys), cmp.Or(value, defaultValue))
		if err := checkShape(shape); err != nil {
			return nil, store.BadUse("--value %d: %v", value, err)
		}
		out, err := start(c, request{Shape: shape, Fresh: fresh})
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
}

// start starts the coordinator and the replicas. It warns of memory hosts that run none.
func start(c *store.Call, in request) (out info, err error) {
	host, err := store.MetadataHost(c.Rack)
	if err != nil {
		return out, err
	}
	memory := c.Memory()
	if len(memory) == 0 {
		return out, fmt.Errorf("rack %s has no host for a replica: give one `role: memory` in the rack file", c.Rack.Name)
	}
	if err := c.Free(); err != nil {
		return out, err
	}
	if err := c.PostStart(host, in, &out); err != nil {
		return out, err
	}
	var errs []error
	for _, m := range memory {
		if err := c.PostStart(m, request{Coordinator: host, Shape: out.Shape}, nil); err != nil {
			errs = append(errs, err)
			continue
		}
		out.Replicas = append(out.Replicas, m)
	}
	if len(out.Replicas) == 0 {
		return out, errors.Join(errs...)
	}
	for _, err := range errs { // a host may have crashed
		_, _ = fmt.Fprintf(c.Err, "no replica: %v\n", err)
	}
	return out, awaitReplicas(c, out.Replicas)
}

// copyTime is how long start waits for replicas to get their copies, at most.
const copyTime = 5 * time.Second

// awaitReplicas waits until clients may use the replicas on these hosts, at most for copyTime.
func awaitReplicas(c *store.Call, hosts []string) error {
	for end := time.Now().Add(copyTime); ; {
		r, err := collect(c)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return slices.Contains(r.Replicas, h) })
		switch {
		case len(missing) == 0:
			return nil
		case time.Now().After(end):
			_, _ = fmt.Fprintf(c.Err, "no copy of the table yet on: %s\n", strings.Join(missing, ", "))
			return nil
		}
		select {
		case <-c.Context.Done():
			return c.Context.Err()
		case <-time.After(maxPause):
		}
	}
}

// newStop is Command.New of the command stop, which ends the store on all hosts that answer. The
// command fails if the coordinator's host does not answer.
func newStop(*pflag.FlagSet) func(*store.Call) (store.Result, error) {
	return func(c *store.Call) (store.Result, error) {
		for _, m := range c.Memory() {
			if err := c.Post(m, Store.Path(store.PathStop), nil, nil); err != nil {
				_, _ = fmt.Fprintf(c.Err, "%v\n", err)
			}
		}
		host, err := store.MetadataHost(c.Rack)
		if err != nil {
			return nil, err
		}
		return nil, c.Post(host, Store.Path(store.PathStop), nil, nil)
	}
}

// pathStat is the last part of the path of the request that a host answers with its hostStat.
const pathStat = "stat"

type hostStat struct {
	Coordinator *coordinatorStat `json:"coordinator,omitempty"`
	Clients     clientStat       `json:"clients"`
}

// coordinatorStat is the state of the coordinator. Replicas are those that clients may use.
type coordinatorStat struct {
	Replicas []netip.Addr `json:"replicas"`
	kvcs.CoordinatorStats
}

// clientStat has counters of a host's clients: how many were opened, and the sums of the
// kvcs.ClientStats of those that are closed by now.
type clientStat struct {
	Opened     uint64 `json:"opened"`
	Redirected uint64 `json:"redirected"`
	Changed    uint64 `json:"changed"`
	Pending    uint64 `json:"pending"`
}

func (n *node) stat() (out hostStat) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.total
	out.Clients = clientStat{t.opened.Load(), t.redirected.Load(), t.changed.Load(), t.pending.Load()}
	if p := n.coordinator; p != nil {
		p.with(func() { out.Coordinator = &coordinatorStat{n.coord.Replicas(), n.coord.Stats()} })
	}
	return out
}

type report struct {
	Replicas    []string              `json:"replicas"`
	Coordinator kvcs.CoordinatorStats `json:"coordinator"`
	Hosts       []hostReport          `json:"hosts"`
}

type hostReport struct {
	Name string `json:"name"`
	clientStat
}

// collect asks the coordinator for its part of a report.
func collect(c *store.Call) (*report, error) {
	host, err := store.MetadataHost(c.Rack)
	if err != nil {
		return nil, err
	}
	var s hostStat
	if err := c.Post(host, Store.Path(pathStat), struct{}{}, &s); err != nil {
		return nil, err
	}
	if s.Coordinator == nil {
		return nil, errors.New(Store.HowToStart())
	}
	out := &report{Replicas: []string{}, Coordinator: s.Coordinator.CoordinatorStats}
	for _, a := range s.Coordinator.Replicas {
		if h, ok := c.Rack.ByAddr(a); ok {
			out.Replicas = append(out.Replicas, h.Name)
		}
	}
	slices.Sort(out.Replicas)
	return out, nil
}

// newStat is Command.New of the command stat, which collects the counters of the hosts.
func newStat(*pflag.FlagSet) func(*store.Call) (store.Result, error) {
	return func(c *store.Call) (store.Result, error) {
		out, err := collect(c)
		if err != nil {
			return nil, err
		}
		for _, h := range c.Rack.ByRole(rackfile.Compute) {
			var s hostStat
			if err := c.Post(h.Name, Store.Path(pathStat), struct{}{}, &s); err != nil {
				_, _ = fmt.Fprintf(c.Err, "%v\n", err)
				continue
			}
			out.Hosts = append(out.Hosts, hostReport{h.Name, s.Clients})
		}
		return out, nil
	}
}

func (r *report) Write(out io.Writer) error {
	s := &r.Coordinator
	_, _ = fmt.Fprintf(out, "replicas: %s\n", cmp.Or(strings.Join(r.Replicas, ", "), "none"))
	_, _ = fmt.Fprintf(out, "%d changes; replicas: %d joined, %d fenced, of these %d by REKEY and %d by leases; %d began again\n", s.Changes, s.Joined, s.Fenced, s.Rekeyed, s.Expired, s.Left)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "HOST\tCLIENTS\tREDIRECTED\tCHANGED\tPENDING")
	for _, h := range r.Hosts {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", h.Name, h.Opened, h.Redirected, h.Changed, h.Pending)
	}
	return w.Flush()
}
