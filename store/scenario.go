package store

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Scenario is a scenario of `rdmalab sim` that belongs to a store: random faults on a simulated
// rack, and checks. A scenario that needs a special rack is not a field of its store: the simulator
// takes it (scenario.Register of package sim/scenario).
type Scenario struct {
	// Name and Doc are shown by `rdmalab sim --help`.
	Name, Doc string
	// Trial makes the random choices that only this store needs. The run is the same for all
	// stores: clients on several hosts use a few keys, while links lose, duplicate and delay
	// packets, copies are torn, and hosts fail. One order of all operations on each key must
	// explain all answers. servers is the number of memory servers.
	Trial func(r *rand.Rand, servers int) Trial
}

// Trial describes the store of one run (Scenario.Trial).
type Trial struct {
	// Plan describes in words the random choices of Scenario.Trial.
	Plan string
	// Memory is how many bytes of host memory each memory server lends. Locks is how many bytes of
	// NIC memory it lends in addition. Largest is the length of the longest value in bytes.
	Memory, Locks, Largest int
	// Loopback is how long a packet takes from a NIC to itself; 0 means no time.
	Loopback time.Duration
	// Format makes the store. Open opens a client; it is nil if there is a Server.
	Format func(cfg passive.Config, deadline clock.Time) error
	Open   func(cfg passive.Config, deadline clock.Time) (kv.Store, error)
	// Server is the store's server; nil means that the store has none.
	Server *TrialServer
	// Crashes is true if clients may die at any moment, and hosts and servers may fail for a while.
	// Loss is true if servers may also lose their memory. After that, kv.ErrLost is a right answer,
	// too.
	Crashes, Loss bool
	// Upserts is true if clients are a kv.Upserter. Then a third of the PUTs and INSERTs are
	// UPSERTs.
	Upserts bool
	// Judge, if not nil, checks the memory of the servers after the last operation. quiet is true
	// if every operation had an answer, and no client died.
	Judge func(memory [][]byte, quiet bool) error
}

// TrialServer is the server of a store in a Trial. It runs on a host of its own. When the host or
// the server fails, another server is started, on the same host or on a second one. Both servers
// may run for a while.
type TrialServer struct {
	// Start starts a server. serve runs it until the context of cfg ends, or until another server
	// has replaced it: then serve returns Replaced.
	Start    func(cfg passive.Config, m rdmacm.Manager, deadline clock.Time) (serve func() error, err error)
	Replaced error
	// Resident, if not nil, is called before the first Start. It is for a store whose data are in
	// the memory of the server's host. ctx belongs to that host and outlives the server, like the
	// context of the host's daemon. With Resident, servers are started on that host alone, each one
	// after the previous one has ended. If the host's NIC crashes, the data are lost: when the NIC
	// is back, Resident is called again, and the store is empty.
	Resident func(ctx verbs.Context) error
	// Open opens a client. hosts are all hosts on which a server may run.
	Open func(cfg passive.Config, hosts []netip.Addr, deadline clock.Time) (kv.Store, error)
}
