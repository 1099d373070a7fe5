package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store"
)

// virtually are those of a short run in virtual time.
var virtually = []string{"--on=sim", "--clients=6", "--keys=50", "--duration=300us"}

// measureInSim runs a workload in virtual time.
func measureInSim(t *testing.T, args ...string) *runReport {
	t.Helper()
	f, _, err := runOf(append(slices.Clone(virtually), args...))
	if err != nil {
		t.Fatal(err)
	}
	cmd := new(cobra.Command)
	cmd.SetContext(t.Context())
	rep, err := f.measure(cmd)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return rep
}

// Each store runs in virtual time: its own commands start it, and all values are right. The same seed
// gives the same report.
func TestEveryStoreInVirtualTime(t *testing.T) {
	for _, s := range store.All() {
		if s.Name == "kvcs" { // its hosts need 1RMA NICs, which simulated racks have in a scenario of their own
			f, _, err := runOf(append(slices.Clone(virtually), "--store=kvcs"))
			if err != nil {
				t.Fatal(err)
			}
			cmd := new(cobra.Command)
			cmd.SetContext(t.Context())
			if _, err := f.measure(cmd); err == nil || !strings.Contains(err.Error(), "`rdmalab sim kvcs` runs it in virtual time") {
				t.Errorf("kvcs: %v", err)
			}
			continue
		}
		first, again := measureInSim(t, "--store="+s.Name), measureInSim(t, "--store="+s.Name)
		if first.Ops == 0 || first.Failed+first.Wrong+first.NotFound > 0 || first.RTTsPerOp < 1 || first.PacketsPerOp < 2 || len(first.Breakdown) == 0 {
			t.Errorf("%s: %+v", s.Name, first)
		}
		if first.Throughput != again.Throughput || first.PacketsPerOp != again.PacketsPerOp {
			t.Errorf("%s: %v and %v operations a second with the same seed", s.Name, first.Throughput, again.Throughput)
		}
	}
}

// A client that is alone waits for the round trips that its package promises, and for nothing else.
func TestVirtualRoundTrips(t *testing.T) {
	for mix, want := range map[string]float64{"get=100": 2, "put=100": 3} {
		if r := measureInSim(t, "--store=template", "--mix="+mix, "--clients=1"); r.RTTsPerOp != want || r.Retries > 0 || r.Ops == 0 {
			t.Errorf("%s: %g round trips, %d races lost; want %g", mix, r.RTTsPerOp, r.Retries, want)
		}
	}
	load := measureInSim(t, "--store=template", "--load-only")
	if load.Workload != loadName || load.Ops != 50 {
		t.Errorf("load: %+v", load)
	}
}

