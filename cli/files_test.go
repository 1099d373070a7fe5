package cli

import (
	"os"
	"strings"
	"testing"
)

// A mistake in a file that a command reads is one of the command line: nothing was done, and the status is 2.
func TestMistakesInFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(rackEnv, missingRack)
	for name, text := range map[string]string{"rack.yaml": "hosts:\n  - {name: cn0, role: computer}\n", "cost.yaml": "hosts: 1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"run ycsb --on sim --file rack.yaml":  `rack.yaml:2:23: role: "computer" is unknown`,
		"run ycsb --on sim --file none.yaml":  "none.yaml: no such file",
		"run ycsb --on sim --cost cost.yaml":  `cost.yaml:1:1: unknown key "hosts" in a cost file`,
		"sim transport --cost cost.yaml":      `cost.yaml:1:1: unknown key "hosts" in a cost file`,
		"experiment dcqcn --cost cost.yaml":   `cost.yaml:1:1: unknown key "hosts" in a cost file`,
		"experiment dcqcn --profile nonsense": "--profile is for a load of your own: add --senders",
		"switch rules load none.yaml":         "none.yaml: no such file",
		"graph rack.yaml":                     `rack.yaml:2:23: role: "computer" is unknown`,
	} {
		if _, err := run(t, strings.Fields(line)...); !isUse(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v (of the command line: %v), want %s", line, err, isUse(err), want)
		}
	}
}
