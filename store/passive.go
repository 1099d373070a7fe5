package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Passive is the Node of a store that has no server but the memory services: a host only knows
// where the store is and how its own clients use it, which is a Known. C is a client.
type Passive[Known any, C kv.Store] struct {
	Host  Host
	Store *Store
	// What is that which the hosts know, in a word: a table.
	What string
	// Dial opens a client. cfg names the memory servers that the host knows.
	Dial func(k *Known, cfg passive.Config, deadline clock.Time) (C, error)

	making  sync.Mutex // held while Find looks for the store or makes it: of two that are made at once one is destroyed
	mu      sync.Mutex // guards the fields below
	known   *Known
	servers []string
}

// Stops answers PathStop: the host forgets the store.
func (p *Passive[Known, C]) Stops(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+p.Store.Path(PathStop), func(*http.Request, none) (none, error) { return none{}, p.Crash() })
}

// Config is where a client stands that runs in the verbs context v and uses these memory servers.
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

// Find is the answer to a start: open opens and closes a client of the store on these servers; if
// that fails with absent, and always with Fresh, make makes the store. Then the host knows k.
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

// Finding says which store a host is to find or to make. It is a part of the body of PathStart.
type Finding struct {
	// Servers are the names of the memory servers, in an order that must be the same everywhere.
	Servers []string `json:"servers"`
	// Format makes a store where there is none, Fresh also where there is one. Without both the store
	// must be there.
	Format bool `json:"format,omitempty"`
	Fresh  bool `json:"fresh,omitempty"`
}

// For is the Finding of one of the hosts that StartHosts starts: only the first host makes a store.
func (f Finding) For(servers []string, first bool) Finding {
	return Finding{Servers: servers, Format: f.Format && first, Fresh: f.Fresh && first}
}

// Keep makes the host remember k, a store on these servers.
func (p *Passive[Known, C]) Keep(k *Known, servers []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.servers = k, servers
}

// Known returns what the host knows, and the names of the memory servers, or an error that says how
// to start the store.
func (p *Passive[Known, C]) Known() (*Known, []string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return nil, nil, control.Errorf(http.StatusConflict, "%s knows no %s; start one: `rdmalab %s start`", p.Host.Name(), p.What, p.Store.Name)
	}
	return p.known, p.servers, nil
}

// With runs f with a client that it opens, as a job of the host.
func (p *Passive[Known, C]) With(r *http.Request, job string, f func(k *Known, c C, rt verbs.Runtime) error) error {
	k, servers, err := p.Known()
	if err != nil {
		return err
	}
	return HTTPError(p.Host.Do(r, p.Store.Name+" "+job, func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := p.open(k, servers, v, rt.Now().Add(p.Store.JoinPatience()))
		if err != nil {
			return fmt.Errorf("%w; %s", err, p.Store.HowToStart())
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

// Clients implements Node.
func (p *Passive[Known, C]) Clients(ClientOptions) (func(verbs.Context) Clients, error) {
	k, servers, err := p.Known()
	return func(v verbs.Context) Clients {
		return Opener(func(deadline clock.Time) (kv.Store, error) {
			c, err := p.open(k, servers, v, deadline)
			if err != nil {
				return nil, err // and no client that is a nil of type C
			}
			return c, nil
		})
	}, err
}

// Opener opens clients that share nothing.
type Opener func(deadline clock.Time) (kv.Store, error)

// Open implements Clients.
func (f Opener) Open(deadline clock.Time) (kv.Store, error) { return f(deadline) }

// Close implements Clients.
func (Opener) Close() error { return nil }

// Status implements Node.
func (p *Passive[Known, C]) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{Up: p.known != nil}
}

// Crash implements Node: the host forgets the store. The memory servers keep it.
func (p *Passive[Known, C]) Crash() error {
	p.Keep(nil, nil)
	return nil
}

// NICGone implements Node. Nothing is to do: clients connect again.
func (p *Passive[Known, C]) NICGone() error { return nil }
