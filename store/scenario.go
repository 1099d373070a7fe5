package store

import "github.com/rdmalab/rdmalab/topo/simrack"

// Scenario is a scenario of `rdmalab sim` that a store brings: random faults on a simulated rack,
// and checks.
type Scenario struct {
	// Name and Doc are what `rdmalab sim --help` lists.
	Name, Doc string
	// Run runs one seed. The error describes the check that failed.
	Run func(Rig) error
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
