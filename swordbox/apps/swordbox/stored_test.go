package swordbox_test

import (
	"encoding/json"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/journal"
)

// A switch starts with the rules of its journal although two of them need the same memory: an earlier
// version has accepted them. As new rules they are refused.
func TestStoredRulesMayOverlap(t *testing.T) {
	mem := make([]byte, journal.Size)
	journal.Format(mem)
	j, err := journal.Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	var list []rules.Rule
	for _, text := range []string{"id=c server=10.0.0.3 action=count store=10.0.0.1", "id=l server=10.0.0.4 action=lookup table=10.0.0.1"} {
		r, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.SetRules(string(b)); err != nil {
		t.Fatal(err)
	}
	if set, ok, err := swordbox.StoredRules(j); !ok || err != nil || len(set.All()) != 2 {
		t.Errorf("stored rules: %v, %v", ok, err)
	}
	if _, err := rules.NewSet(list); err == nil {
		t.Error("new rules that overlap are accepted")
	}
}
