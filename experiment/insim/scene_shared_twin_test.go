package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// The twin of a rack shares a connection as the scene says: with one rate for the connection its four clients have together
// what each other client has, with a rate for each client all have the same.
func TestSharedTwin(t *testing.T) {
	shares := func(rule string) (shared, own float64) {
		spec, model := slowFile(t, "shared-slow.yaml")
		s := experiment.Scene{Hosts: 9, Share: rule, Depth: 30, Span: 100 * time.Millisecond, Seed: 1}
		for i := range 8 {
			s.Flows = append(s.Flows, experiment.SceneFlow{From: 1 + i, To: 0, Each: 1024 * (1 - i/4)})
		}
		l := SceneTwin{Rack: spec, Cost: model, Hosts: []string{"ms0", "cn0", "cn1", "cn2", "cn3", "cn4", "cn5", "cn6", "cn7"}, Scene: s}
		out, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return sumOf(out.Shares[:4]), sumOf(out.Shares[4:])
	}
	if shared, own := shares("flow"); shared/own < 0.9 || shared/own > 1.1 {
		t.Errorf("a rate for each client: %.3f of the link shared, %.3f own", shared, own)
	}
	if shared, own := shares("connection"); shared/own < 0.2 || shared/own > 0.35 {
		t.Errorf("one rate for the connection: %.3f of the link shared, %.3f own", shared, own)
	}
}
