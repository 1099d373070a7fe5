package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Options say how a program uses a store. The zero value is for a program that was started by
// `rdmalab exec`.
type Options struct {
	// Clients and Patience are the fields of Config with the same names.
	Clients  int
	Patience time.Duration
	// NIC is the NIC of the program's host.
	NIC ipc.Config
	// Memory are the addresses of the memory servers in the order of the rack file. Server is the
	// address of the host that runs the store's server, if the store has one. A program in a
	// container needs them, because it cannot read the rack's description.
	Memory []string
	Server string
	// Client are the options of clients, for which `rdmalab run ycsb` has flags. Its field Server
	// is not used.
	Client store.ClientOptions
	// Start are fields of the store's start request. They say how a host uses the store, for
	// instance the size of Sherman's cache. A store with a server does not use them.
	Start map[string]any
}

// Open opens a store that runs on the rack of this program's host. The caller must close the Pool.
func Open(ctx context.Context, name string, o Options) (*Pool, error) {
	desc, err := store.Find(name)
	if err != nil {
		return nil, fmt.Errorf("%w; the program must import the store, or store/all", err)
	}
	nic, err := ipc.Open(o.NIC)
	if err != nil {
		return nil, err
	}
	p, err := open(ctx, desc, nic, &o)
	if err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	return p, nil
}

// open makes the Pool and opens its first client.
func open(ctx context.Context, desc *store.Store, nic *ipc.Context, o *Options) (*Pool, error) {
	h := &host{nic: nic}
	if len(o.Memory) == 0 {
		var err error
		if h.rack, err = readRack(o.NIC.Socket); err != nil {
			return nil, err
		}
	}
	if o.Client.Server = o.Server; desc.Server != nil && o.Server == "" {
		if h.rack == nil {
			return nil, fmt.Errorf("options name no server, and %s has one: Options.Server is its address", desc.Title)
		}
		var err error
		if o.Client.Server, err = desc.Server(h.rack); err != nil {
			return nil, err
		}
	}
	list := &members{replaced: desc.Server == nil, find: func(ctx context.Context) (store.Clients, error) {
		node := desc.Node(h)
		if desc.Server == nil {
			if err := h.start(ctx, desc, node, o); err != nil {
				return nil, err
			}
		}
		clients, err := node.Clients(o.Client)
		if err != nil {
			return nil, err
		}
		return clients(nic), nil
	}}
	if err := list.search(ctx); err != nil {
		return nil, err
	}
	p, err := New(Config{
		Open: list.Open, Now: nic.Runtime().Now, Clients: o.Clients, Patience: o.Patience, Join: desc.JoinPatience(),
		Stale: func(err error) bool {
			// A store without a server is lost as a whole. Another store may have been made since,
			// which a new client finds.
			return desc.Broken != nil && errors.Is(err, desc.Broken) || desc.Server == nil && errors.Is(err, kv.ErrLost)
		},
		Close: func() error { return errors.Join(list.Close(), nic.Close()) },
	})
	if err != nil {
		return nil, err
	}
	if _, err = p.MaxValue(ctx); err != nil {
		return nil, errors.Join(desc.NotOpened(err), p.Close())
	}
	return p, nil
}

// readRack reads the description of the rack to which the socket of a NIC belongs. If socket is "",
// it uses the socket that the environment names.
func readRack(socket string) (*rackfile.Rack, error) {
	p := rackfile.Paths{Dir: filepath.Dir(filepath.Dir(cmp.Or(socket, os.Getenv(ipc.EnvSocket))))}
	b, err := os.ReadFile(p.Spec())
	if err != nil {
		return nil, fmt.Errorf("where is the store? the rack's description cannot be read, and Options.Memory is empty: %w", err)
	}
	return rackfile.Decode(b)
}

// host is the store.Host of this program, for the store's Node.
type host struct {
	nic  *ipc.Context
	rack *rackfile.Rack // nil means that the rack is not known
}

var _ store.Host = (*host)(nil)

// start finds a store that has no server. The Node of such a store finds it when it gets the start
// request; on a rack, `rdmalab STORE start` sends this request to the daemon of each host.
func (h *host) start(ctx context.Context, desc *store.Store, node store.Node, o *Options) error {
	var mux control.Mux
	node.Routes(&mux)
	fields := map[string]any{"servers": o.Memory}
	if h.rack != nil {
		fields["servers"] = (&store.Call{Rack: h.rack}).Memory()
	}
	maps.Copy(fields, o.Start)
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, desc.Path(store.PathStart), bytes.NewReader(b))
	if err != nil {
		return err
	}
	var a answer
	if mux.ServeHTTP(&a, r); a.status >= http.StatusBadRequest {
		var why control.Error
		_ = json.Unmarshal(a.body.Bytes(), &why) // if this fails, the message is empty
		return fmt.Errorf("%s: %s; %s", desc.Name, why.Message, desc.HowToStart())
	}
	return nil
}

// answer is an http.ResponseWriter that keeps the response in memory.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = make(http.Header)
	}
	return a.header
}

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func (h *host) Name() string { return "this program" }

func (h *host) Address(name string) (netip.Addr, error) {
	if h.rack == nil {
		return netip.ParseAddr(name)
	}
	return h.rack.Address(name)
}

func (h *host) NameOf(addr string) string { return addr }

func (h *host) Manager() rdmacm.Manager { return h.nic.Manager() }

// Context implements store.Host. All clients of the program share its NIC.
func (h *host) Context() verbs.Context { return h.nic }

func (h *host) Log() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (h *host) Service(f func() error) error { return f() }

func (h *host) Do(r *http.Request, _ string, f func(ctx context.Context, v verbs.Context) error) error {
	return f(r.Context(), h.nic)
}
