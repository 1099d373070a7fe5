package kv

import (
	"encoding/json"
	"strings"
	"testing"
)

// A request over the control socket can have any values: those that a run cannot work with are
// refused by Run, and those that a load cannot work with by Load.
func TestRunConfigIsBounded(t *testing.T) {
	for _, c := range []struct {
		text, want string
		load       bool
	}{
		{`{"Workload":{"Scan":1},"Keys":5,"Clients":1,"Ops":5,"ScanLen":-1}`, "scans of up to -1", false},
		{`{"Workload":{"Scan":1},"Keys":5,"Clients":1,"Ops":5,"ScanLen":1000000000}`, "scans of up to", false},
		{`{"Workload":{"Read":1},"Keys":5,"Clients":1,"Ops":5,"Value":4611686018427387904}`, "values of", false},
		{`{"Keys":5,"Clients":1,"Value":4611686018427387904}`, "values of", true},
		{`{"Keys":5,"Clients":1,"Value":-1}`, "values of -1", true},
		{`{"Keys":5,"Clients":1,"Sizes":{"min":2,"max":1}}`, "workload: ", true},
		{`{"Keys":5,"Clients":1,"Sizes":{"min":4611686018427387904,"max":4611686018427387904}}`, "workload: ", true},
	} {
		var cfg RunConfig
		if err := json.Unmarshal([]byte(c.text), &cfg); err != nil {
			t.Fatal(err)
		}
		rt := newVirtual()
		var err error
		if c.load {
			_, err = Load(newTable(rt, 0), rt, cfg)
		} else {
			_, err = Run(newTable(rt, 5), rt, cfg, nil)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
