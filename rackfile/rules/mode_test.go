package rules_test

import (
	"encoding/json"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// The values hard and paper in rules, on a command line, in a rack file or in the journal of a
// switch, mean hardened and published; rules print the new words.
func TestFormerModes(t *testing.T) {
	for former, want := range map[string]rules.Mode{"hard": rules.Hardened, "paper": rules.Published} {
		r, err := rules.Parse("id=a server=10.0.0.1 action=atomics mode=" + former)
		if err != nil || r.Mode != want {
			t.Errorf("%s: %v, %v", former, r.Mode, err)
		}
		var stored rules.Rule
		if err := json.Unmarshal([]byte(`{"id":"a","server":"10.0.0.1","action":"atomics","mode":"`+former+`"}`), &stored); err != nil || stored.Mode != want {
			t.Errorf("%s in JSON: %v, %v", former, stored.Mode, err)
		}
	}
	text, err := json.Marshal([]rules.Mode{rules.Hardened, rules.Published})
	if err != nil || string(text) != `["hardened","published"]` {
		t.Errorf("%s, %v", text, err)
	}
}
