package switchd

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// restarted returns the faults of a switch with the trunk leaf0-leaf1, after a start with these kept rules
// (JSON) and those of the rack file, and what it has logged.
func restarted(t *testing.T, kept string, rules ...fault.Rule) (list []fault.Status, logged string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leaf0.faults")
	must(t, os.WriteFile(path, []byte(kept), 0o600))
	var out bytes.Buffer
	plan := fault.NewSet(1, []string{"cn0", "leaf0-leaf1"})
	plan.Name("leaf0-")
	f := &faultControl{traffic: &traffic{plan: plan}, ports: &ports{log: slog.New(slog.NewTextHandler(&out, nil))}}
	f.kept = keptFaults{path: path, log: f.ports.log, trunk: func(link string) bool { return link == "leaf0-leaf1" }}
	must(t, f.install(rules))
	return plan.List(0), out.String()
}

// A fault on a trunk stays when its switch is started again, also if its ID is one of the rack file's.
func TestKeptFaultWithTakenID(t *testing.T) {
	const trunk = `{"id":"f1","link":"leaf0-leaf1","kind":"loss","probability":0.5}`
	loss := fault.Rule{Link: "cn0", Kind: fault.Loss, Probability: 0.1}
	list, logged := restarted(t, "["+trunk+"]", loss, loss)
	if len(list) != 3 || list[0].ID != "f1" || list[0].Link != "leaf0-leaf1" || list[1].Link != "cn0" || list[2].ID != "f2" {
		t.Errorf("%+v", list)
	}
	if !strings.Contains(logged, `level=WARN msg="a fault of the rack file gets another ID`) {
		t.Errorf("logged %q", logged)
	}
	if list, logged = restarted(t, "[]", loss); len(list) != 1 || list[0].ID != "f1" || logged != "" {
		t.Errorf("without a kept one: %+v, logged %q", list, logged)
	}
	onTrunk := loss
	onTrunk.Link = "leaf0-leaf1"
	if list, logged = restarted(t, "["+trunk+"]", onTrunk); len(list) != 1 || list[0].Probability != 0.5 || logged != "" {
		t.Errorf("the kept one and that of the rack file: %+v, logged %q", list, logged)
	}
}

// The switch starts if there is no place for all rules of the rack file beside the kept ones.
func TestKeptFaultsFillThePlan(t *testing.T) {
	var kept []string
	for i := range 256 {
		kept = append(kept, fmt.Sprintf(`{"id":"k%d","link":"leaf0-leaf1","kind":"loss","probability":0.5}`, i))
	}
	list, logged := restarted(t, "["+strings.Join(kept, ",")+"]", fault.Rule{Link: "cn0", Kind: fault.Loss, Probability: 0.1})
	if len(list) != 256 || !strings.Contains(logged, "too many fault rules") {
		t.Errorf("%d rules, logged %q", len(list), logged)
	}
}
