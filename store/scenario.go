package store

import (
	"math/rand/v2"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// Scenario is a scenario of `rdmalab sim` that a store brings: random faults on a simulated rack,
// and checks.
type Scenario struct {
	// Name and Doc are what `rdmalab sim --help` lists.
	Name, Doc string
	// Run runs one seed. The error describes the check that failed.
	Run func(Rig) error
	// Trial, in place of Run, draws what is the store's own in the run of a store that needs no server
	// but passive memory: clients of several hosts use a few keys, while links lose, double and delay
	// packets, copies are torn, and hosts fail. One order of all operations on each key must explain
	// all answers. servers is the number of memory servers.
	Trial func(r *rand.Rand, servers int) Trial
}

// Trial is a store in such a run.
type Trial struct {
	// Plan describes what was drawn.
	Plan string
	// Memory is how many bytes each memory server lends. Locks is how many bytes of its NIC's
	// memory it lends in addition. Largest is the longest value in bytes.
	Memory, Locks, Largest int
	// Format makes the store, Open a client. Open is nil if there is a Server.
	Format func(cfg passive.Config, deadline clock.Time) error
	Open   func(cfg passive.Config, deadline clock.Time) (kv.Store, error)
	// Server is the store's server; nil: it has none.
	Server *TrialServer
	// Crashes: clients may die at any moment, and hosts and servers fail for a while. Loss: servers
	// may lose their memory, too; from then on an answer is right, or kv.ErrLost.
	Crashes, Loss bool
	// Judge, if not nil, checks the memory of the servers after the last operation. quiet: each
	// operation had an answer, and no client died.
	Judge func(memory [][]byte, quiet bool) error
}

// TrialServer is the server of a store in a Trial. It runs on a host of its own. When the host or the
// server fails, another one is started, there or on a second host, and both may run for a while.
type TrialServer struct {
	// Start starts a server, which serves until its context ends, or until another one has replaced
	// it: then the error is Replaced.
	Start    func(cfg passive.Config, m rdmacm.Manager, deadline clock.Time) (serve func() error, err error)
	Replaced error
	// Open opens a client. A server runs on one of the hosts, or none at times.
	Open func(cfg passive.Config, hosts []netip.Addr, deadline clock.Time) (kv.Store, error)
}

// Rig is the simulated rack of one seed.
type Rig interface {
	// Seed is the seed of all random choices.
	Seed() uint64
	// Build makes the rack that a rack file describes.
	Build(rackFile string) (*simrack.Rack, error)
	// Run runs the rack until all clients have returned and late frames have arrived.
	Run() error
	// Plan sets the text that describes the random choices of the seed.
	Plan(text string)
}
