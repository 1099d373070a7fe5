package store

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Host is the interface through which a Node uses its host's daemon.
type Host interface {
	Name() string
	// Address returns the address of a host, given its name or its address as text.
	Address(name string) (netip.Addr, error)
	// NameOf returns the name of the host with an address, or the address if the rack has no such
	// host.
	NameOf(addr string) string
	// Manager returns the connection manager, which connects queue pairs.
	Manager() rdmacm.Manager
	// Context makes a verbs context for a service. The caller must close it.
	Context() verbs.Context
	Log() *slog.Logger
	// Service calls f, which starts a service of the node. A crash of the host's application waits
	// until f has returned. If the application has crashed or hangs, Service returns an error of
	// status 409 and does not call f. f must not call Service.
	Service(f func() error) error
	// Do runs f as a job, with a verbs context of its own. The context ctx ends when the client
	// abandons the request or the application crashes.
	Do(r *http.Request, job string, f func(ctx context.Context, v verbs.Context) error) error
}

// OneRMAHost is a Host that may have a NIC without connections (1RMA). The hosts of a rack
// implement it, those of the simulator do not.
type OneRMAHost interface {
	Host
	// OneRMA returns the host's 1RMA NIC. If the host has none, the error says how to get one.
	OneRMA() (*onermahost.NIC, error)
	// Awake blocks while the programs of the host hang. The threads of a service call it after they
	// have waited for something other than a NIC.
	Awake()
}

// Node is a store's part of one host's daemon. Several goroutines may call its methods at any time,
// but Crash and NICGone are not called while Host.Service runs.
type Node interface {
	// Routes adds the store's control requests under Path: PathStart, PathStop and those of its
	// commands.
	Routes(m *control.Mux)
	// Clients prepares clients of the store on this host. It returns the function f, which makes
	// the Clients of one verbs context.
	Clients(o ClientOptions) (f func(v verbs.Context) Clients, err error)
	Status() Status
	// Crash stops the store's part of the host's application as a crash does: its state is lost.
	Crash() error
	// NICGone is called when the host's NIC is gone. It ends the parts of the store that cannot
	// work without a NIC.
	NICGone() error
}

// Clients opens clients of a store in one verbs context.
type Clients interface {
	// Open opens one client, for one thread. Several threads may call Open at a time.
	Open(deadline clock.Time) (kv.Store, error)
	// Close frees the resources that the clients share. The caller closes the clients first.
	Close() error
}

// Bounded is a client that knows the length in bytes of the longest value that its store accepts.
type Bounded interface {
	kv.Store
	MaxValue() int
}

// Status describes the state of a store's part of a host.
type Status struct {
	Store string `json:"store"`
	// Up is true if the host runs the store's server or, if the store has no server, knows the
	// store. Lists of hosts leave out hosts for which Up is false.
	Up bool `json:"-"`
	// Service is the name under which clients connect to the server; "" means that there is no
	// server.
	Service string `json:"service,omitempty"`
	// Values are the counters that Store.Columns names, in the same order. They never decrease.
	Values []uint64 `json:"values,omitempty"`
}
