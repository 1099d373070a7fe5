package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/switchd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

func switchProgramCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "program [NAME]",
		Short: "Show which program the switch runs, or have it run another",
		Long: "Without NAME, program shows the switch program that runs, and the tables that it declares. The rack file chooses\n" +
			"the program by `switch: {program: NAME}`.\n\n" +
			"With NAME, the running switch gets that program. Its rules are those of the rack file if the file chooses the\n" +
			"same program; otherwise it begins without rules. Open connections go on. But if the switch has moved requests of\n" +
			"an open connection, the command fails and the switch keeps its program. A restarted switch runs the program that\n" +
			"it ran before.",
		Example: "  rdmalab switch program\n" +
			"  rdmalab switch program swordbox && rdmalab switch rules add server=ms0 action=steer\n" +
			"  rdmalab switch program forward",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: spec.Programs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := loadProgram(cmd, args[0]); err != nil {
					return err
				}
			}
			return listing(cmd, "/program", printProgram)
		},
	}
	outputFlag(cmd)
	return cmd
}

// loadProgram makes the switch run a program, with the rules of the rack's description if the
// program has rules.
func loadProgram(cmd *cobra.Command, name string) error {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	if !slices.Contains(spec.Programs(), name) {
		return badUse("program %.40q: the switch has %s", name, strings.Join(spec.Programs(), " and "))
	}
	in := switchd.ProgramText{Name: name}
	if name == rack.Switch.Program {
		for i := range rack.Switch.Rules {
			in.Rules = append(in.Rules, rack.Switch.Rules[i].String())
		}
	}
	return askBox(cmd, http.MethodPut, "/program", in, nil)
}

func printProgram(cmd *cobra.Command, p switchd.ProgramInfo) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "program\t%s\n", p.Name) // Flush reports errors
	fmt.Fprintf(w, "does\t%s\n", p.Doc)
	fmt.Fprintf(w, "others\t%s\n", strings.Join(p.Programs, ", "))
	fmt.Fprintf(w, "rules\t%d\n", p.Rules)
	fmt.Fprintf(w, "state\t%s declared; see `rdmalab switch budget`\n", bitsText(p.Bits))
	if len(p.Addresses) > 0 {
		fmt.Fprintf(w, "addresses\t%v at %v\n", p.Addresses, p.MAC)
	}
	return w.Flush()
}

// bitsText formats a number of bits as bytes.
func bitsText(n int) string {
	switch b := float64(n) / 8; {
	case b >= 1<<20:
		return fmt.Sprintf("%.1f MiB", b/(1<<20))
	case b >= 1<<10:
		return fmt.Sprintf("%.1f KiB", b/(1<<10))
	default:
		return fmt.Sprintf("%.0f B", b)
	}
}
