package serialize_test

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sim/scenario"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
)

// flaws are protections that the test removes one at a time. Each is listed with the setup of the
// scenario planned in which its absence does damage.
var flaws = []struct {
	name, setup string
	schedules   int
	damage      string
	flawed      serialize.Flawed
}{
	{
		name: "a word does not wait for a WRITE on the shared connection of its neighbour", setup: "neighbour", schedules: 400,
		damage: "not linearizable", flawed: serialize.Flawed{Before: serialize.HurryWords},
	},
	{
		name: "a word does not wait for an atomic that moved under another rule", setup: "rules", schedules: 2000,
		damage: "not linearizable", flawed: serialize.Flawed{Before: func(m *serialize.Machine, now clock.Time) {
			serialize.HurryRules(m, now)
			serialize.HurryWords(m, now)
		}},
	},
	{
		name: "a word does not wait for what passed before there were rules", setup: "first-rules", schedules: 3500,
		damage: "not linearizable", flawed: serialize.Flawed{Before: serialize.HurryRules},
	},
	{
		name: "no word is told of the packets of a WRITE behind the first one", setup: "long-rules", schedules: 3000,
		damage: "not linearizable", flawed: serialize.Flawed{Hides: func(p *pipeline.Parsed) bool {
			return p.BTH.Opcode.Is(wire.OpWrite) && p.BTH.Opcode.Is(wire.OpMiddle|wire.OpLast)
		}},
	},
	{
		name: "the answer of an atomic is forgotten after 128 requests", setup: "behind", schedules: 400,
		damage: "retry counter exceeded", flawed: serialize.Flawed{Loses: func(s conntrack.Seen, p *pipeline.Parsed) bool {
			return p.BTH.Opcode.Is(wire.OpAtomic) && wire.Diff(s.Flow.Expected, p.BTH.PSN) > 128
		}},
	},
	{
		name: "a request is too old after 4,096 others", setup: "silent", schedules: 20,
		damage: "retry counter exceeded", flawed: serialize.Flawed{Loses: func(s conntrack.Seen, p *pipeline.Parsed) bool {
			return wire.Diff(s.Flow.Expected, p.BTH.PSN) > 4096
		}},
	},
}

func search(t *testing.T, p scenario.Params) scenario.Report {
	t.Helper()
	s, err := scenario.Find("planned")
	if err == nil {
		s, err = s.Vary(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Run(1, scenario.Options{Findings: 1})
}

// The planned search finds the damage of each removed protection within a bounded number of
// schedules, and the schedule that it names replays it. Not parallel: the tests of this package
// share the registry of handlers.
func TestPlannedSearchFindsFlaws(t *testing.T) {
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			back := serialize.UseFlawed(func(m *serialize.Machine) *serialize.Flawed {
				flawed := f.flawed
				flawed.Machine = m
				return &flawed
			})
			defer back()
			r := search(t, scenario.Params{Setup: f.setup, Schedules: f.schedules})
			t.Log(strings.Join(r.Notes, "\n"))
			if r.Err == nil || !strings.Contains(r.Err.Error(), f.damage) {
				t.Fatalf("%v, want damage: %s", r.Err, f.damage)
			}
			_, plan, _ := strings.Cut(r.Err.Error(), "--plan ")
			plan, _, _ = strings.Cut(plan, " ")
			t.Logf("%v", r.Err)
			if again := search(t, scenario.Params{Plan: plan}); again.Err == nil || !strings.Contains(again.Err.Error(), f.damage) {
				t.Errorf("%s: %v", plan, again.Err)
			}
			back()
			if sound := search(t, scenario.Params{Plan: plan}); sound.Err != nil {
				t.Errorf("%s without the flaw: %v", plan, sound.Err)
			}
		})
	}
}

// With all protections the same search finds no damage: here its first tenth, and all of it in
// `make scenarios`.
func TestPlannedSearchFindsNothing(t *testing.T) {
	for _, f := range flaws {
		if r := search(t, scenario.Params{Setup: f.setup, Schedules: max(f.schedules/10, 20)}); r.Err != nil {
			t.Errorf("%s: %v\n%s", f.setup, r.Err, strings.Join(r.Notes, "\n"))
		}
	}
}
