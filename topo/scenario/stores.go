package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/bytekeys"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/store/template"
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

// byteKeysTrial draws a trial (a store with the limits within which a scenario tests it) of
// byte-string keys. They lie in a table of the store template, which takes 64-bit keys: the hashes.
// All keys together have only one to three hashes, so nearly every key shares its hash with another
// one.
func byteKeysTrial(r *rand.Rand, _ int) store.Trial {
	shape := template.Shape{Value: 128 << r.IntN(3), Slots: 48 + r.IntN(48)}
	hashes := 1 + r.Uint64N(3)
	longest := 1 + r.IntN(40)
	name := func(number uint64) []byte {
		return fmt.Appendf(nil, "%d%s", number, strings.Repeat("k", int(number)*7%longest))
	}
	hash := func(key []byte) uint64 { return uint64(key[0]) % hashes * 12345 }
	trial := template.Table.Trial(shape, store.Trial{
		Plan:   fmt.Sprintf("%d hashes, keys to %d bytes, %d slots, entries to %d bytes", hashes, longest+2, shape.Slots, shape.Value),
		Memory: 128 << 10, Largest: shape.Value - longest - 8, Crashes: true, Loss: true, Upserts: true,
	})
	open := trial.Open
	trial.Open = func(cfg passive.Config, deadline clock.Time) (kv.Store, error) {
		c, err := open(cfg, deadline)
		if err != nil {
			return nil, err
		}
		return bytekeys.Numbered{Client: bytekeys.New(c, hash), Name: name}, nil
	}
	return trial
}
