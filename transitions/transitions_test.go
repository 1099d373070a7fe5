package transitions

import "testing"

func TestFill(t *testing.T) {
	type state uint8
	type event uint8
	const states, events = 3, 2
	var table [states][events]state
	Fill(state(states), event(events), []Edge[state, event]{{0, 1, 2}, {2, 0, 1}}, func(s state, e event) *state { return &table[s][e] })
	if want := [states][events]state{{0, 2}, {1, 1}, {1, 2}}; table != want {
		t.Errorf("%v, want %v", table, want)
	}
}
