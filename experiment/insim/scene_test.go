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
