package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/scenario"
)

func runSim(args ...string) (stdout, stderr string, err error) {
	var out, errOut strings.Builder
	root := rootCmd(simCmd())
	root.SetArgs(append([]string{"sim"}, args...))
	root.SetOut(&out)
	root.SetErr(&errOut)
	err = root.Execute()
	return out.String(), errOut.String(), err
}

func TestSimSweep(t *testing.T) {
	stdout, _, err := runSim("rnr", "--seeds", "5", "--first", "7")
	if err != nil || !strings.Contains(stdout, "rnr: 5 seeds from 7: ok\n") || !strings.Contains(stdout, "rcvd_rnr_err") {
		t.Errorf("%v\n%s", err, stdout)
	}
	stdout, _, err = runSim("rnr", "--seeds", "5", "-o", "json")
	var sum scenario.Summary
	if err := errors.Join(err, json.Unmarshal([]byte(stdout), &sum)); err != nil || sum.Seeds != 5 {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// The help explains the mixes that the scenarios have, and no others.
func TestSimHelpExplainsMixes(t *testing.T) {
	var listed, known []string
	for _, m := range mixes {
		listed = append(listed, m[0])
	}
	for _, name := range []string{"clover", "sherman"} {
		_, _, err := runSim(name, "--mix", "?")
		_, names, ok := strings.Cut(fmt.Sprint(err), ": use none, ")
		if !ok {
			t.Fatalf("%s --mix ?: %v", name, err)
		}
		known = append(known, strings.Split(names, ", ")...)
	}
	slices.Sort(listed)
	slices.Sort(known)
	if known = slices.Compact(known); !slices.Equal(listed, known) {
		t.Errorf("the help has %v, the scenarios %v", listed, known)
	}
}

// A run of one seed prints its plan and, with -v, its packets, and writes the packets to a file
// that dump reads.
func TestSimSeed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	stdout, _, err := runSim("rnr", "--seed", "3", "-v", "--pcap", file)
	if err != nil || !strings.Contains(stdout, "rnr seed 3: RNR timer") || !strings.Contains(stdout, "RNR_NAK") {
		t.Errorf("%v\n%s", err, stdout)
	}
	dumped, _, err := runDumpCmd(nil, file)
	if err != nil || !strings.HasPrefix(stdout, dumped) {
		t.Errorf("%v: the file and -v differ", err)
	}
	again, _, err := runSim("rnr", "--seed", "3", "-v")
	if lines := strings.SplitAfter(again, "\n"); err != nil || !strings.HasPrefix(stdout, strings.Join(lines[:min(100, len(lines))], "")) {
		t.Errorf("%v: the same seed gave other packets", err)
	}
}

// The message of a failure has the command that replays it, and the exit status is 1.
func TestSimFailure(t *testing.T) {
	var stderr strings.Builder
	cmd := simCmd()
	cmd.SetErr(&stderr)
	s, err := scenario.Find("transport")
	if err != nil {
		t.Fatal(err)
	}
	err = outcome(cmd, s, scenario.Report{Seed: 4}, scenario.Report{Seed: 77, Err: errors.New("a byte is wrong")})
	var code exitCode
	if !errors.As(err, &code) || code != 1 || !strings.Contains(stderr.String(), "rdmalab sim transport --seed 77 -v\n") || strings.Contains(stderr.String(), "seed 4") {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}

func TestSimErrors(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, "transport"},
		{[]string{"rnr", "--seeds", "-1"}, "positive"},
		{[]string{"rnr", "--seeds", "2", "-v"}, "seeds"},
		{[]string{"rnr", "--pcap", filepath.Join(t.TempDir(), "no", "such", "dir")}, "there is no folder"},
		{[]string{"rnr", "-o", "xml"}, "use table, json"},
	} {
		if _, _, err := runSim(tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: error %v, want one about %q", tc.args, err, tc.want)
		}
	}
}

