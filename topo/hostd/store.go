package hostd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Endpoints of stores.
const (
	PathStoreStart = "/store/start" // POST StoreConfig: none; the host becomes the metadata server
	PathStoreStop  = "/store/stop"  // POST: none
	PathStoreOp    = "/store/op"    // POST StoreOp: StoreAnswer; the host is a client
	PathStoreStat  = "/store/stat"  // POST StoreOp: rpc.Stats
	PathRun        = "/run"         // POST RunRequest: stream of RunEvent; the host runs clients
)

// StoreConfig describes a store.
type StoreConfig struct {
	// Servers are the names of the memory servers.
	Servers []string `json:"servers"`
	// Format of nodes: sound, keyed or vanilla; "": sound.
	Format string `json:"format,omitempty"`
	// Keys is how many the store can hold; 0: 65536. Region is how much memory of each server it takes, in bytes; 0: all.
	Keys   int `json:"keys,omitempty"`
	Region int `json:"region,omitempty"`
	// Lease of clients; 0: 2 s.
	Lease time.Duration `json:"lease,omitempty"`
	// Fresh formats the memory even if it holds a store.
	Fresh bool `json:"fresh,omitempty"`
}

// StoreOp is one operation of a client.
type StoreOp struct {
	// Meta is the name of the metadata server's host.
	Meta string `json:"meta"`
	// Op is get, put, insert or delete.
	Op    string `json:"op"`
	Key   uint64 `json:"key"`
	Value []byte `json:"value,omitempty"`
	// Patience is the deadline; 0: 5 s.
	Patience time.Duration `json:"patience,omitempty"`
}

func (o StoreOp) withDefaults() StoreOp {
	if o.Patience <= 0 {
		o.Patience = storePatience
	}
	return o
}

// StoreAnswer is what it brought.
type StoreAnswer struct {
	Value []byte        `json:"value,omitempty"`
	Cost  kv.Cost       `json:"cost"`
	Took  time.Duration `json:"tookNs"`
}

const storePatience = 5 * time.Second

// store is the metadata server of a host.
type store struct {
	cfg    StoreConfig
	ctx    verbs.Context
	server *meta.Server
	// ended is closed when it does not answer any more.
	ended chan struct{}
}

// is says why a store that runs is not what is asked for; nil: it is.
func (s *store) is(cfg StoreConfig, host string) error {
	differs := cfg.Fresh || cfg.Format != "" && formats[cfg.Format] != formats[s.cfg.Format] ||
		cfg.Keys != 0 && cfg.Keys != s.cfg.Keys || cfg.Region != 0 && cfg.Region != s.cfg.Region
	if !differs {
		return nil
	}
	return control.Errorf(http.StatusConflict, "%s runs a store already, and that stays as it is: `rdmalab clover stop` ends it, when nobody uses it", host)
}

// formats of nodes by name.
var formats = map[string]layout.Format{"": layout.Sound, "sound": layout.Sound, "keyed": layout.Keyed, "vanilla": layout.Vanilla}

// startStore makes the host the metadata server of a store. One that runs is left as it is, one that has failed is replaced.
func (a *application) startStore(cfg StoreConfig) error {
	format, ok := formats[cfg.Format]
	if !ok {
		return control.Errorf(http.StatusBadRequest, "node format %q: want sound, keyed or vanilla", cfg.Format)
	}
	var servers []netip.Addr
	for _, name := range cfg.Servers {
		addr, err := a.h.address(name)
		if err != nil {
			return err
		}
		servers = append(servers, addr)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.running:
		return control.Errorf(http.StatusConflict, "the application of %s has crashed; restart it", a.h.self.Name)
	case a.store != nil:
		select {
		case <-a.store.ended:
			_ = a.endStore() // it has failed, and said so
		default:
			return a.store.is(cfg, a.h.self.Name)
		}
	}
	ctx := a.h.dev.Context()
	s, err := meta.New(meta.Config{
		Context: ctx, Manager: a.h.conn, Servers: servers, Format: format, Keys: cfg.Keys, Region: cfg.Region, Lease: cfg.Lease,
		Grace: graceOf(cfg.Lease), Fresh: cfg.Fresh,
	})
	if err != nil {
		return errors.Join(control.Errorf(http.StatusBadGateway, "%v", err), ctx.Close())
	}
	st := &store{cfg: cfg, ctx: ctx, server: s, ended: make(chan struct{})}
	a.store = st
	a.served.Go(func() {
		defer close(st.ended)
		if err := s.Serve(); err != nil {
			a.h.log.Warn("metadata server ended", "error", err)
		}
	})
	a.h.log.Info("metadata server is up", "memory", cfg.Servers, "format", cfg.Format)
	return nil
}

