package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// The amount a second is that of the time between the readings, not that of --for, and what is missing in the
// counters is beside the bounds.
func TestHeavyIsPrinted(t *testing.T) {
	r := &rules.Rule{Action: statestore.Measure, Options: map[string]string{"store": "10.0.0.1"}}
	p := &heavyReport{
		Report: telemetry.Report{Total: 200, Every: 1, List: []telemetry.Heavy{{Estimate: 100, AtMost: 110, Share: 0.5}}}, Seconds: 2.5,
		Missing: missing{Dropped: 1, Uncertain: 2, Former: 3, Pending: 4, InFlight: 5},
	}
	var out bytes.Buffer
	if err := printHeavy(&out, rackfile.Names{}, r, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" in 2.5 s\n", "1 dropped, 2 uncertain, 3 former, 4 pending, 5 in flight", "50.0 %  40\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

// What is missing is taken from the counters of the switch, which must list all of them; sums count from the first
// of two readings, and levels do not.
func TestHeavyMissing(t *testing.T) {
	group := handler.Group{Name: "count"}
	for i, name := range []string{"dropped", "uncertain", "former", "pending", "in_flight"} {
		group.Counters = append(group.Counters, handler.Counter{Name: name, Value: uint64(10 + i)})
	}
	m, err := missingOf([]handler.Group{{Name: "other", Counters: []handler.Counter{{Name: "dropped", Value: 99}}}, group})
	if want := (missing{10, 11, 12, 13, 14}); err != nil || m != want {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
	if got, want := m.since(&missing{4, 12, 2, 1, 1}), (missing{6, 11, 10, 13, 14}); got != want {
		t.Errorf("%+v is missing after the first reading, want %+v", got, want)
	}
	group.Counters = group.Counters[:4]
	if _, err := missingOf([]handler.Group{group}); err == nil || !strings.Contains(err.Error(), "in_flight") {
		t.Errorf("a counter is not there: %v", err)
	}
}
