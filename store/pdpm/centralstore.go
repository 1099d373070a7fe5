package pdpm

import (
	_ "embed" // of central.md
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

//go:embed central.md
var centralHelp string

// Central describes pDPM-Central to the daemon of a host, the command line and `rdmalab sim`.
var Central = store.Store{
	Name: "pdpm-central", Title: "pDPM-Central", Join: 20 * time.Second, Note: "baseline of Clover's paper", Server: store.MetadataHost,
	Scenarios: []store.Scenario{{
		Name: "pdpm-central", Doc: "clients of pDPM-Central under random faults and crashes, also of its coordinator; checks that histories are linearizable",
		Trial: centralTrial,
	}},
}

func init() {
	Central.Node = func(h store.Host) store.Node {
		return &centralNode{Passive: store.Passive[struct{}, *CentralClient]{Host: h, Store: &Central, What: "table"}}
	}
	Central.Commands = store.Commands{
		Short: "Run the key-value store pDPM-Central on the rack, a baseline of Clover's paper",
		Help:  centralHelp,
		Start: store.Command{
			Short: "Start the coordinator; it takes over the keys that are in the memory servers, or makes an empty store",
			New:   newCentralStart,
		},
		Stop: store.Command{
			Short: "Stop the coordinator; the keys stay in the memory servers",
		},
		Prepare: func(c *store.Call, w store.Workload) (loaded bool, err error) {
			_, err = startCentral(c, request{Finding: store.Finding{Format: true}, Shape: fit(w)})
			return false, err
		},
	}
	store.Register(Central)
}

// request and info are the body and the answer of store.PathStart. The answer has a centralShape,
// which is printed without a lease, because a table of pDPM-Central has no locks.
type (
	request = store.TableRequest[Shape]
	info    = store.TableInfo[centralShape]
)

type centralShape struct{ Shape }

func (s centralShape) String() string {
	return fmt.Sprintf("%d entries for values of up to %d bytes", s.Entries, s.Value)
}

func (c *Coordinator) info(made bool) info {
	return info{Servers: c.super.Servers, Shape: centralShape{c.Shape()}, Made: made}
}

// centralNode is the store's part of a host's daemon: the coordinator, if the host runs it, and
// clients.
type centralNode struct {
	store.Passive[struct{}, *CentralClient]

	starting sync.Mutex // held while a coordinator is started
	mu       sync.Mutex // guards the fields below
	running  *Coordinator
	context  verbs.Context // context of the coordinator
	over     chan struct{} // closed when the coordinator has ended
}

func (n *centralNode) Routes(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+Central.Path(store.PathStart), n.start)
	control.Handle(m, "POST "+Central.Path(store.PathStop), func(*http.Request, none) (none, error) { return none{}, n.Crash() })
}

// start makes the host run the coordinator. A coordinator that runs continues as it is. One that
// has failed is replaced.
func (n *centralNode) start(r *http.Request, in request) (out info, err error) {
	n.starting.Lock()
	defer n.starting.Unlock()
	if c := n.coordinator(); c != nil && c.ended() == nil {
		if in.Fresh {
			return out, control.Errorf(http.StatusConflict, "%s runs the coordinator of a table: run `rdmalab pdpm-central stop` when no client uses it", n.Host.Name())
		}
		return c.info(false), nil
	}
	out.Made, err = n.Find(
		r, in.Finding, new(struct{}), passive.ErrAbsent,
		probe,
		func(cfg passive.Config, deadline clock.Time) error {
			_, err := FormatCentral(cfg, in.Shape, deadline)
			return err
		},
	)
	if err != nil {
		return out, err
	}
	return out, n.Host.Service(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		_ = n.end() // the earlier coordinator has failed, and serve has logged why
		v := n.Host.Context()
		cfg, err := n.Config(v, in.Servers)
		if err != nil {
			return errors.Join(err, v.Close())
		}
		c, err := NewCoordinator(CoordinatorConfig{Config: cfg, Manager: n.Host.Manager()}, v.Runtime().Now().Add(Central.JoinPatience()))
		if err != nil {
			return errors.Join(control.Errorf(http.StatusBadGateway, "the coordinator on %s: %v", n.Host.Name(), err), v.Close())
		}
		out = c.info(out.Made)
		n.running, n.context, n.over = c, v, make(chan struct{})
		over := n.over
		v.Runtime().Go("coordinator", func() { n.serve(c, over) })
		n.Host.Log().Info("the coordinator of a table is up", "memory", in.Servers, "made", out.Made)
		return nil
	})
}

