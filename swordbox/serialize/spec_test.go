package serialize

import (
	"encoding/json"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// What the machine declares for a switching chip is a golden file, so that a review shows a changed
// size. TestSpecHasRoomForEveryFlow compares the sizes with what flows fill.
func TestSpecIsAsReviewed(t *testing.T) {
	b, err := json.MarshalIndent(New(Config{}).Spec(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/spec.json", string(b)+"\n")
}

// The declared registers have room for all that a flow can fill: the records of its window at their
// most, and the operations on its client's connection.
func TestSpecHasRoomForEveryFlow(t *testing.T) {
	m := New(Config{Window: 16, OwnOps: 24})
	w := window{max: m.cfg.Window}
	psn := testPSN
	for i := range 100 * m.cfg.Window {
		op := wire.RCWriteOnly
		if i%(sparse+1) == 0 {
			op = wire.RCFetchAdd
		}
		w.finish(w.add(wire.PSN(psn&mask24), op))
		psn++
	}
	want := map[string]int{"completed window": len(w.ring), "operations in flight": m.cfg.OwnOps}
	for _, r := range m.Spec().Registers {
		n, ok := want[r.Name]
		if !ok {
			continue
		}
		if delete(want, r.Name); r.Each != n || r.Entries != n*flowsOfSpec {
			t.Errorf("%s: %d entries, %d for each flow, want %d", r.Name, r.Entries, r.Each, n)
		}
	}
	if len(want) > 0 {
		t.Errorf("not declared: %v", want)
	}
}
