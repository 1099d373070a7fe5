package experiment

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/clover/meta"
)

func TestStartFlag(t *testing.T) {
	for text, want := range map[string]CloverStart{
		"": {}, "threads=4 replicas=2": {Threads: 4, Replicas: 2}, "--balance": {Balance: true}, " replicas=3  balance=false": {Replicas: 3},
	} {
		got, err := (&startFlag{text}).parse(OnSim)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := (&startFlag{got.Args()}).parse(OnSim); err != nil || again != want {
			t.Errorf("%q: its arguments %q say %+v, %v", text, got.Args(), again, err)
		}
	}
	for _, text := range []string{"lease=1s", "threads=many", "threads=-1", "threads=65", "replicas=4", "replicas=-1", "threads 4"} {
		if _, err := (&startFlag{text}).parse(OnSim); err == nil || !strings.Contains(err.Error(), "threads, replicas and balance") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// On a rack, the number of threads of Clover's metadata server has the bound of the program; in the
// simulator it is a parameter of the cost model.
func TestThreadsOnARack(t *testing.T) {
	if rackThreads != meta.MaxThreads {
		t.Errorf("at most %d threads, Clover has %d", rackThreads, meta.MaxThreads)
	}
	for threads, works := range map[string]bool{"threads=16": true, "threads=17": false, "threads=64": false} {
		err := (&contentionBody{writes: []float64{5}, steer: steerBoth, reporter: ofClient, start: startFlag{threads}}).Check(Place{On: OnRack})
		if (err == nil) != works || err != nil && !strings.Contains(err.Error(), "want 0 to 16") {
			t.Errorf("%s: %v", threads, err)
		}
	}
	if err := (&contentionBody{writes: []float64{5}, steer: steerBoth, reporter: ofClient, start: startFlag{"threads=64"}}).Check(Place{On: OnSim}); err != nil {
		t.Error(err)
	}
	b := cloverBaselines.New().(*baselinesBody)
	if b.start.text = "threads=17"; b.Check(Place{On: OnRack}) == nil {
		t.Error("clover-baselines starts 17 threads")
	}
}

// A switch cannot steer requests of a store with copies, and clover-baselines has a flag for copies.
func TestStartOfExperiments(t *testing.T) {
	steered := &contentionBody{writes: []float64{5}, steer: steerBoth, reporter: ofClient, start: startFlag{"replicas=2"}}
	if err := steered.Check(Place{On: OnSim}); err == nil || !strings.Contains(err.Error(), "--steer none") {
		t.Error(err)
	}
	b := cloverBaselines.New().(*baselinesBody)
	if err := b.Check(Place{On: OnSim}); err != nil {
		t.Error(err)
	}
	if n := len(b.systems(2)); n != 4 {
		t.Errorf("%d stores on two servers", n)
	}
	for _, wrong := range []func(b *baselinesBody){
		func(b *baselinesBody) { b.start.text = "replicas=2" },
		func(b *baselinesBody) { b.replicas = nil },
		func(b *baselinesBody) { b.replicas = []int{0} },
		func(b *baselinesBody) { b.replicas = []int{4} },
	} {
		b := cloverBaselines.New().(*baselinesBody)
		wrong(b)
		if err := b.Check(Place{On: OnSim}); err == nil {
			t.Errorf("%+v is right", b)
		}
	}
}
