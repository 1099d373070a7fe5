package nictable

import (
	"cmp"
	_ "embed" // of help.md
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
	"github.com/rdmalab/rdmalab/store/memcached"
	"github.com/rdmalab/rdmalab/store/passive"
)

//go:embed help.md
var helpText string

// Store describes the store to the daemon of a host, the command line and `rdmalab sim`.
var Store = store.Store{
	Name: "nictable", Title: "the NIC's table", Note: "the server's NIC executes GETs", Server: store.MetadataHost, Value: 100,
	Scenarios: []store.Scenario{{
		Name: "nictable", Trial: trial,
		Doc: "clients of the store nictable under random faults, deaths and hangs of processes, also of its server; checks that histories are linearizable",
	}},
}

func init() {
	Store.Node = func(h store.Host) store.Node { return &node{host: h} }
	Store.Commands = store.Commands{
		Short: "Run the key-value store nictable, in which the NIC of the server executes GETs",
		Help:  helpText,
		Start: store.Command{
			Short: "Start the server, which takes the table over, or makes an empty one",
			New:   newStart,
		},
		Stop: store.Command{
			Short: "Stop the server and free the table",
		},
		Further: map[string]store.Command{"item": {
			Short: "Read an item of memcached's protocol by RDMA",
			From:  true, Output: true, Arg: "KEY", New: newItem,
		}, "front": {
			Short: "Serve memcached's protocol on a client's host; the server's NIC answers get",
			From:  true, Output: true, New: newFront,
		}},
		Prepare: func(c *store.Call, w store.Workload) (loaded bool, err error) {
			in := request{Shape: Shape{Items: int(min(2*w.Config.Keys, maxItems)), Value: max(w.Config.Value, defaultValue)}}
			_, err = startAt(c, in)
			return false, err
		},
	}
	store.Register(Store)
}

// request and info are the body and the answer of store.PathStart.
type request struct {
	// Fresh is true if an empty table is to be made even if there is one.
	Fresh bool  `json:"fresh"`
	Shape Shape `json:"shape"`
	// Memcached is the TCP address on which the server is to listen for memcached's protocol; ""
	// means that it opens no further address.
	Memcached string `json:"memcached,omitempty"`
	// Rate is the most GETs a second that the NIC answers a client which connects from now on; 0: no limit.
	Rate int `json:"rate,omitempty"`
}

type info struct {
	Shape Shape `json:"shape"`
	Keys  int   `json:"keys"`
	Made  bool  `json:"made"`
	// Memcached is the address on which the server listens for memcached's protocol; "" means that
	// it does not.
	Memcached string `json:"memcached,omitempty"`
}