// --start gives the store flags of its start command: FG+ takes a round trip more for a write than
// Sherman, and writes the whole page. Clover and FUSEE accept theirs. A sweep has each value once.
func TestRunStartsAStoreWithFlags(t *testing.T) {
	one := func(start string) *runReport {
		return measureInSim(t, "--store=sherman", "--mix=put=100", "--clients=1", "--start="+start)
	}
	sherman, fg := one("step=sherman"), one("step=fg+")
	if sherman.RTTsPerOp != 3 || fg.RTTsPerOp != 4 || fg.BytesPerOp < sherman.BytesPerOp+500 {
		t.Errorf("Sherman: %g round trips and %g bytes; FG+: %g and %g", sherman.RTTsPerOp, sherman.BytesPerOp, fg.RTTsPerOp, fg.BytesPerOp)
	}
	if r := measureInSim(t, "--store=sherman", "--mix=put=100", "--clients=1"); r.RTTsPerOp != sherman.RTTsPerOp {
		t.Errorf("without --start: %+v", r)
	}
	single, copies := measureInSim(t, "--store=clover", "--mix=put=100"), measureInSim(t, "--store=clover", "--mix=put=100", "--start=threads=2 replicas=2 balance")
	if copies.PacketsPerOp < single.PacketsPerOp+1 || copies.Failed > 0 {
		t.Errorf("Clover: %g packets an operation, %g with two copies", single.PacketsPerOp, copies.PacketsPerOp)
	}
	if r := measureInSim(t, "--store=fusee", "--start=replicas=1"); r.Ops == 0 || r.Failed > 0 {
		t.Errorf("FUSEE: %+v", r)
	}
	for args, want := range map[string]string{
		"--start=speed=2":                     "unknown flag",
		"--start=threads=many":                "invalid argument",
		"--start=threads=17":                  "want 0 to 16",
		"--start=threads=-1":                  "want 0 to 16",
		"--start=threads=2 --no-load":         "use one of them",
		"--store=sherman --start=threads=2":   "rdmalab sherman start --help",
		"--store=sherman --start=step=nought": "",
	} {
		if _, _, err := runOf(strings.Fields(args)); want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
	list, err := combinations([]string{"start=threads=1;threads=2 replicas=2"})
	if err != nil || len(list) != 2 || list[1][0] != "--start=threads=2 replicas=2" {
		t.Errorf("%q, %v", list, err)
	}
}

// What exists only on a rack, or only in virtual time, is refused on the other one.
func TestRunOnRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"--on=moon":                       "want rack or sim",
		"--file=slow.yaml":                "use them with --on sim",
		"--on=sim --file=/nothing/at/all": "",
		"--seed=2":                        "use them with --on sim",
		"--cost=connectx3 --on=rack":      "use them with --on sim",
		"--on=sim --cost=/nothing/at/all": "",
	} {
		f, _, err := runOf(strings.Fields(args))
		if want == "" && err == nil {
			cmd := new(cobra.Command)
			cmd.SetContext(t.Context())
			if _, err := f.measure(cmd); err == nil {
				t.Errorf("%s is accepted", args)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
	f, values, err := runOf([]string{"--on=sim"})
	if err != nil || f.place.on != experiment.OnSim || f.config.Duration != simDuration || values["duration"] != simDuration.String() {
		t.Errorf("%v, %v", values, err)
	}
}

// Commands that have no --on are for a rack.
func TestLoadIsForARack(t *testing.T) {
	if _, err := run(t, "template", "load", "--rack", missingRack); err == nil || !strings.Contains(err.Error(), "is not up") {
		t.Error(err)
	}
}

// A sweep in virtual time is a file as one of a rack: --resume, compare and plot use it. Rounds have
// different seeds.
func TestSweepInVirtualTime(t *testing.T) {
	out := filepath.Join(t.TempDir(), "s.jsonl")
	args := append([]string{"run", "sweep", "--over=store=fusee,template", "--over=clients=1,4", "--rounds=2", "-w", out}, virtually...)
	if text, err := run(t, args...); err != nil || !strings.Contains(text, "8 runs are in") {
		t.Fatalf("%v\n%s", err, text)
	}
	list, err := readRecords(out)
	if err != nil || len(list) != 8 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	if text, err := run(t, append(args, "--resume")...); err != nil || strings.Contains(text, "run 1 of") {
		t.Errorf("resume: %v\n%s", err, text)
	}
	text, err := run(t, "run", "compare", out, "--measure", "ops,rtts")
	if err != nil || !strings.Contains(text, "clients 4, store template") {
		t.Errorf("compare: %v\n%s", err, text)
	}
	picture := filepath.Join(t.TempDir(), "s.svg")
	if text, err := run(t, "run", "plot", out, "-w", picture); err != nil {
		t.Errorf("plot: %v\n%s", err, text)
	}
	if info, err := os.Stat(picture); err != nil || info.Size() == 0 {
		t.Errorf("plot: %v", err)
	}
	differ := false
	for i := range 4 {
		differ = differ || list[i].Report.Throughput != list[i+4].Report.Throughput
	}
	if !differ {
		t.Error("the second round is a copy of the first")
	}
}

// A rack with several switches runs with any number of workers, with the same result.
func TestWorkers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rack.yaml")
	text := "name: several\nfabric: {leaves: 3, spines: 2}\nhosts:\n  - {name: \"cn[0-3]\", role: compute}\n  - {name: \"ms[0-1]\", role: memory}\n  - {name: md0, role: metadata}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"clover", "sherman", "fusee", "template"} {
		whole := measureInSim(t, "--file="+file, "--store="+s)
		one, two := measureInSim(t, "--file="+file, "--store="+s, "--workers=1"), measureInSim(t, "--file="+file, "--store="+s, "--workers=2")
		if whole.Ops == 0 || whole.Failed+one.Failed+whole.Wrong+one.Wrong > 0 {
			t.Errorf("%s: %+v, %+v", s, whole, one)
		}
		if one.Ops == 0 || one.Throughput != two.Throughput || one.PacketsPerOp != two.PacketsPerOp {
			t.Errorf("%s: %v and %v operations a second, %v and %v packets each", s, one.Throughput, two.Throughput, one.PacketsPerOp, two.PacketsPerOp)
		}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"needs a rack with several switches", []string{"--workers=2"}},
		{"want 0 to 80", []string{"--workers=81"}},
		{"want 0 to 80", []string{"--workers=-1"}},
	} {
		f, _, err := runOf(append(slices.Clone(virtually), c.args...))
		if err == nil {
			cmd := new(cobra.Command)
			cmd.SetContext(t.Context())
			_, err = f.measure(cmd)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
