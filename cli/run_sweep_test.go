package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store/kv"
)

func TestCombinations(t *testing.T) {
	list, err := combinations([]string{"store=clover,template", "--mix=get=50,put=50;get=100"})
	if err != nil || len(list) != 4 || strings.Join(list[2], " ") != "--store=template --mix=get=50,put=50" {
		t.Errorf("%q, %v", list, err)
	}
	for _, bad := range []string{"", "clients", "clients=", "=1"} {
		if _, err := combinations([]string{bad}); err == nil || !strings.Contains(err.Error(), "like clients=1,4,16") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The flags of a run that were typed and those of its combination decide its values; a wrong one is an
// error.
func TestRunOfSweep(t *testing.T) {
	f, values, err := runOf([]string{"--keys=10", "--store=sherman", "--clients=3"})
	if err != nil || f.config.Clients != 3 || values["clients"] != "3" || values["keys"] != "10" || values["value-size"] != f.value || values["output"] != "" {
		t.Errorf("%v, %v", values, err)
	}
	for _, bad := range []string{"--clients=x", "--speed=1", "--store=nothing", "--mix=get=1"} {
		if _, _, err := runOf([]string{bad}); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// Keys that the former run has loaded with values of another size are not used.
func TestSweepOverSizes(t *testing.T) {
	flags := func(args ...string) *runFlags {
		f, _, err := runOf(args)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	small, large := flags("--value-size=100"), flags("--value-size=1KiB")
	if !large.otherStore(small) || !small.otherStore(nil) || small.otherStore(flags("--value-size=100", "--clients=2")) {
		t.Error("a run uses keys of another size, or makes those of its size again")
	}
	if flags("--value-size=1KiB", "--no-load").otherStore(small) {
		t.Error("a run without load makes the store afresh")
	}
}

// results makes a file with a run for each number of clients and round, whose throughput is rate
// times the number of clients, plus the round.
func results(t *testing.T, rate float64, more string) string {
	t.Helper()
	var out bytes.Buffer
	for round := 1; round <= 3; round++ {
		for _, clients := range []int{1, 4} {
			rep := &runReport{Summary: kv.Summary{Throughput: rate*float64(clients) + float64(round), Latencies: []kv.Latency{{Kind: "read", P99: 5}}}}
			line, err := json.Marshal(record{Round: round, Flags: map[string]string{"clients": strconv.Itoa(clients), "keys": "7"}, Report: rep})
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(line, '\n'))
		}
	}
	out.WriteString(more)
	name := filepath.Join(t.TempDir(), "r.jsonl")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A sweep that is resumed keeps all whole lines, repeats runs that failed, and drops the beginning of
// a line that was not written to its end.
func TestResume(t *testing.T) {
	failed := `{"round":9,"flags":{"clients":"1"},"error":"full"}` + "\n"
	name := results(t, 100, failed+`{"round":10,"fla`)
	s := sweep{out: name}
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("a file with results: %v", err)
	}
	s.resume = true
	have, err := s.open()
	if err != nil || len(have) != 6 {
		t.Fatalf("%d runs, %v", len(have), err)
	}
	next := record{Round: 10, Flags: map[string]string{"clients": "1"}, Report: &runReport{}}
	if have[next.key()] || have[(&record{Round: 9, Flags: next.Flags}).key()] {
		t.Error("a run that is not there, or has failed, is taken for done")
	}
	if err := s.append(&next); err != nil {
		t.Fatal(err)
	}
	if have, err = s.open(); err != nil || len(have) != 7 || !have[next.key()] {
		t.Errorf("after one more: %d runs, %v", len(have), err)
	}
	for _, bad := range []string{"nothing\n", "{}\n"} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCompare(t *testing.T) {
	a, b := results(t, 100, ""), results(t, 250, `{"round":1,"flags":{"clients":"9"},"error":"full"}`+"\n")
	cmd := compareCmd()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{a, b, "--measure", "ops,update-p99,read-p99"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"clients 1 102 101-103 (3) 252 251-253 (3) 2.471", "clients 4 402 401-403 (3) 1002 1001-1003 (3) 2.493", "read p99, usec clients 4 5.00"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "update") || strings.Contains(text, "keys") || strings.Contains(text, "clients 9") {
		t.Errorf("it has what was not measured, does not vary, or failed:\n%s", out.String())
	}
	for args, want := range map[string]string{a + " --measure speed": "want one of ops", "nofile": "no such file", os.DevNull: "run sweep"} {
		cmd := compareCmd()
		quiet(cmd)
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func quiet(cmd *cobra.Command) { cmd.SilenceErrors, cmd.SilenceUsage = true, true }

func TestChartOfSweep(t *testing.T) {
	list, err := readRecords(results(t, 100, ""))
	if err != nil {
		t.Fatal(err)
	}
	m, err := findMeasure("ops")
	if err != nil {
		t.Fatal(err)
	}
	c, err := chartOf(list, "clients", m)
	if err != nil || len(c.Panels[0].Series) != 1 || len(c.Names) != 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	if p := c.Panels[0].Series[0].Points; len(p) != 2 || p[0].X != 1 || p[0].Y != 102 || p[1].X != 4 || p[1].Y != 402 {
		t.Errorf("%+v", p)
	}
	for i := range list {
		list[i].Flags["steer"] = []string{"none", "both"}[i%2]
	}
	if c, err = chartOf(list, "steer", m); err != nil || len(c.Names) != 2 || len(c.Panels[0].Series) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := chartOf(list, "speed", m); err == nil {
		t.Error("a flag that does not exist is drawn")
	}
	if m := experiment.Median(nil); !math.IsNaN(m) || experiment.Median([]float64{3, 1}) != 2 || experiment.Median([]float64{9, 1, 2}) != 2 {
		t.Error("medians are wrong")
	}
}