// serve runs the coordinator until it is closed or fails.
func (n *centralNode) serve(c *Coordinator, over chan struct{}) {
	defer close(over)
	if err := c.Serve(); err != nil {
		n.Host.Log().Warn("the coordinator of a table has ended", "error", err)
	}
}

// coordinator returns the coordinator that the host has started, even if it has failed since; nil
// if none was started, or if the method `end` has ended it.
func (n *centralNode) coordinator() *Coordinator {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

func (n *centralNode) Clients(o store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	addr, err := n.Host.Address(o.Server)
	return func(v verbs.Context) store.Clients {
		return store.Opener(func(deadline clock.Time) (kv.Store, error) {
			return store.Opened(OpenCentral(CentralConfig{Context: v, Manager: n.Host.Manager(), Coordinators: []netip.Addr{addr}}, deadline))
		})
	}, err
}

func (n *centralNode) Status() store.Status {
	c := n.coordinator()
	return store.Status{Up: c != nil && c.ended() == nil, Service: CentralService}
}

// Crash ends the coordinator. The memory servers keep the table, so the coordinator can be started
// again.
func (n *centralNode) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.end()
}

// NICGone ends the coordinator like Crash, because the coordinator cannot work without connections.
func (n *centralNode) NICGone() error { return n.Crash() }

// end does the work of Crash for a caller that holds mu.
func (n *centralNode) end() error {
	if n.running == nil {
		return nil
	}
	err := errors.Join(n.running.Close(), n.context.Close())
	<-n.over
	n.running = nil
	return err
}

func newCentralStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := request{Finding: store.Finding{Format: true}}
	fs.BoolVar(&in.Fresh, "fresh", false, "make an empty store, whatever the memory holds")
	flags(fs, &in.Shape)
	return func(c *store.Call) (store.Result, error) {
		out, err := startCentral(c, in)
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
}

func startCentral(c *store.Call, in request) (out info, err error) {
	host, err := store.MetadataHost(c.Rack)
	if err != nil {
		return out, err
	}
	if err := c.Free(); err != nil {
		return out, err
	}
	in.Finding = in.For(c.Memory(), true)
	return out, c.PostStart(host, in, &out)
}

// centralTrial chooses at random a table for `rdmalab sim pdpm-central`. The table is small, so
// that operations often meet at the same keys.
func centralTrial(r *rand.Rand, _ int) store.Trial {
	s := Shape{Value: 16 << r.IntN(8), Entries: 1 + r.IntN(20)}
	return store.Trial{
		Plan:   fmt.Sprintf("%d entries, values to %d bytes", s.Entries, s.Value),
		Memory: 256 << 10, Largest: s.Value, Crashes: true, Loss: true, Judge: judgeCentral,
		Format: func(cfg passive.Config, deadline clock.Time) error {
			_, err := FormatCentral(cfg, s, deadline)
			return err
		},
		Server: &store.TrialServer{
			Start: func(cfg passive.Config, m rdmacm.Manager, deadline clock.Time) (func() error, error) {
				c, err := NewCoordinator(CoordinatorConfig{Config: cfg, Manager: m}, deadline)
				if err != nil {
					return nil, err
				}
				return c.Serve, nil
			},
			Open: func(cfg passive.Config, hosts []netip.Addr, deadline clock.Time) (kv.Store, error) {
				return store.Opened(OpenCentral(CentralConfig{Context: cfg.Context, Manager: cfg.Manager, Params: cfg.Params, Coordinators: hosts}, deadline))
			},
			Replaced: errDeposed,
		},
	}
}
