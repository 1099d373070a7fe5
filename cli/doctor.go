package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/doctor"
)

func doctorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run a rack, and show how to fix what is missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := doctor.Examine(cmd.Context(), doctor.Machine(), doctor.Probes())
			err := show(cmd, &r, printDoctor)
			if err == nil && !r.Ready {
				err = exitCode(1) // the last line of the output says why
			}
			return err
		},
	}
	outputFlag(cmd)
	return cmd
}

// Widths of the columns CHECK and FOUND. The text of FOUND is often longer, for example if it is an
// error of the system; then the column after it begins on the next line.
const (
	doctorCheck = 15
	doctorFound = 50
)

func printDoctor(out io.Writer, r *doctor.Report) error {
	var b strings.Builder
	line := func(state, check, found, means string) {
		fmt.Fprintf(&b, "%-8s  %-*s  ", state, doctorCheck, check)
		if len(found) > doctorFound {
			fmt.Fprintf(&b, "%s\n%*s", found, 8+2+doctorCheck+2, "")
			found = ""
		}
		fmt.Fprintf(&b, "%-*s  %s\n", doctorFound, found, means)
	}
	line("STATE", "CHECK", "FOUND", "MEANS")
	var fixes []string
	checks := make(map[string][]string)
	for _, f := range r.Findings {
		line(string(f.State), f.Check, f.Found, f.Means)
		if f.Fix == "" {
			continue
		}
		if checks[f.Fix] == nil {
			fixes = append(fixes, f.Fix)
		}
		checks[f.Fix] = append(checks[f.Fix], f.Check)
	}
	if len(fixes) > 0 {
		b.WriteString("\nTO FIX\n")
	}
	for _, m := range fixes {
		fmt.Fprintf(&b, "  %s\n      %s\n", strings.Join(checks[m], ", "), m)
	}
	verdict := "a rack can be brought up: `rdmalab up`"
	if !r.Ready {
		verdict = "no rack can be brought up here: fix " + strings.Join(r.Lacking(), ", ") + "; `rdmalab sim` works without"
	}
	fmt.Fprintf(&b, "\n%s\n", verdict)
	_, err := io.WriteString(out, b.String())
	return err
}
