package plugin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// pathStat is the path of a POST to the host's daemon: the body is a store.ClientOptions, the
// answer an rpc.Stats.
const pathStat = "stat"

// Config describes a store. It is the body of the request store.PathStart, which goes to the host
// that will run the metadata server.
type Config struct {
	// Servers are the names of the memory servers.
	Servers []string `json:"servers"`
	// Format is the format of nodes: hardened, keyed, published, or an older name (see formats); ""
	// means hardened.
	Format string `json:"format,omitempty"`
	// Keys is how many keys the store can hold; 0 means 65536. Region is how many bytes of each
	// server's memory it uses; 0 means as many as the smallest memory has.
	Keys   int `json:"keys,omitempty"`
	Region int `json:"region,omitempty"`
	// Threads is how many threads of the metadata server receive requests, besides its main thread;
	// 0 means that the main thread does everything.
	Threads int `json:"threads,omitempty"`
	// Replicas is how many copies each node has; 0 means one, or as many as in the store that is
	// found.
	Replicas int `json:"replicas,omitempty"`
	// Balance is true if nodes are to come from the memory servers in proportion to their free room
	// and speed.
	Balance bool `json:"balance,omitempty"`
	// Lease is the lease of clients; 0 means 2 s.
	Lease time.Duration `json:"lease,omitempty"`
	// Fresh is true if the memory is to be formatted even if it contains a store.
	Fresh bool `json:"fresh,omitempty"`
}

// started is the answer to the request store.PathStart. Fixed says why nodes of each size have a
// fixed part of the memory; "" means that nodes of all sizes share the memory.
type started struct {
	Fixed string `json:"fixed,omitempty"`
}

// formats are the formats of nodes by name. The last two are older names, which are still accepted.
var formats = map[string]layout.Format{
	"": layout.Hardened, "hardened": layout.Hardened, "keyed": layout.Keyed, "published": layout.Published,
	"sound": layout.Hardened, "vanilla": layout.Published,
}

// node is Clover's part of a host's daemon: the metadata server, if the host runs it, and clients.
type node struct {
	h store.Host

	mu     sync.Mutex // guards server
	server *server
}

// server is a metadata server that runs on the host.
type server struct {
	cfg  Config
	ctx  verbs.Context
	meta *meta.Server
	// ended is closed when meta.Serve has returned.
	ended chan struct{}
}

func newNode(h store.Host) store.Node { return &node{h: h} }

func (n *node) Routes(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+Store.Path(store.PathStart), func(_ *http.Request, in Config) (out started, err error) {
		if err = n.start(in); err != nil {
			return out, err
		}
		if s := n.Server(); s != nil {
			out.Fixed = s.Fixed()
		}
		return out, nil
	})
	control.Handle(m, "POST "+Store.Path(store.PathStop), func(*http.Request, none) (none, error) { return none{}, n.Crash() })
	control.Handle(m, "POST "+Store.Path(pathStat), n.stat)
	control.Handle(m, "POST "+Store.Path(pathCalls), n.calls)
}

func (n *node) Clients(o store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	addr, err := n.h.Address(o.Server)
	if err = errors.Join(err, checkShare(&o)); err != nil {
		return nil, err
	}
	o.MaxValue = cmp.Or(o.MaxValue, layout.MaxSlab)
	return func(v verbs.Context) store.Clients {
		return newClients(clover.Config{Context: v, Manager: n.h.Manager(), Meta: addr, MaxValue: max(o.MaxValue, kv.MinValue)}, &o)
	}, nil
}

func (n *node) Status() store.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return store.Status{Up: n.server != nil, Service: clover.Service}
}

// Server returns the metadata server that the host runs, or nil.
func (n *node) Server() *meta.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil {
		return nil
	}
	return n.server.meta
}

// Crash ends the metadata server. The store stays in the memory of the memory servers, and can be
// started again.
func (n *node) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.end()
}

// NICGone implements store.Node: it calls Crash, because the metadata server cannot work without
// connections.
func (n *node) NICGone() error { return n.Crash() }

// end does the work of Crash for a caller that holds mu.
func (n *node) end() error {
	s := n.server
	if s == nil {
		return nil
	}
	n.server = nil
	err := errors.Join(s.meta.Close(), s.ctx.Close())
	<-s.ended
	return err
}

