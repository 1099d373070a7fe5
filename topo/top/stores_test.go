package top

import (
	"strings"
	"testing"
	"time"
)

// Columns of stores are shown as rates, in the line of the host's clients.
func TestColumnsAreRates(t *testing.T) {
	at := func(second int64, gets uint64) Sample {
		return Sample{At: time.Unix(second, 0), Nodes: []Node{{
			Name: "cn0", State: "up", Link: "up", Clients: 2, Columns: []Counter{{Name: "GETS", Value: gets}},
		}}}
	}
	first, later := at(100, 40), at(102, 60)
	m := Model{width: 160, height: 40, now: &later, before: &first, history: map[string][]uint64{}}
	if screen := m.Screen(); !strings.Contains(screen, "GETS/s 10") {
		t.Errorf("no rate of 10 in\n%s", screen)
	}
}