func (i *info) Write(out io.Writer) error {
	text := fmt.Sprintf("took over a table of %d keys, for %v\n", i.Keys, i.Shape)
	if i.Made {
		text = fmt.Sprintf("made a table for %v\n", i.Shape)
	}
	if i.Memcached != "" {
		text += "memcached's text protocol is served on " + i.Memcached + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	var in request
	fs.BoolVar(&in.Fresh, "fresh", false, "make an empty table, even if there is one; all keys of the earlier table are lost")
	fs.IntVar(&in.Shape.Items, "items", 0, fmt.Sprintf("how many keys the table has room for, 1 to %d (default %d)", maxItems, defaultItems))
	fs.IntVar(&in.Shape.Value, "value", 0, fmt.Sprintf("longest value, in bytes, 1 to %d (default %d)", maxValue, defaultValue))
	fs.StringVar(&in.Memcached, "memcached", "", "also serve memcached's text protocol on this TCP address of the host, like :11211 (default: do not serve it)")
	fs.IntVar(&in.Rate, "rate", 0, fmt.Sprintf("most GETs a second that the NIC answers each client that connects from now on, 1 to %d (default: no limit)", maxRate))
	return func(c *store.Call) (store.Result, error) {
		if in.Rate < 0 || in.Rate > maxRate || in.Rate == 0 && fs.Changed("rate") {
			return nil, store.BadUse("--rate %d: use 1 to %d GETs a second, or leave it out for no limit", in.Rate, maxRate)
		}
		if _, port, err := net.SplitHostPort(in.Memcached); in.Memcached != "" && (err != nil || port == "") {
			return nil, store.BadUse("--memcached %s: use a TCP address of the host like :11211", in.Memcached)
		}
		out, err := startAt(c, in)
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
}

func startAt(c *store.Call, in request) (out info, err error) {
	host, err := store.MetadataHost(c.Rack)
	if err != nil {
		return out, err
	}
	if err := c.Free(); err != nil {
		return out, err
	}
	return out, c.PostStart(host, in, &out)
}

// withDefaults checks a shape and replaces its zero values.
func (s Shape) withDefaults() (Shape, error) {
	s.Items, s.Value = cmp.Or(s.Items, defaultItems), cmp.Or(s.Value, defaultValue)
	s.Slots = cmp.Or(s.Slots, slotsPerItem*s.Items)
	if s.Slots < probes || s.Slots > slotsPerItem*maxItems || s.Items < 1 || s.Items > maxItems || s.Value < 1 || s.Value > maxValue {
		return s, fmt.Errorf("a table for %v: want at most %d and %d", s, maxItems, maxValue)
	}
	return s, nil
}

// node is nictable's part of a host's daemon: the table and its server, if they are on this host,
// and clients.
type node struct {
	host store.Host

	mu     sync.Mutex // guards the fields below
	estate *Estate
	owner  verbs.Context // context of the estate
	server *Server
	ctx    verbs.Context // context of the server
	over   chan struct{} // closed when the server has ended
	tcp    tcp
	front  *memcached.Server // on a client's host; nil means that there is none
}

func (n *node) Routes(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+Store.Path(store.PathStart), n.start)
	control.Handle(m, "POST "+Store.Path(pathItem), n.item)
	control.Handle(m, "POST "+Store.Path(pathFront), n.startFront)
	control.Handle(m, "POST "+Store.Path(store.PathStop), func(*http.Request, none) (none, error) { return none{}, n.NICGone() })
}

// start starts a server, unless one runs and in.Fresh is false. The server takes over the table of
// an earlier server, or with in.Fresh begins with an empty one.
func (n *node) start(_ *http.Request, in request) (out info, err error) {
	shape, err := in.Shape.withDefaults()
	if err != nil {
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	if in.Rate < 0 || in.Rate > maxRate {
		return out, control.Errorf(http.StatusBadRequest, "a rate of %d GETs a second; want 0 to %d", in.Rate, maxRate)
	}
	return out, n.host.Service(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.running() && !in.Fresh {
			n.estate.Limit(in.Rate)
			out = info{Shape: n.estate.shape, Keys: n.server.Keys()}
			out.Memcached, err = n.tcp.listen(in.Memcached, n.server)
			return err
		}
		if err := n.endServer(); err != nil {
			return err
		}
		if in.Fresh {
			if err := n.free(); err != nil {
				return err
			}
		}
		if n.estate == nil {
			n.owner = n.host.Context()
			if n.estate, err = NewEstate(n.owner, shape); err != nil {
				return errors.Join(err, n.owner.Close())
			}
			out.Made = true
		}
		n.estate.Limit(in.Rate)
		n.ctx = n.host.Context()
		if n.server, err = NewServer(n.ctx, n.host.Manager(), rdmacm.Params{}, n.estate); err != nil {
			return errors.Join(err, n.ctx.Close())
		}
		out.Shape, out.Keys = n.estate.shape, n.server.Keys()
		s, over := n.server, make(chan struct{})
		n.over = over
		n.ctx.Runtime().Go("server", func() {
			defer close(over)
			if err := s.Serve(); err != nil {
				n.host.Log().Warn("the server of a table has ended", "error", err)
			}
		})
		n.host.Log().Info("the server of a table is up", "keys", out.Keys, "made", out.Made)
		out.Memcached, err = n.tcp.listen(in.Memcached, n.server)
		return err
	})
}

// running reports whether the host runs a server. The caller holds mu.
func (n *node) running() bool {
	if n.server == nil {
		return false
	}
	select {
	case <-n.over:
		return false
	default:
		return true
	}
}

// endServer ends the server, and keeps the estate: the table and the programs that answer GETs. The
// caller holds mu.
func (n *node) endServer() error {
	if n.server == nil {
		return nil
	}
	err := n.tcp.close()
	n.server.Close()
	<-n.over
	n.server = nil
	return errors.Join(err, n.ctx.Close())
}

// free closes the estate, if there is one, and its verbs context. The caller holds mu, and no
// server runs.
func (n *node) free() error {
	if n.estate == nil {
		return nil
	}
	_ = n.estate.Close() // its NIC may be gone; closing the context frees the rest
	n.estate = nil
	return n.owner.Close()
}

// Crash ends the server, as if its process had crashed. The estate stays: the table, and the NIC
// programs that answer GETs.
func (n *node) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(n.endFront(), n.endServer())
}

func (n *node) NICGone() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(n.endFront(), n.endServer(), n.free())
}

func (n *node) Clients(o store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	if err := checkWay(o.Gets); err != nil {
		return nil, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	addr, err := n.host.Address(o.Server)
	return func(v verbs.Context) store.Clients {
		return store.Opener(func(deadline clock.Time) (kv.Store, error) {
			return store.Opened(Open(ClientConfig{Context: v, Manager: n.host.Manager(), Server: addr, Gets: o.Gets}, deadline))
		})
	}, err
}

func (n *node) Status() store.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return store.Status{Up: n.running(), Service: Service}
}

// trial chooses at random a table for `rdmalab sim nictable`. The table is so small that keys move
// and items are used again at once, often while a program is between its two probes.
func trial(r *rand.Rand, _ int) store.Trial {
	s := Shape{Items: 8 + r.IntN(8), Slots: 6 + r.IntN(10), Value: 16 << r.IntN(9)}
	loopback := time.Duration(r.IntN(20)) * time.Microsecond
	gets := []string{store.GetsNIC, store.GetsNIC, store.GetsReads}[r.IntN(3)]
	var e *Estate
	return store.Trial{
		Loopback: loopback, Crashes: true,
		Plan: fmt.Sprintf("%v, loopback %v, GETs by %s", s, loopback, gets), Memory: 4096, Largest: s.Value,
		Format: func(passive.Config, clock.Time) error { return nil },
		Server: &store.TrialServer{
			Resident: func(ctx verbs.Context) (err error) {
				e, err = NewEstate(ctx, s)
				return err
			},
			Start: func(cfg passive.Config, m rdmacm.Manager, _ clock.Time) (func() error, error) {
				server, err := NewServer(cfg.Context, m, cfg.Params, e)
				if err != nil {
					return nil, err
				}
				return server.Serve, nil
			},
			Replaced: errServer,
			Open: func(cfg passive.Config, hosts []netip.Addr, deadline clock.Time) (kv.Store, error) {
				return store.Opened(Open(ClientConfig{Context: cfg.Context, Manager: cfg.Manager, Params: cfg.Params, Server: hosts[0], Gets: gets}, deadline))
			},
		},
	}
}
