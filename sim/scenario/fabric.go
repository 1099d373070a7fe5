package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Fabric is the switches of a scenario's rack, in place of one: leaves, to which the hosts are connected in
// turn, and spines. The zero value is one switch.
type Fabric struct{ Leaves, Spines int }

// fabricScenarios are the scenarios that run over a fabric: those whose switch only forwards, and
// which survive a link that is down for cutFor. (The requests of redn-locks may end sooner.)
var fabricScenarios = []string{"transport", "srq", "uc", "ud", "clover", "sherman", "fusee", "redn"}

// Over returns the scenario on a rack with several switches, whose trunks are cut and raised at random
// times. text has the numbers of leaves and spines, such as 2x2; "" is one switch.
func (s Scenario) Over(text string) (Scenario, error) {
	if text == "" {
		return s, nil
	}
	var f Fabric
	if _, err := fmt.Sscanf(text, "%dx%d", &f.Leaves, &f.Spines); err != nil || fmt.Sprintf("%dx%d", f.Leaves, f.Spines) != text || f.Leaves < 2 || f.Leaves > 16 || f.Spines < 0 || f.Spines > 8 {
		return s, fmt.Errorf("--fabric %.20q: write leaves x spines, such as 2x2; 2 to 16 leaves, 0 to 8 spines", text)
	}
	name, variant, _ := strings.Cut(s.Name, " ")
	if !slices.Contains(fabricScenarios, name) || strings.Contains(variant, "steer") || strings.Contains(variant, "locks") {
		return s, fmt.Errorf("scenario %.40s needs one switch: --fabric is for those whose switch only forwards: %s", s.Name, strings.Join(fabricScenarios, ", "))
	}
	s.fabric = f
	return s, nil
}

func (f Fabric) args() string {
	if f == (Fabric{}) {
		return ""
	}
	return fmt.Sprintf(" --fabric %dx%d", f.Leaves, f.Spines)
}

// yaml is the line of the rack file.
func (f Fabric) yaml() string {
	if f == (Fabric{}) {
		return ""
	}
	return fmt.Sprintf("fabric: {leaves: %d, spines: %d}\n", f.Leaves, f.Spines)
}

// Trunks are cut in the first cutWithin, for at most cutFor.
const (
	cutWithin = 5 * time.Millisecond
	cutFor    = 3 * time.Millisecond
)

// cut schedules that trunks of the rack are cut and raised, each at most once, and describes it.
func (f Fabric) cut(rack *simrack.Rack, seed uint64) (plan string) {
	if f == (Fabric{}) {
		return ""
	}
	r := rand.New(rand.NewPCG(seed, laneCuts))
	trunks := rack.Spec.Trunks()
	r.Shuffle(len(trunks), func(i, k int) { trunks[i], trunks[k] = trunks[k], trunks[i] })
	for _, t := range trunks[:r.IntN(min(len(trunks), 4))] {
		at := clock.Time(r.Int64N(int64(cutWithin)))
		until := at.Add(time.Duration(1 + r.Int64N(int64(cutFor))))
		plan += fmt.Sprintf(" cut %s %v to %v", t.Name(), at, until)
		rack.At(at, func() { _ = rack.SetTrunk(t.Name(), false) }) // the trunk is one of the rack
		rack.At(until, func() { _ = rack.SetTrunk(t.Name(), true) })
	}
	return plan
}

// laneCuts is the stream of random numbers of cuts, so that other choices of a seed stay.
const laneCuts = 0xfab
