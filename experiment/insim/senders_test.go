package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// The rack file of line C10 in the simulator: two senders share the link, and the queue is short. Without marks they
// have nothing that slows them, and the queue is what is in flight.
func TestSendersOfARackFile(t *testing.T) {
	run := func(marks bool) experiment.SenderStats {
		spec, model := slowFile(t, "dcqcn-slow.yaml")
		if !marks {
			spec.Switch.Queues.Classes[0].ECN = portqueue.RED{}
		}
		l := Senders{Rack: spec, Cost: model, From: []string{"cn0", "cn1"}, To: "ms0", Span: 40 * time.Millisecond, Every: 50 * time.Microsecond, Seed: 1}
		_, stats, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats
	}
	with, without := run(true), run(false)
	t.Logf("with marks %+v, without %+v", with, without)
	if with.Jain < 0.95 || with.Link < 0.93 || with.P50 < 5_000 || with.P50 > 60_000 || with.CNPs == 0 || with.Again != 0 || len(with.Rates) != 2 {
		t.Errorf("with marks: %+v", with)
	}
	if without.CNPs != 0 || without.Marked != 0 || without.P50 < 200_000 {
		t.Errorf("without marks: %+v", without)
	}
}

// A rack file without rates has no port that congests.
func TestSendersNeedARate(t *testing.T) {
	spec, err := rackfile.Parse([]byte("name: plain\nhosts: [{name: cn0, role: compute}, {name: ms0, role: memory}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := Senders{Rack: spec, From: []string{"cn0"}, To: "ms0", Span: time.Millisecond, Every: time.Microsecond}
	if _, _, err := l.Run(t.Context()); err == nil {
		t.Error("senders measure a port without a queue")
	}
}
