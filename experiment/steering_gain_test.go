package experiment

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/store/kv"
)

// steeredPlatform notes how the switch steers in the loads of Clover.
type steeredPlatform struct {
	Platform
	on    string
	modes []string
}

func (p *steeredPlatform) On() string     { return p.on }
func (*steeredPlatform) Describe() string { return "fake" }

func (p *steeredPlatform) Clover(_ context.Context, l Clover) (StoreResult, error) {
	p.modes = append(p.modes, l.Switch.Mode)
	return StoreResult{Result: kv.Result{FirstError: "remote access error", Failed: 1}}, nil
}

// On a rack, published steering would make operations fail. It is left out, and the report says so.
func TestPublishedSteeringIsLeftOutOnARack(t *testing.T) {
	for on, want := range map[string][]string{OnSim: {"", Hardened, Published, "", Hardened, Published}, OnRack: {"", Hardened}} {
		p := &steeredPlatform{on: on}
		b := steeringGain.New().(*steeringBody)
		b.rows = []int{4}
		if err := b.Check(Place{On: on}); err != nil {
			t.Fatal(err)
		}
		r := steeringGain.Report(p)
		if err := b.Run(t.Context(), p, r); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.modes, want) {
			t.Errorf("on %s: %q were measured", on, p.modes)
		}
		if says := strings.Contains(strings.Join(r.Summary, "\n"), "published"); says != (on == OnRack) {
			t.Errorf("on %s the report says %q", on, r.Summary)
		}
		if r.Err() == nil {
			t.Errorf("on %s failed operations are no error", on)
		}
	}
}

// A switch that is not known, or one on a rack, which has its own, is refused.
func TestSwitchesOfSteeringGain(t *testing.T) {
	for _, c := range []struct {
		on, box string
		ok      bool
	}{{OnSim, "line rate", true}, {OnSim, "cost model", true}, {OnSim, "rack", false}, {OnSim, "", false}, {OnRack, "line rate", false}} {
		b := steeringGain.New().(*steeringBody)
		b.switches = []string{c.box}
		if err := b.Check(Place{On: c.on}); (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "--switch") {
			t.Errorf("%s, %q: %v", c.on, c.box, err)
		}
	}
}
