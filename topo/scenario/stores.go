package scenario

import (
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// storeScenarios returns the scenarios that the stores registered in package store define.
func storeScenarios() (out []Scenario) {
	for _, s := range store.All() {
		for _, one := range s.Scenarios {
			run := func(e *env) error { return one.Run(rig{e}) }
			if one.Run == nil {
				run = func(e *env) error { return runTrial(e, one.Trial, nil) }
			}
			out = append(out, Scenario{Name: one.Name, Doc: one.Doc, run: run})
		}
	}
	return out
}

// rig is one run, as the scenario of a store sees it: it implements store.Rig.
type rig struct{ e *env }

var _ store.Rig = rig{}

// Seed implements store.Rig.
func (r rig) Seed() uint64 { return r.e.seed }

// Build implements store.Rig.
func (r rig) Build(rackFile string) (*simrack.Rack, error) {
	err := r.e.build(rackFile, simrack.Options{})
	return r.e.rack, err
}

// Run implements store.Rig.
func (r rig) Run() error { return r.e.run() }

// Plan implements store.Rig.
func (r rig) Plan(text string) { r.e.report.Plan = text }
