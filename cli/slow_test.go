package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// slowText is the file of a rack in slow motion.
const slowText = `
name: later
slow: 400
cost: connectx3
hosts: [{name: md0, role: metadata}, {name: ms0, role: memory}, {name: "cn[0-1]", role: compute}]
`

func slowFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "slow.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A rack file in slow motion names a built-in cost model.
func TestSlowRackFiles(t *testing.T) {
	r, err := fileRack(slowFile(t, slowText))
	if err != nil || !strings.Contains(slowMotion(r), "400 times slower than real time") || !strings.Contains(slowMotion(r), "connectx3") {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := fileRack(slowFile(t, strings.Replace(slowText, "connectx3", "connectx4", 1))); err == nil || !strings.Contains(err.Error(), "there are connectx3") {
		t.Errorf("an unknown cost model: %v", err)
	}
	if r, err := fileRack(""); err != nil || slowMotion(r) != "" {
		t.Errorf("the built-in rack: %v, %v", r, err)
	}
}

// In virtual time a run uses the rack and the cost model of a rack file, and the switch steers.
func TestRunWithARackFileInVirtualTime(t *testing.T) {
	file := "--file=" + slowFile(t, slowText)
	contend := []string{file, "--mode=published", "--keys=2", "--clients=8", "--workload=w", "--zipf=0", "--warmup=100us"}
	plain := measureInSim(t, append(contend, "--steer=none")...)
	steered := measureInSim(t, append(contend, "--steer=both")...)
	if steered.Throughput < 1.5*plain.Throughput || steered.FirstTry < 0.9 || plain.FirstTry > 0.8 {
		t.Errorf("steered %.0f a second, first try %.2f; else %.0f and %.2f", steered.Throughput, steered.FirstTry, plain.Throughput, plain.FirstTry)
	}
	f, _, err := runOf(append(slices.Clone(virtually), file))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.rackOfRun(); err != nil || f.place.cost != "connectx3" {
		t.Errorf("cost model %s, %v; the rack file names connectx3", f.place.cost, err)
	}
}