// differs returns an error if cfg asks for other settings than those of the running metadata server
// s. host is the name of the host, for the error.
func (s *server) differs(cfg Config, host string) error {
	differs := cfg.Fresh || cfg.Format != "" && formats[cfg.Format] != formats[s.cfg.Format] ||
		cfg.Keys != 0 && cfg.Keys != cmp.Or(s.cfg.Keys, meta.DefaultKeys) || cfg.Region != 0 && cfg.Region != s.cfg.Region || cfg.Threads != 0 && cfg.Threads != s.cfg.Threads ||
		cfg.Balance && !s.cfg.Balance || cfg.Replicas != 0 && max(1, cfg.Replicas) != max(1, s.cfg.Replicas) ||
		cfg.Lease != 0 && cfg.Lease != cmp.Or(s.cfg.Lease, meta.DefaultLease)
	if !differs {
		return nil
	}
	return control.Errorf(http.StatusConflict, "%s runs a store already, and start does not change its settings: "+
		"run `rdmalab clover stop` first, when no client uses the store", host)
}

// start makes the host run the metadata server of a store. A metadata server that runs already
// stays as it is; one that has failed is replaced.
func (n *node) start(cfg Config) error {
	if cfg.Threads < 0 || cfg.Threads > meta.MaxThreads {
		return control.Errorf(http.StatusBadRequest, "%d threads of the metadata server: want 0 to %d", cfg.Threads, meta.MaxThreads)
	}
	format, ok := formats[cfg.Format]
	if !ok {
		return control.Errorf(http.StatusBadRequest, "node format %.40q: %swant hardened, keyed or published", cfg.Format, nearest.Meant(cfg.Format, slices.Sorted(maps.Keys(formats))))
	}
	var servers []netip.Addr
	for _, name := range cfg.Servers {
		addr, err := n.h.Address(name)
		if err != nil {
			return err
		}
		servers = append(servers, addr)
	}
	return n.h.Service(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.server != nil {
			select {
			case <-n.server.ended:
				_ = n.end() // the server has failed, and logged why
			default:
				return n.server.differs(cfg, n.h.Name())
			}
		}
		ctx := n.h.Context()
		s, err := meta.New(meta.Config{
			Context: ctx, Manager: n.h.Manager(), Servers: servers, Format: format, Keys: cfg.Keys, Region: cfg.Region, Lease: cfg.Lease,
			Grace: graceOf(cfg.Lease), Fresh: cfg.Fresh, Threads: cfg.Threads, Replicas: cfg.Replicas, Balance: cfg.Balance,
		})
		if err != nil {
			return errors.Join(control.Errorf(http.StatusBadGateway, "%v", err), ctx.Close())
		}
		n.server = &server{cfg: cfg, ctx: ctx, meta: s, ended: make(chan struct{})}
		server := n.server
		ctx.Runtime().Go("server", func() { n.serve(server) })
		n.h.Log().Info("metadata server is up", "memory", cfg.Servers, "format", cfg.Format)
		return nil
	})
}

// serve runs the metadata server until it is closed or fails.
func (n *node) serve(s *server) {
	defer close(s.ended)
	if err := s.meta.Serve(); err != nil {
		n.h.Log().Warn("metadata server ended", "error", err)
	}
}

// minGrace is the shortest grace that graceOf returns. It is longer than a client's NIC goes on
// retransmitting a request after the client has died: 8 times the ACK timeout of 134 ms
// (rdmacm.Params).
const minGrace = 2 * time.Second

// graceOf returns the grace for a lease: how long after the end of the lease packets of its client
// may still arrive. 0 stands for the default, both as lease and as result.
func graceOf(lease time.Duration) time.Duration {
	if lease == 0 {
		return 0
	}
	return max(lease, minGrace)
}

func (n *node) stat(r *http.Request, in store.ClientOptions) (st rpc.Stats, err error) {
	open, err := n.Clients(in)
	if err != nil {
		return st, err
	}
	err = n.h.Do(r, Store.Name+" stat", func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := open(v).Open(rt.Now().Add(store.Patience))
		if err != nil {
			return Store.NotOpened(err)
		}
		st, err = c.(*clover.Client).Stats(rt.Now().Add(store.Patience))
		return errors.Join(err, c.Close())
	})
	return st, store.HTTPError(err)
}
