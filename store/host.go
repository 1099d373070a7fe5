package store

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Host is the host on which a Node works, as its daemon offers it.
type Host interface {
	// Name is the host's name in the rack.
	Name() string
	// Address resolves the name of a host, or an address in text form.
	Address(name string) (netip.Addr, error)
	// NameOf returns the name of the host with an address; the address itself if the rack has no
	// such host.
	NameOf(addr string) string
	// Manager connects queue pairs.
	Manager() rdmacm.Manager
	// Context makes a verbs context for a service. The caller closes it.
	Context() verbs.Context
	Log() *slog.Logger
	// Service runs f unless the host's application has crashed, which is an error of status 409.
	// The application does not crash while f runs. f starts a service of the node, and must not
	// call Service.
	Service(f func() error) error
	// Do runs f as a job with a verbs context of its own. The context of f ends when the request is
	// given up or the application crashes.
	Do(r *http.Request, job string, f func(ctx context.Context, v verbs.Context) error) error
}

// Node is a store's part of the daemon of one host. All methods may be called at any time by
// several goroutines; Crash and NICGone are not called during Host.Service.
type Node interface {
	// Routes adds the control requests of the store below Path: PathStart and PathStop, and those
	// of its commands.
	Routes(m *control.Mux)
	// Clients prepares clients of the store on this host. f makes the clients of one verbs context.
	Clients(o ClientOptions) (f func(v verbs.Context) Clients, err error)
	// Status describes the store's part of the host.
	Status() Status
	// Crash stops the store's part of the host's application as a crash would: its state is lost.
	Crash() error
	// NICGone is called when the host's NIC is gone. It ends the parts that cannot work without
	// one.
	NICGone() error
}

// Clients opens clients of a store in one verbs context.
type Clients interface {
	// Open opens one client, which is used by one thread. It may be called by several threads at a
	// time.
	Open(deadline clock.Time) (kv.Store, error)
	// Close frees the resources that the clients shared. The clients must have been closed.
	Close() error
}

// Upserter is a client that can give a key a value whether it has one or not.
type Upserter interface {
	kv.Store
	Upsert(key uint64, value []byte, deadline clock.Time) error
}

// Bounded is a client that knows how long a value can be, in bytes.
type Bounded interface {
	kv.Store
	MaxValue() int
}

// Status describes a store's part of a host.
type Status struct {
	// Store is the store's name.
	Store string `json:"store"`
	// Up: the host runs the store's server; for a store without a server: the host knows the store.
	// Only hosts with Up are listed.
	Up bool `json:"-"`
	// Service is the name under which others connect to the server; "": there is none.
	Service string `json:"service,omitempty"`
	// Values are the counters that Store.Columns names, in the same order. They only grow.
	Values []uint64 `json:"values,omitempty"`
}
