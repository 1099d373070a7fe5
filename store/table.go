package store

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Table describes a store that keeps one table in the memory of memory servers and needs no other
// servers. Format makes an empty table there, and Open opens a client. Register makes from this
// description the store's part of a host's daemon (Node), its command start, and its scenario of
// `rdmalab sim`.
//
// S is the shape of a table. Its String says what each memory server has, for example "10 slots for
// values of up to 99 bytes". C is a client.
type Table[S fmt.Stringer, C Shaped[S]] struct {
	// Store must have Name, Title, Commands.Short and Commands.Help. Register sets fields that are
	// empty.
	Store
	// Format makes an empty table, whatever the memory holds. It chooses the fields of s that are
	// 0, and returns the whole shape.
	Format func(cfg passive.Config, s S, deadline clock.Time) (S, error)
	// Open opens a client. The error is passive.ErrAbsent if there is no table.
	Open func(cfg passive.Config, deadline clock.Time) (C, error)
	// Flags adds those flags of start that describe the shape of a new table.
	Flags func(fs *pflag.FlagSet, s *S)
	// Fit returns the shape of a table for a workload. It may be nil.
	Fit func(w Workload) S
	// Draw chooses at random the shape of a small table for `rdmalab sim`, and all fields of the
	// Trial except Format and Open.
	Draw func(r *rand.Rand) (S, Trial)
}

// Shaped is a client that knows the shape of its table.
type Shaped[S any] interface {
	kv.Store
	Shape() S
}

// tablePatience is the longest time that a client of a Table may take to connect. To open a client
// takes many round trips.
const tablePatience = 20 * time.Second

// Register completes the fields of Store and registers it: see the function Register.
func (t *Table[S, C]) Register() (remove func()) {
	t.Join = cmp.Or(t.Join, tablePatience)
	t.Node = func(h Host) Node {
		dial := func(_ *struct{}, cfg passive.Config, deadline clock.Time) (C, error) { return t.Open(cfg, deadline) }
		return &tableNode[S, C]{Passive[struct{}, C]{Host: h, Store: &t.Store, What: "table", Dial: dial}, t}
	}
	t.Scenarios = append(t.Scenarios, Scenario{
		Name: t.Name, Doc: fmt.Sprintf("clients of %s under random faults and crashes; checks that histories are linearizable", t.Title),
		Trial: func(r *rand.Rand, _ int) Trial { return t.Trial(t.Draw(r)) },
	})
	c := &t.Commands
	c.Start = t.start()
	if c.Prepare == nil {
		c.Prepare = func(call *Call, w Workload) (loaded bool, err error) {
			in := TableRequest[S]{Finding: Finding{Format: true}}
			if t.Fit != nil {
				in.Shape = t.Fit(w)
			}
			_, err = t.find(call, in)
			return false, err
		}
	}
	return Register(t.Store)
}

// Trial returns a copy of x whose Format makes a table of shape s and whose Open opens it.
func (t *Table[S, C]) Trial(s S, x Trial) Trial {
	x.Format = func(cfg passive.Config, deadline clock.Time) error {
		_, err := t.Format(cfg, s, deadline)
		return err
	}
	x.Open = func(cfg passive.Config, deadline clock.Time) (kv.Store, error) { return Opened(t.Open(cfg, deadline)) }
	return x
}

// Opened converts the result of a function that opens a client of type C. With an error the result
// is a nil kv.Store, not a kv.Store that holds a nil C.
func Opened[C kv.Store](c C, err error) (kv.Store, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// TableRequest is the body of PathStart. Shape is used only if a table is made.
type TableRequest[S any] struct {
	Finding
	Shape S `json:"shape"`
}

// TableInfo is the answer to a start.
type TableInfo[S fmt.Stringer] struct {
	Servers int `json:"servers"`
	Shape   S   `json:"shape"`
	// Made is true if this request has made the table.
	Made bool `json:"made"`
}

func (i *TableInfo[S]) Write(out io.Writer) error {
	what := "found"
	if i.Made {
		what = "made"
	}
	_, err := fmt.Fprintf(out, "%s a table on %d memory servers, each with %v\n", what, i.Servers, i.Shape)
	return err
}

// tableNode is the part of a Table in the daemon of a host. The type Known of its Passive is empty:
// the host only knows whether there is a table, and on which servers.
type tableNode[S fmt.Stringer, C Shaped[S]] struct {
	Passive[struct{}, C]
	table *Table[S, C]
}

func (n *tableNode[S, C]) Routes(m *control.Mux) {
	n.Stops(m)
	control.Handle(m, "POST "+n.Store.Path(PathStart), func(r *http.Request, in TableRequest[S]) (out TableInfo[S], err error) {
		out.Servers = len(in.Servers)
		out.Made, err = n.Find(
			r, in.Finding, new(struct{}), passive.ErrAbsent,
			func(cfg passive.Config, deadline clock.Time) error {
				c, err := n.table.Open(cfg, deadline)
				if err != nil {
					return err
				}
				out.Shape = c.Shape()
				return c.Close()
			},
			func(cfg passive.Config, deadline clock.Time) (err error) {
				out.Shape, err = n.table.Format(cfg, in.Shape, deadline)
				return err
			},
		)
		return out, err
	})
}

// find starts the store on every compute host. Each host finds the table; only the first host may
// make it.
func (t *Table[S, C]) find(c *Call, in TableRequest[S]) (TableInfo[S], error) {
	return StartHosts[TableInfo[S]](c, "table", func(servers []string, first bool) any {
		in := in
		in.Finding = in.For(servers, first)
		return in
	})
}

// start returns the command start.
func (t *Table[S, C]) start() Command {
	s := t.Commands.Start
	s.Short = cmp.Or(s.Short, "Find the store in the memory servers, or make an empty one, and tell every compute host where it is")
	s.New = func(fs *pflag.FlagSet) func(*Call) (Result, error) {
		in := TableRequest[S]{Finding: Finding{Format: true}}
		fs.BoolVar(&in.Fresh, "fresh", false, "make an empty store, whatever the memory holds")
		t.Flags(fs, &in.Shape)
		return func(c *Call) (Result, error) {
			out, err := t.find(c, in)
			if err != nil {
				return nil, err
			}
			return &out, nil
		}
	}
	return s
}