// minGrace is longer than the NIC of a client that has died, or has given a queue pair up, goes on sending a request: eight times the ACK
// timeout of rdmacm.Params, 67 ms.
const minGrace = time.Second

// graceOf is how long after a lease of some length packets of its client may still arrive. 0 stands for the usual one, of both.
func graceOf(lease time.Duration) time.Duration {
	if lease == 0 {
		return 0
	}
	return max(lease, minGrace)
}

// stopStore ends the metadata server. The memory servers keep the store: it can be started again.
func (a *application) stopStore() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endStore()
}

// endStore is stopStore for a caller that holds mu.
func (a *application) endStore() error {
	s := a.store
	if s == nil {
		return nil
	}
	a.store = nil
	return errors.Join(s.server.Close(), s.ctx.Close())
}

// storeOp makes one operation as a client of its own.
func (h *Host) storeOp(r *http.Request, in StoreOp) (out StoreAnswer, err error) {
	in = in.withDefaults()
	err = h.asClient(r, in, func(c *clover.Client, rt verbs.Runtime) error {
		began := rt.Now()
		deadline := began.Add(in.Patience)
		switch in.Op {
		case "get":
			out.Value, err = c.Get(in.Key, nil, deadline)
		case "put":
			err = c.Put(in.Key, in.Value, deadline)
		case "insert":
			err = c.Insert(in.Key, in.Value, deadline)
		case "delete":
			err = c.Delete(in.Key, deadline)
		default:
			err = control.Errorf(http.StatusBadRequest, "operation %q: want get, put, insert or delete", in.Op)
		}
		out.Cost, out.Took = c.Last(), rt.Now().Sub(began)
		return err
	})
	return out, storeStatus(err)
}

// storeStatus gives an error of a store the HTTP status of its kind.
func storeStatus(err error) error {
	status := http.StatusBadGateway
	var own *control.Error
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.Is(err, kv.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, kv.ErrExists):
		status = http.StatusConflict
	case errors.Is(err, kv.ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, kv.ErrLost):
		status = http.StatusGone
	case errors.Is(err, kv.ErrTimeout):
		status = http.StatusGatewayTimeout
	}
	return control.Errorf(status, "%v", err)
}

func (h *Host) storeStat(r *http.Request, in StoreOp) (st rpc.Stats, err error) {
	in = in.withDefaults()
	err = h.asClient(r, in, func(c *clover.Client, rt verbs.Runtime) error {
		st, err = c.Stats(rt.Now().Add(in.Patience))
		return err
	})
	return st, storeStatus(err)
}

// asClient runs f with a client of the store.
func (h *Host) asClient(r *http.Request, in StoreOp, f func(*clover.Client, verbs.Runtime) error) error {
	addr, err := h.address(in.Meta)
	if err != nil {
		return err
	}
	return h.app.do(r, "clover "+in.Op, func(_ context.Context, v verbs.Context) error {
		rt := v.Runtime()
		c, err := clover.Open(clover.Config{Context: v, Manager: h.conn, Meta: addr, MaxValue: layout.MaxSlab}, rt.Now().Add(in.Patience))
		if err != nil {
			return fmt.Errorf("%w; is the store up? `rdmalab clover start`", err)
		}
		return errors.Join(f(c, rt), c.Close())
	})
}
