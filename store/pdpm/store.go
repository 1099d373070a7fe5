package pdpm

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Direct describes pDPM-Direct to the daemon of a host, the command line and `rdmalab sim`.
var Direct = store.Store{
	Name: "pdpm-direct", Title: "pDPM-Direct", Join: 20 * time.Second, Note: "a baseline of Clover's paper",
	Scenarios: []store.Scenario{{
		Name: "pdpm-direct", Doc: "histories of pDPM-Direct under random faults and crashes: linearizable",
		Trial: trial,
	}},
}

func init() {
	Direct.Node = newNode
	Direct.Commands = store.Commands{
		Short: "Run the key-value store pDPM-Direct on the rack, a baseline of Clover's paper",
		Long: "pDPM-Direct is a key-value store in the memory of the rack's memory servers, with which the paper on Clover\n" +
			"compares it. There is no metadata server: clients lock the entry of a key by CAS, write two copies of the value,\n" +
			"and release the lock. Reads take no lock; a checksum shows copies that are torn.",
		Example: "  rdmalab pdpm-direct start\n" +
			"  rdmalab pdpm-direct insert 7 hello && rdmalab pdpm-direct get 7 -v\n" +
			"  rdmalab run ycsb --store pdpm-direct --workload a\n" +
			"  rdmalab pdpm-direct check",
		Start: store.Command{
			Short: "Find the table, or make an empty one, and tell every compute host where it is",
			Long: "start looks for a table in the memory of the memory servers, and makes an empty one if there is none. Then the\n" +
				"clients of every compute host find it. --value, --entries and --lease are used only when a table is made.",
			Example: "  rdmalab pdpm-direct start\n" +
				"  rdmalab pdpm-direct start --fresh --value 1000 --lease 100ms",
			New: newStart,
		},
		Prepare: func(c *store.Call, w store.Workload) (loaded bool, err error) {
			shape := Shape{Value: max(w.Config.Value, DefaultValue)} // of the table, if one is made
			_, err = start(c, request{Finding: store.Finding{Format: true}, Shape: shape})
			return false, err
		},
	}
	store.Register(Direct)
}

// request is the body of store.PathStart.
type request struct {
	store.Finding
	Shape Shape `json:"shape"`
}

// node is the store's part of a host. All tables are used alike: there is nothing to know but that
// the host knows one.
type node struct {
	store.Passive[struct{}, *Client]
}

func newNode(h store.Host) store.Node {
	return &node{store.Passive[struct{}, *Client]{
		Host: h, Store: &Direct, What: "table",
		Dial: func(_ *struct{}, cfg passive.Config, deadline clock.Time) (*Client, error) {
			return Open(cfg, deadline)
		},
	}}
}

// Routes implements store.Node.
func (n *node) Routes(m *control.Mux) {
	n.Stops(m)
	control.Handle(m, "POST "+Direct.Path(store.PathStart), func(r *http.Request, in request) (out info, err error) {
		out.Made, err = n.Find(
			r, in.Finding, new(struct{}), errAbsent,
			func(cfg passive.Config, deadline clock.Time) error {
				c, err := Open(cfg, deadline)
				if err != nil {
					return err
				}
				out.Shape = c.Shape()
				return c.Close()
			},
			func(cfg passive.Config, deadline clock.Time) (err error) {
				out.Shape, err = Format(cfg, in.Shape, deadline)
				return err
			},
		)
		return out, err
	})
}

// info is the answer to a start.
type info struct {
	Shape
	// Made: this request has made the table.
	Made bool `json:"made"`
}

// Write implements store.Result.
func (i *info) Write(out io.Writer) error {
	what := "found"
	if i.Made {
		what = "made"
	}
	_, err := fmt.Fprintf(out, "%s a table on %d memory servers, each with %d entries for values of up to %d bytes, and locks with a lease of %v\n",
		what, i.Servers, i.Entries, i.Value, i.Lease)
	return err
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := request{Finding: store.Finding{Format: true}}
	fs.BoolVar(&in.Fresh, "fresh", false, "make an empty table, whatever the memory holds")
	fs.IntVar(&in.Shape.Value, "value", 0, fmt.Sprintf("longest value, in bytes (default %d)", DefaultValue))
	fs.IntVar(&in.Shape.Entries, "entries", 0, "keys for which each server has room (default: as many as fit)")
	fs.DurationVar(&in.Shape.Lease, "lease", 0, fmt.Sprintf("how long a lock must not change before another client takes it over (default %v)", DefaultLease))
	return func(c *store.Call) (store.Result, error) {
		out, err := start(c, in)
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
}

// start tells every compute host where the table is.
func start(c *store.Call, in request) (info, error) {
	return store.StartHosts[info](c, "table", func(servers []string, first bool) any {
		in := in
		in.Finding = in.For(servers, first)
		return in
	})
}

// trial draws a table for `rdmalab sim pdpm-direct`: small ones, in which keys meet, with short
// leases.
func trial(r *rand.Rand, servers int) store.Trial {
	s := Shape{Value: 16 << r.IntN(8), Entries: 1 + r.IntN(20), Lease: time.Duration(1+r.IntN(20)) * time.Millisecond}
	return store.Trial{
		Plan:   fmt.Sprintf("%d entries, values to %d bytes, lease %v", s.Entries, s.Value, s.Lease),
		Memory: 256 << 10, Largest: s.Value, Crashes: true, Loss: true, Judge: judge,
		Format: func(cfg passive.Config, deadline clock.Time) error {
			_, err := Format(cfg, s, deadline)
			return err
		},
		Open: func(cfg passive.Config, deadline clock.Time) (kv.Store, error) {
			c, err := Open(cfg, deadline)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	}
}
