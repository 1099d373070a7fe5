package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func switchProgramCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "program [NAME]",
		Short:     "Show or change the program that the switch runs",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: rackfile.Programs(),
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

// loadProgram makes the switch run a program. If the rack's description names this program, the
// program gets the description's rules, otherwise none.
func loadProgram(cmd *cobra.Command, name string) error {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	if !slices.Contains(rackfile.Programs(), name) {
		return badUse("program %.40q is unknown; %sthis rdmalab has %s; a program of your own is loaded by the binary that has it, and that has brought the rack up", name,
			nearest.Meant(name, rackfile.Programs()), strings.Join(rackfile.Programs(), " and "))
	}
	in := switchd.ProgramText{Name: name}
	if name == rack.Switch.Program {
		for i := range rack.Switch.Rules {
			in.Rules = append(in.Rules, rack.Switch.Rules[i].String())
		}
	}
	return askBox(cmd, http.MethodPut, "/program", in, nil)
}

func printProgram(out io.Writer, _ rackfile.Names, p switchd.ProgramInfo) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
