package cli

import (
	"bytes"
	"encoding/csv"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Each line of --csv has as many fields as the header.
func TestCSVHeaderNamesEachField(t *testing.T) {
	cmd, out := &cobra.Command{}, new(bytes.Buffer)
	cmd.SetOut(out)
	if err := new(runReport).writeCSV(cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := csv.NewReader(out).ReadAll(); err != nil {
		t.Error(err)
	}
}

// A run with failed operations or wrong values exits with status 1, in every format.
func TestFailedRunExitsWithOne(t *testing.T) {
	for _, format := range []string{"table", "json", "csv"} {
		for _, s := range []kv.Summary{{}, {Failed: 1}, {Wrong: 1}} {
			cmd, out := &cobra.Command{}, new(bytes.Buffer)
			cmd.SetOut(out)
			outputFlag(cmd)
			if format == "json" {
				if err := cmd.Flags().Set("output", format); err != nil {
					t.Fatal(err)
				}
			}
			err := (&runReport{Summary: s}).write(cmd, format == "csv")
			if want := s.Failed+s.Wrong > 0; (err != nil) != want || want && !errors.Is(err, exitCode(1)) || out.Len() == 0 {
				t.Errorf("%s, %d failed, %d wrong: %v; printed %q", format, s.Failed, s.Wrong, err, out)
			}
		}
	}
}

// The breakdown has a line for each kind and a column for each phase that occurred; CSV and measures
// have the phases of all operations.
func TestBreakdownIsReported(t *testing.T) {
	r := &runReport{}
	r.Breakdown = []kv.Breakdown{
		{Kind: "read", Ops: 3, Mean: 12.5, Phases: map[string]float64{"trip 1": 12, "client": 0.5}},
		{Kind: "update", Ops: 1, Mean: 40, Phases: map[string]float64{"lock": 20, "trip 1": 10, "back-off": 10}},
		{Kind: kv.AllKinds, Ops: 4, Mean: 19.4, Phases: map[string]float64{"lock": 5, "trip 1": 11.5, "back-off": 2.5, "client": 0.4}},
	}
	out := new(bytes.Buffer)
	if err := writeBreakdown(out, r.Breakdown); err != nil {
		t.Fatal(err)
	}
	want := "    usec  mean  lock  trip 1  back-off  client\n" +
		"    read  12.5     -    12.0         -     0.5\n" +
		"  update  40.0  20.0    10.0      10.0       -\n" +
		"     all  19.4   5.0    11.5       2.5     0.4\n"
	if out.String() != want {
		t.Errorf("%s, want\n%s", out, want)
	}
	cmd, table := &cobra.Command{}, new(bytes.Buffer)
	cmd.SetOut(table)
	if err := r.writeCSV(cmd); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(table).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for column, value := range map[string]string{"lock_us": "5", "trip_1_us": "11.5", "back_off_us": "2.5", "rpc_us": "0"} {
		if i := slices.Index(lines[0], column); i < 0 || lines[1][i] != value {
			t.Errorf("column %s is number %d of %v", column, i, lines)
		}
	}
	m, err := findMeasure("trip-1")
	if err != nil || m.of(r) != 11.5 || !math.IsNaN(m.of(&runReport{})) {
		t.Errorf("measure trip-1: %v", err)
	}
}

// --pace and --limit are refused without a trace.
func TestReplayFlagsWantATrace(t *testing.T) {
	for _, flag := range []string{"--pace=1", "--limit=10"} {
		if _, _, err := runOf([]string{flag}); err == nil {
			t.Errorf("%s without --trace: no error", flag)
		}
	}
}
