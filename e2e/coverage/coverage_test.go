package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// everything returns each cell that a test must reach, as reached, and no other.
func everything() map[cell]string {
	reached := map[cell]string{}
	for _, s := range sections() {
		for _, r := range s.rows {
			for _, state := range s.states {
				for _, fate := range s.fates {
					if s.must(state, r, fate) {
						reached[cell{s.of, state, r.name, fate}] = "t"
					}
				}
			}
		}
	}
	return reached
}

// The gate fails if any cell that must be reached is not.
func TestEveryEmptyCellIsMissed(t *testing.T) {
	all := everything()
	if got := tally(sections(), all); len(got.missing)+len(got.impossible) > 0 || got.must != len(all) {
		t.Fatalf("of everything: missing %v, impossible %v", got.missing, got.impossible)
	}
	for c := range all {
		delete(all, c)
		if got := tally(sections(), all); !slices.Equal(got.missing, []cell{c}) {
			t.Fatalf("without %v: missing %v", c, got.missing)
		}
		all[c] = "t"
		if testing.Short() {
			return
		}
	}
}

// A cell is reported if it is reached although the model says that it is impossible.
func TestTheImpossibleIsNoticed(t *testing.T) {
	all := everything()
	c := cell{"RC", "RTS", "RC_ACK", "local"}
	all[c] = "e"
	got := tally(sections(), all)
	if !slices.Equal(got.impossible, []cell{c}) {
		t.Errorf("impossible: %v", got.impossible)
	}
	var b bytes.Buffer
	got.print(&b, false)
	if !strings.Contains(b.String(), "IMPOSSIBLE  RC in RTS: RC_ACK: local, by e") {
		t.Error("it is not printed")
	}
}

// The engine checks the ICRC before it looks at the state of the queue pair: a corrupt packet may
// come in each state.
func TestCorruptPacketsMayComeInAnyState(t *testing.T) {
	all := everything()
	for _, s := range sections()[:4] {
		for _, state := range s.states {
			all[cell{s.of, state, s.rows[0].name, "corrupt"}] = "s"
		}
	}
	if got := tally(sections(), all); len(got.impossible) > 0 {
		t.Errorf("impossible: %v", got.impossible)
	}
}

// Each section covers each state, opcode and fate, and gives a reason for each impossible cell.
func TestSectionsAreWhole(t *testing.T) {
	for _, s := range sections() {
		if len(s.rows) == 0 || len(s.states) == 0 || len(s.fates) == 0 {
			t.Errorf("%s is empty", s.title)
		}
		for _, fate := range s.fates {
			if !slices.ContainsFunc(s.rows, func(r row) bool {
				return slices.ContainsFunc(s.states, func(state string) bool { return s.reason(state, r, fate) == "" })
			}) {
				t.Errorf("%s: nothing can have the fate %q", s.title, fate)
			}
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader("t\tRC\tRTS\tRC_ACK\ttaken\ne\tRC\tRTS\tRC_ACK\ttaken\nt\tRC\tRTS\tRC_ACK\ttaken\n"))
	if err != nil || len(got) != 1 || got[cell{"RC", "RTS", "RC_ACK", "taken"}] != "te" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parse(strings.NewReader("t\tRC\n")); err == nil {
		t.Error("half a line is taken")
	}
}
