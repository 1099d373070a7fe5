package store

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Passive has the methods of a Node, except Routes, for a store whose only servers are the memory
// servers. A host of such a store runs no program for it. The host only has a value of type Known,
// which says where the store is and how the host's own clients use it. C is the type of a client.
type Passive[Known any, C kv.Store] struct {
	Host  Host
	Store *Store
	// What is the noun for the store in messages, for example "table".
	What string
	// Dial opens a client. cfg names the memory servers that the host knows.
	Dial func(k *Known, cfg passive.Config, deadline clock.Time) (C, error)

	// making is held during Find. Two calls of Find at the same time could both make the store, and
	// the second call would destroy the store that the first one made.
	making  sync.Mutex
	mu      sync.Mutex // guards the fields below
	known   *Known
	servers []string
}

// Stops adds the handler of PathStop to m. The handler makes the host forget the store.
func (p *Passive[Known, C]) Stops(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+p.Store.Path(PathStop), func(*http.Request, none) (none, error) { return none{}, p.Crash() })
}

// Config returns the configuration of a client that runs in the verbs context v and uses these
// memory servers.
func (p *Passive[Known, C]) Config(v verbs.Context, servers []string) (cfg passive.Config, err error) {
	cfg = passive.Config{Context: v, Manager: p.Host.Manager()}
	for _, name := range servers {
		addr, err := p.Host.Address(name)
		if err != nil {
			return cfg, err
		}
		cfg.Servers = append(cfg.Servers, addr)
	}
	return cfg, nil
}

// Find is called for a start request. It finds the store on the memory servers that in.Servers
// names, or makes one there. open opens a client of the store and closes it. If open fails with the
// error absent and in.Format is set, Find calls make, which makes the store. It does so only if the
// memory is empty: open may also fail with absent if one server has lost its part of a store, and
// other stores may have data in the memory. If in.Fresh is true, Find calls make at once. After
// success the host remembers k (see Keep). made is true if the store was made.
func (p *Passive[Known, C]) Find(
	r *http.Request, in Finding, k *Known, absent error, open, make func(cfg passive.Config, deadline clock.Time) error,
) (made bool, err error) {
	p.making.Lock()
	defer p.making.Unlock()
	err = p.Host.Do(r, p.Store.Name+" start", func(_ context.Context, v verbs.Context) error {
		cfg, err := p.Config(v, in.Servers)
		if err != nil {
			return err
		}
		deadline := v.Runtime().Now().Add(p.Store.JoinPatience())
		if !in.Fresh {
			err := open(cfg, deadline)
			if err == nil || !in.Format || !errors.Is(err, absent) {
				return err
			}
			if err := passive.Blank(cfg, deadline); err != nil {
				return err
			}
		}
		made = true
		return make(cfg, deadline)
	})
	if err != nil {
		return false, HTTPError(err)
	}
	p.Keep(k, in.Servers)
	p.Host.Log().Info("clients use a "+p.What, "memory", in.Servers, "made", made)
	return made, nil
}

// Finding says which store a host must find or make. It is a part of the body of PathStart.
type Finding struct {
	// Servers are the names of the memory servers, in an order that must be the same on all hosts.
	Servers []string `json:"servers"`
	// Format is true if the host is to make a store if the servers have none. Fresh is true if it
	// is to make one in any case. If both are false, the store must be there.
	Format bool `json:"format,omitempty"`
	Fresh  bool `json:"fresh,omitempty"`
}

// For returns the Finding for one of the hosts on which StartHosts starts the store. first is true
// for the first host: only that host makes a store.
func (f Finding) For(servers []string, first bool) Finding {
	return Finding{Servers: servers, Format: f.Format && first, Fresh: f.Fresh && first}
}

// Keep makes the host remember k, a store on these servers.
func (p *Passive[Known, C]) Keep(k *Known, servers []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.servers = k, servers
}

// Known returns what the host knows and the names of the memory servers. If the host knows no
// store, the error says how to start one.
func (p *Passive[Known, C]) Known() (*Known, []string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return nil, nil, control.Errorf(http.StatusConflict, "%s knows no %s; start one: `rdmalab %s start`", p.Host.Name(), p.What, p.Store.Name)
	}
	return p.known, p.servers, nil
}

// With opens a client, calls f with it and closes it. All that is one job of the host.
func (p *Passive[Known, C]) With(r *http.Request, job string, f func(k *Known, c C, rt verbs.Runtime) error) error {
	k, servers, err := p.Known()
	if err != nil {
		return err
	}
	return HTTPError(p.Host.Do(r, p.Store.Name+" "+job, func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := p.open(k, servers, v, rt.Now().Add(p.Store.JoinPatience()))
		if err != nil {
			return p.Store.NotOpened(err)
		}
		return errors.Join(f(k, c, rt), c.Close())
	}))
}

func (p *Passive[Known, C]) open(k *Known, servers []string, v verbs.Context, deadline clock.Time) (c C, err error) {
	cfg, err := p.Config(v, servers)
	if err != nil {
		return c, err
	}
	return p.Dial(k, cfg, deadline)
}

func (p *Passive[Known, C]) Clients(ClientOptions) (func(verbs.Context) Clients, error) {
	k, servers, err := p.Known()
	return func(v verbs.Context) Clients {
		return Opener(func(deadline clock.Time) (kv.Store, error) {
			return Opened(p.open(k, servers, v, deadline))
		})
	}, err
}

// Opener opens clients that share nothing.
type Opener func(deadline clock.Time) (kv.Store, error)

func (f Opener) Open(deadline clock.Time) (kv.Store, error) { return f(deadline) }

func (Opener) Close() error { return nil }

func (p *Passive[Known, C]) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{Up: p.known != nil}
}

// Crash implements Node: the host forgets the store. The memory servers keep the store's data.
func (p *Passive[Known, C]) Crash() error {
	p.Keep(nil, nil)
	return nil
}

// NICGone implements Node. It does nothing, because clients connect again by themselves.
func (p *Passive[Known, C]) NICGone() error { return nil }