// A cost model is chosen by its name or a file, and the command that replays a failure has the same
// one.
func TestSimCost(t *testing.T) {
	free, _, err := runSim("rnr", "--seed", "3", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := runSim("cost")
	if err != nil || !slices.Contains(strings.Split(list, "\n"), "connectx5") {
		t.Errorf("%v: %s", err, list)
	}
	text, _, err := runSim("cost", "connectx5")
	if err != nil || !strings.Contains(text, "[S] fig. 4") {
		t.Errorf("%v: %s", err, text)
	}
	file := filepath.Join(t.TempDir(), "my.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	events := func(args ...string) uint64 {
		out, _, err := runSim(append([]string{"rnr", "--seed", "3", "-o", "json"}, args...)...)
		var r scenario.Report
		if err := errors.Join(err, json.Unmarshal([]byte(out), &r)); err != nil {
			t.Error(err)
		}
		return uint64(r.Virtual)
	}
	byName, byFile := events("--cost", "connectx5"), events("--cost", file)
	if byName != byFile || byName == events() {
		t.Errorf("virtual time %d by name, %d by file, without %s", byName, byFile, free)
	}
	for _, args := range [][]string{{"rnr", "--cost", "nonsense"}, {"cost", "nonsense"}, {"calibrate"}, {"calibrate", "--cost", "nonsense"}} {
		if _, _, err := runSim(args...); err == nil {
			t.Errorf("sim %v went well", args)
		}
	}
	s, err := scenario.Find("rnr")
	if err != nil {
		t.Fatal(err)
	}
	m, err := loadCost(file)
	if err != nil {
		t.Fatal(err)
	}
	s = s.With(file, m)
	if got, want := s.Args(7), "rnr --seed 7 --cost "+file; got != want {
		t.Errorf("replay by %q, want %q", got, want)
	}
}

func TestSimCalibrate(t *testing.T) {
	out, _, err := runSim("calibrate", "--cost", "connectx5")
	if err != nil || !strings.Contains(out, "SwordBox fig. 4") {
		t.Errorf("%v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(file, []byte("base: connectx5\nnic: {read: {total: 10M}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err = runSim("calibrate", "--cost", file)
	if code := exitCode(0); !errors.As(err, &code) || !strings.Contains(out, "WRONG") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Without a scenario, sim lists the scenarios. With a flag for a run, its error asks for the name
// of a scenario.
func TestSimLists(t *testing.T) {
	out, _, err := runSim()
	for _, s := range scenario.All() {
		if err != nil || !strings.Contains(out, s.Name) {
			t.Errorf("%v: %s is missing in\n%s", err, s.Name, out)
		}
	}
	if out, _, err := runSim("-o", "json"); err != nil || !strings.Contains(out, `"name": "rnr"`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := runSim("--seeds", "5"); !isUse(err) {
		t.Errorf("sim --seeds 5: %v", err)
	}
}

// An interrupt ends one long run, and a sweep over many seeds, within a second.
func TestSimIsInterrupted(t *testing.T) {
	long := []string{"sim", "planned", "--depth", "3", "--schedules", "1000000"} // minutes
	for _, args := range [][]string{long, {"sim", "transport", "--seeds", "10000000"}} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		if _, _, err := runCommand(ctx, args...); err == nil {
			t.Errorf("%v was not interrupted", args)
		}
		cancel()
	}
}

// make runs every scenario, also that of a store added last.
func TestMakeRunsEveryScenario(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:SWEPT|FEWER) := (.*)$`).FindAllSubmatch(text, -1) {
		for _, s := range strings.Fields(string(m[1])) {
			name, _, _ := strings.Cut(s, ":")
			run[name] = true
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\t@\$\(SIM\) ([a-z]+)`).FindAllSubmatch(text, -1) {
		run[string(m[1])] = true
	}
	for _, s := range scenario.All() {
		if !run[s.Name] {
			t.Errorf("make scenarios does not run %s: add it to SWEPT or FEWER in the Makefile", s.Name)
		}
		delete(run, s.Name)
	}
	for name := range run {
		t.Errorf("the Makefile runs %s, which is no scenario", name)
	}
}
