package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// runCommand runs a command line until it ends or ctx does.
func runCommand(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errOut strings.Builder
	root := rootCmd(commands()...)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errOut)
	err = execute(ctx, root)
	return out.String(), errOut.String(), err
}

// Without a name, the command lists the experiments with their figures and durations.
func TestExperimentList(t *testing.T) {
	out, _, err := runCommand(t.Context(), "experiment")
	out = strings.Join(strings.Fields(out), " ") // long lines are wrapped
	for _, e := range experiment.All() {
		if err != nil || !strings.Contains(out, e.Name) || !strings.Contains(out, e.Figure) {
			t.Errorf("%v: %s is missing in\n%s", err, e.Name, out)
		}
	}
	out, _, err = runCommand(t.Context(), "experiment", "-o", "json")
	var list []listedExperiment
	if err := errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil || len(list) != len(experiment.All()) {
		t.Errorf("%v: %s", err, out)
	}
}

// Each output format has the results. Standard error has no progress, because it is no terminal.
func TestExperimentFormats(t *testing.T) {
	args := []string{"experiment", "cas-one-word", "--series", "host", "--clients", "1,4"}
	out, progress, err := runCommand(t.Context(), args...)
	if err != nil || !strings.Contains(out, "CAS, host memory  1") || !strings.Contains(out, "(3)") || progress != "" {
		t.Errorf("%v\n%s%s", err, out, progress)
	}
	out, _, err = runCommand(t.Context(), append(args, "-o", "csv", "-q")...)
	if err != nil || !strings.HasPrefix(out, "series,clients,mops,mops_paper,") || strings.Count(out, "\n") != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = runCommand(t.Context(), append(args, "-o", "json")...)
	var r experiment.Report
	if err := errors.Join(err, json.Unmarshal([]byte(out), &r)); err != nil || len(r.Rows) != 2 || r.Rows[1].Cell("mops").Value < 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

// If an experiment cannot run as requested, the error is one of the command line and names the
// mistake.
func TestExperimentErrors(t *testing.T) {
	for _, bad := range [][]string{
		{"nonsense"},
		{"cas-one-word", "--on", "moon"},
		{"tree-operations", "--on", "rack"},
		{"cas-one-word", "-o", "xml"},
		{"cas-one-word", "--iters", "-5"},
		{"cas-one-word", "--on", "rack", "--iters", "-5"}, // this error is found without a rack
		{"tree-locks", "--zipf", "NaN"},
		{"write-contention", "--writes", "NaN"},
		{"one-lock", "--clients", "x"},
		{"cas-one-word", "--to", "ms1"},
		{"cas-one-word", "--cost", "nonsense"},
		{"write-contention", "--steer", "left"},
	} {
		_, _, err := runCommand(t.Context(), append([]string{"experiment"}, bad...)...)
		if !isUse(err) || !strings.Contains(err.Error(), strings.TrimPrefix(bad[max(0, len(bad)-2)], "--")) && !strings.Contains(err.Error(), bad[len(bad)-1]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The errors of commands that experiments have replaced name the experiment.
func TestRetiredCommands(t *testing.T) {
	for _, old := range []string{"fig10", "sim fig10 --cost connectx5", "sim contention", "sim collapse --table", "sim treeload", "sherman locks --clients 1"} {
		_, _, err := runCommand(t.Context(), strings.Fields(old)...)
		if !isUse(err) || !strings.Contains(err.Error(), "rdmalab experiment ") {
			t.Errorf("%s: %v", old, err)
		}
	}
}

// firstResult calls then after the first line of progress that has a result.
type firstResult struct {
	once sync.Once
	then func()
}

func (f *firstResult) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(" so far")) {
		f.once.Do(f.then)
	}
	return len(b), nil
}

// An interrupt ends an experiment during a measurement that would take minutes; the earlier results
// are printed.
func TestExperimentIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var buf strings.Builder
	root := rootCmd(commands()...)
	root.SetArgs(strings.Fields("experiment write-contention --clients 1,400 --writes 50 -o json"))
	root.SetOut(&buf)
	terminal, _ := openTerminal(t, &firstResult{then: func() { time.AfterFunc(100*time.Millisecond, cancel) }})
	root.SetErr(terminal)
	if err := execute(ctx, root); !errors.Is(err, errInterrupted) {
		t.Errorf("%v", err)
	}
	out := buf.String()
	var r experiment.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Interrupted || len(r.Rows) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
