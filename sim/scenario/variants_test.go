package scenario

import (
	"encoding/json"
	"strings"
	"testing"
)

// The former name of a scenario and the present name with parameters give the same run, except for
// the name.
func TestFormerNamesReplay(t *testing.T) {
	for _, a := range aliases {
		old := mustFind(t, a.name)
		now, err := mustFind(t, a.of).Vary(a.params)
		if err != nil {
			t.Fatal(err)
		}
		was, is := old.Run(3, Options{Hash: true}), now.Run(3, Options{Hash: true})
		if was.Scenario != a.name || is.Scenario != a.of+" "+a.params.args() || is.Hash == 0 {
			t.Errorf("%s is now %q with digest %x", was.Scenario, is.Scenario, is.Hash)
		}
		was.Scenario, was.Took, is.Took = is.Scenario, 0, 0
		if x, y := text(t, &was), text(t, &is); x != y {
			t.Errorf("%s: %s\n%s", a.name, x, y)
		}
		if got, want := now.Args(3), is.Scenario+" --seed 3"; got != want {
			t.Errorf("replay by %q, want %q", got, want)
		}
	}
}

func text(t *testing.T, r *Report) string {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParamsAreRefused(t *testing.T) {
	for _, c := range []struct {
		of   string
		p    Params
		want string
	}{
		{"rnr", Params{Steer: "both"}, "--steer is not for scenario rnr"},
		{"clover", Params{Steer: "left"}, "use write, read, both, any"},
		{"clover", Params{Torn: true}, "--torn"},
		{"locks", Params{Program: "track", Mode: "published"}, "--mode and --move are for swordbox"},
		{"locks", Params{Move: true, Mode: "published"}, "--move"},
		{"locks", Params{Mode: "moon"}, "--mode"},
		{"sherman", Params{Torn: true, Locks: "switch"}, "--locks switch"},
		{"sherman", Params{Step: "fg"}, "use fg+, combine"},
		{"sherman", Params{Step: "fg+", Mode: "published"}, "--step: not with"},
		{"clover-steer", Params{ShareQP: true}, "--share-qp"},
	} {
		if _, err := mustFind(t, c.of).Vary(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.of, c.p.args(), err, c.want)
		}
	}
}

// The former values of --mode are accepted.
func TestFormerModesOfScenarios(t *testing.T) {
	for _, c := range []struct{ scenario, former, now string }{
		{"locks", "paper", modePublished}, {"locks", "hard", modeHardened}, {"sherman", "faithful", modePublished}, {"sherman", "sound", modeHardened},
	} {
		was, err := mustFind(t, c.scenario).Vary(Params{Mode: c.former})
		if err != nil || !strings.HasSuffix(was.Name, "--mode "+c.now) {
			t.Errorf("%s --mode %s: %q, %v", c.scenario, c.former, was.Name, err)
		}
	}
}
