package main

import (
	"bytes"
	"encoding/csv"
	"testing"

	"github.com/spf13/cobra"
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

// --pace and --limit are refused without a trace.
func TestReplayFlagsWantATrace(t *testing.T) {
	for _, flag := range []string{"--pace=1", "--limit=10"} {
		if _, _, err := runOf([]string{flag}); err == nil {
			t.Errorf("%s without --trace: no error", flag)
		}
	}
}
