package scenario

import (
	"testing"

	"github.com/rdmalab/rdmalab/store"
)

// The scenario of a registered store is listed, found and run.
func TestStoresBringScenarios(t *testing.T) {
	remove := store.Register(store.Store{
		Name: "tiny", Title: "Tiny", Node: func(store.Host) store.Node { return nil },
		Scenarios: []store.Scenario{{Name: "tiny", Doc: "one host", Run: func(r store.Rig) error {
			r.Plan("nothing")
			if _, err := r.Build("hosts: [{name: ms0, role: memory, memory: 64KiB}]"); err != nil {
				return err
			}
			return r.Run()
		}}},
	})
	defer remove()
	s, err := Find("tiny")
	if err != nil {
		t.Fatal(err)
	}
	if rep := s.Run(3, Options{}); rep.Err != nil || rep.Plan != "nothing" {
		t.Errorf("%+v", rep)
	}
}
