package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// Two flows from one host and one from another into a port: with PFC alone the ports have equal shares, and
// the switch pauses them; nothing is lost. A lossy priority loses packets, and pauses no host. Messages are
// all completed, and take at least as long as one alone.
func TestScene(t *testing.T) {
	p, _ := congestion.Profile(congestion.ProfilePaper, 40_000_000_000)
	p.Algorithm = congestion.AlgorithmNone
	s := experiment.Scene{
		Hosts: 3, Params: p, Delay: time.Microsecond, Lossless: true, XOFF: 100_000, Limit: 100_000, Window: 256, Span: 2 * time.Millisecond, Seed: 1,
		Flows: []experiment.SceneFlow{{From: 0, To: 2}, {From: 1, To: 2}, {From: 1, To: 2}},
	}
	out, err := (&Sim{}).Scene(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if alone, both := out.Shares[0], out.Shares[1]+out.Shares[2]; alone < 0.4 || alone > 0.6 || both < 0.4 || both > 0.6 || out.Pauses == 0 || out.Dropped != 0 || out.Again != 0 {
		t.Errorf("with PFC %+v", out)
	}
	s.Lossless = false
	if out, err = (&Sim{}).Scene(t.Context(), s); err != nil || out.Pauses != 0 || out.Dropped == 0 || out.Again == 0 {
		t.Errorf("without PFC %+v, %v", out, err)
	}
	s.Flows = []experiment.SceneFlow{{From: 0, To: 2, Messages: []experiment.SceneMessage{{At: 0, Bytes: 1024}, {At: time.Millisecond, Bytes: 1 << 20}}}}
	out, err = (&Sim{}).Scene(t.Context(), s)
	if err != nil || out.Messages != 2 || out.Posted != 2 || out.Slowdown < 0.9 || out.Slowdown > 1.5 || out.Dropped != 0 {
		t.Errorf("two messages alone %+v, %v", out, err)
	}
}

// A client of a shared connection gets a congestion notification for marks of its own packets if the rule says so;
// if all get each, they have less of the link than clients with connections of their own.
func TestSharedScene(t *testing.T) {
	p, _ := congestion.Profile(congestion.ProfilePaper, 40_000_000_000)
	share := map[string]float64{}
	for _, slow := range []string{"all", "marked"} {
		s := experiment.Scene{
			Hosts: 5, Params: p, Delay: time.Microsecond, Limit: 4 << 20, Marks: experiment.SceneMarks{KMin: 5_000, KMax: 200_000, PMax: 0.01}, Window: 1024, Depth: 30,
			Span: 40 * time.Millisecond, Seed: 1, Share: slow,
		}
		for i := range 4 {
			f := experiment.SceneFlow{From: 1 + i, To: 0}
			if i < 2 {
				f.Each = 1024 // one packet, which moves
			}
			s.Flows = append(s.Flows, f)
		}
		out, err := (&Sim{}).Scene(t.Context(), s)
		if err != nil || out.Told == 0 || out.Passed < out.Told || out.Again != 0 {
			t.Fatalf("%s: %+v, %v", slow, out, err)
		}
		share[slow] = (out.Shares[0] + out.Shares[1]) / (out.Shares[2] + out.Shares[3])
	}
	if share["all"] > 0.75 || share["marked"] < 0.8 || share["marked"] > 1.25 {
		t.Errorf("shares of shared connections divided by those of others: %v", share)
	}
}

// Atomics wait behind bulk, but not with a priority of their own.
func TestAtomicsApart(t *testing.T) {
	p, _ := congestion.Profile(congestion.ProfilePaper, 40_000_000_000)
	took := map[bool]time.Duration{}
	for _, apart := range []bool{false, true} {
		s := experiment.Scene{
			Hosts: 4, Params: p, Delay: time.Microsecond, Limit: 4 << 20, Marks: experiment.SceneMarks{KMin: 5_000, KMax: 200_000, PMax: 0.01}, Window: 1024,
			Span: 10 * time.Millisecond, Seed: 1, Flows: []experiment.SceneFlow{{From: 1, To: 0, Atomic: true, Apart: apart}, {From: 2, To: 0}, {From: 3, To: 0}},
		}
		for at := time.Duration(0); at < s.Span; at += 100 * time.Microsecond {
			s.Flows[0].Messages = append(s.Flows[0].Messages, experiment.SceneMessage{At: at, Bytes: 8})
		}
		out, err := (&Sim{}).Scene(t.Context(), s)
		if err != nil || out.Messages != out.Posted {
			t.Fatalf("%+v, %v", out, err)
		}
		took[apart] = out.Mean
	}
	if took[true] > 5*time.Microsecond || took[false] < 2*took[true] {
		t.Errorf("%v", took)
	}
}
