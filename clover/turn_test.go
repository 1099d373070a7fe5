package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// bell is a gate that counts how often it was opened.
type bell struct{ rung int }

func (b *bell) Wait(clock.Time) error { return nil }
func (b *bell) Open()                 { b.rung++ }

func bellTurn() (*turn, *bell) {
	b := new(bell)
	return &turn{gate: b}, b
}

const turnKey = 7

// A PUT that was linked answers those that waited when it began to link its node, and no later one:
// that could begin after the append.
func TestTurnAnswersThoseThatWaitedBeforeTheAppend(t *testing.T) {
	ts, at := NewTurns(), layout.Location{Handle: 5, Version: 2}
	a, _ := bellTurn()
	b, rungB := bellTurn()
	c, rungC := bellTurn()
	if !ts.enter(turnKey, a) || ts.enter(turnKey, b) || !ts.enter(turnKey+1, new(turn)) {
		t.Error("the first PUT of each key, and no other, has its turn at once")
	}
	ts.cover(turnKey, a)
	ts.enter(turnKey, c)
	ts.end(turnKey, a, true, at)
	if mine, over := ts.look(turnKey, b, false); mine || !over || b.at != at || rungB.rung != 1 {
		t.Errorf("PUT that waited: its turn %v, over %v, node %v, rung %d", mine, over, b.at, rungB.rung)
	}
	if mine, over := ts.look(turnKey, c, false); !mine || over || rungC.rung != 1 {
		t.Errorf("PUT that came during the append: its turn %v, over %v, rung %d", mine, over, rungC.rung)
	}
	ts.end(turnKey, c, true, at)
	if len(ts.keys) != 1 {
		t.Error("a list without PUTs is kept")
	}
}

// A PUT that was not linked answers no other; the next one has its turn, and answers the others.
func TestTurnThatFailsAnswersNone(t *testing.T) {
	ts := NewTurns()
	a, _ := bellTurn()
	b, _ := bellTurn()
	c, _ := bellTurn()
	for _, x := range []*turn{a, b, c} {
		ts.enter(turnKey, x)
	}
	ts.cover(turnKey, a)
	ts.end(turnKey, a, false, layout.Location{})
	if mine, over := ts.look(turnKey, b, false); !mine || over {
		t.Errorf("next PUT: its turn %v, over %v", mine, over)
	}
	if mine, over := ts.look(turnKey, c, false); mine || over {
		t.Errorf("last PUT: its turn %v, over %v", mine, over)
	}
	ts.end(turnKey, b, true, layout.Location{})
	if mine, over := ts.look(turnKey, c, false); mine || !over {
		t.Errorf("last PUT: its turn %v, over %v", mine, over)
	}
}

// A PUT that goes on without its turn is answered by no other, and ends no turn.
func TestTurnThatIsLeft(t *testing.T) {
	ts := NewTurns()
	a, _ := bellTurn()
	b, _ := bellTurn()
	c, _ := bellTurn()
	for _, x := range []*turn{a, b, c} {
		ts.enter(turnKey, x)
	}
	if mine, over := ts.look(turnKey, b, true); mine || over {
		t.Errorf("its turn %v, over %v", mine, over)
	}
	ts.cover(turnKey, b)
	ts.end(turnKey, b, true, layout.Location{})
	if mine, over := ts.look(turnKey, c, false); mine || over {
		t.Errorf("PUT behind: its turn %v, over %v", mine, over)
	}
	ts.cover(turnKey, a)
	ts.end(turnKey, a, true, layout.Location{})
	if b.over || !c.over || len(ts.keys) != 0 {
		t.Errorf("over: PUT without its turn %v, PUT behind %v; %d lists left", b.over, c.over, len(ts.keys))
	}
}
