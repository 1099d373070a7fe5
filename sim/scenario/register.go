package scenario

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/store"
)

// Special is a scenario of a program's own on a rack of its own. A store that needs no special rack
// has a store.Scenario instead.
type Special struct {
	// Name and Doc are shown by `rdmalab sim --help`.
	Name, Doc string
	// Run runs the scenario with one seed. The error describes the check that failed.
	Run func(Rig) error
}

// special are the registered scenarios, in the order of their registration.
var special []Special

// Register adds a scenario. It is called by init functions. It panics if a part is missing or the
// name is taken. remove removes the scenario; only tests call it.
func Register(s Special) (remove func()) {
	switch _, err := Find(s.Name); {
	case s.Name == "" || s.Run == nil:
		panic(fmt.Sprintf("scenario %q lacks its name or its function", s.Name))
	case err == nil:
		panic(fmt.Sprintf("scenario %q is registered twice", s.Name))
	}
	special = append(special, s)
	return func() { special = slices.DeleteFunc(special, func(x Special) bool { return x.Name == s.Name }) }
}

// added returns the scenarios of the stores that are registered in package store, then those that
// Register has added.
func added() (out []Scenario) {
	for _, s := range store.All() {
		for _, one := range s.Scenarios {
			out = append(out, Scenario{Name: one.Name, Doc: one.Doc, run: func(e *env) error { return new(trialPlan).run(e, one.Trial, nil) }})
		}
	}
	for _, s := range special {
		out = append(out, Scenario{Name: s.Name, Doc: s.Doc, run: func(e *env) error { return s.Run(Rig{e.seed, e}) }})
	}
	return out
}

// Rig is one run of a Special, with one seed: the Special builds a simulated rack and runs it.
type Rig struct {
	Seed uint64 // of all random choices
	env  *env
}

// Build makes the rack that a rack file describes.
func (r Rig) Build(rackFile string) (*simrack.Rack, error) {
	err := r.env.build(rackFile, simrack.Options{})
	return r.env.rack, err
}

// Run runs the rack until all clients have returned and late frames have arrived.
func (r Rig) Run() error { return r.env.run() }

// Plan sets the text that describes the random choices made with the seed.
func (r Rig) Plan(text string) { r.env.report.Plan = text }
