package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// The twin times each CMP_SWAP: one of a host with a priority of its own waits for no others in a full port, one with
// their priority for all that is in it.
func TestTimedTwin(t *testing.T) {
	run := func(host string, bulk int) experiment.SceneResult {
		spec, model := slowFile(t, "pfc-slow.yaml")
		s := experiment.Scene{Hosts: 2 + bulk, Depth: 8, Span: 10 * time.Millisecond, Seed: 1, Flows: []experiment.SceneFlow{{From: 1, To: 0, Atomic: true}}}
		hosts := []string{"ms0", host}
		for i, name := range []string{"cn1", "cn2", "cn3", "cn4"}[:bulk] {
			s.Flows, hosts = append(s.Flows, experiment.SceneFlow{From: 2 + i, To: 0}), append(hosts, name)
		}
		l := SceneTwin{Rack: spec, Cost: model, Hosts: hosts, Scene: s}
		out, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if out.Messages < 10 || out.Posted != out.Messages || out.Mean > out.Tail || out.Mean <= 0 {
			t.Errorf("%+v", out)
		}
		return out
	}
	idle, same, apart := run("cn0", 0), run("cn0", 4), run("apart", 4)
	if apart.Tail > 2*idle.Tail || same.Mean < 5*idle.Mean {
		t.Errorf("idle %v, 99 %% %v; same priority %v; own priority 99 %% %v", idle.Mean, idle.Tail, same.Mean, apart.Tail)
	}
}

// READs over a shared connection in the twin: four clients divide the server's link, and the others lose nothing to those
// who fill the port of the first.
func TestReadingTwin(t *testing.T) {
	run := func(n int) []float64 {
		spec, model := slowFile(t, "shared-slow.yaml")
		s := experiment.Scene{Hosts: 5 + n, Share: "all", Depth: 8, Span: 10 * time.Millisecond, Seed: 1}
		for i := range 4 {
			s.Flows = append(s.Flows, experiment.SceneFlow{From: 1 + i, To: 0, Each: 1024, Read: true})
		}
		for i := range n {
			s.Flows = append(s.Flows, experiment.SceneFlow{From: 5 + i, To: 1})
		}
		l := SceneTwin{Rack: spec, Cost: model, Hosts: []string{"ms0", "cn0", "cn1", "cn2", "cn3", "cn4", "cn5", "cn6", "cn7"}[:s.Hosts], Scene: s}
		out, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out.Shares
	}
	alone, full := run(0), run(4)
	if alone[0] < 0.15 || alone[0] > 0.26 || full[0] > 0.9*alone[0] || sumOf(full[1:4]) < 0.95*sumOf(alone[1:4]) || sumOf(full[4:])+full[0] > 1 {
		t.Errorf("shares without others %.3f, with a full port of the first %.3f", alone, full)
	}
}
