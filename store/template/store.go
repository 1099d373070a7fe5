package template

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

// Store describes the store to the daemon of a host, the command line and `rdmalab sim`.
var Store = store.Store{
	Name: "template", Title: "the template", Join: 20 * time.Second, Note: "which is made to be copied",
	Scenarios: []store.Scenario{{
		Name: "template", Doc: "clients of the template store (a hash table to copy) under random faults and crashes; checks that histories are linearizable",
		Trial: trial,
	}},
}

func init() {
	Store.Node = newNode
	Store.Commands = store.Commands{
		Short: "Run the template of a store on the rack, a hash table to copy",
		Long: "The template is a small hash table in the memory of the rack's memory servers: a store that is made to be copied.\n" +
			"docs/guide/your-store.md leads from it to a store of your own.",
		Example: "  rdmalab template start\n" +
			"  rdmalab template insert 7 hello && rdmalab template get 7 -v\n" +
			"  rdmalab template check",
		Start: store.Command{
			Short: "Find the table, or make an empty one, and tell every compute host where it is",
			Long: "start looks for a table in the memory of the memory servers, and makes an empty one if there is none. Then the\n" +
				"clients of every compute host find it. --value and --slots are used only when a table is made.",
			Example: "  rdmalab template start\n" +
				"  rdmalab template start --fresh --value 1000",
			New: newStart,
		},
		Prepare: func(c *store.Call, _ store.Workload) (loaded bool, err error) {
			_, err = start(c, request{Finding: store.Finding{Format: true}})
			return false, err
		},
	}
	store.Register(Store)
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
		Host: h, Store: &Store, What: "table",
		Dial: func(_ *struct{}, cfg passive.Config, deadline clock.Time) (*Client, error) {
			return Open(cfg, deadline)
		},
	}}
}

// Routes implements store.Node.
func (n *node) Routes(m *control.Mux) {
	n.Stops(m)
	control.Handle(m, "POST "+Store.Path(store.PathStart), func(r *http.Request, in request) (out info, err error) {
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
	_, err := fmt.Fprintf(out, "%s a table on %d memory servers, each with %d slots and %d objects for values of up to %d bytes\n",
		what, i.Servers, i.Slots, i.Objects, i.Value)
	return err
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := request{Finding: store.Finding{Format: true}}
	fs.BoolVar(&in.Fresh, "fresh", false, "make an empty table, whatever the memory holds")
	fs.IntVar(&in.Shape.Value, "value", 0, fmt.Sprintf("longest value, in bytes (default %d)", DefaultValue))
	fs.IntVar(&in.Shape.Slots, "slots", 0, "slots of the table on each server, one for each key (default: half as many as objects fit into its memory)")
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

// trial draws a table for `rdmalab sim template`: small ones, in which keys meet.
func trial(r *rand.Rand, servers int) store.Trial {
	s := Shape{Value: 16 << r.IntN(6), Slots: 1 + r.IntN(20)}
	return store.Trial{
		Plan: fmt.Sprintf("%d slots, values to %d bytes", s.Slots, s.Value), Memory: 128 << 10, Largest: s.Value, Crashes: true, Loss: true,
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
