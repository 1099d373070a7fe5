package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
)

func validateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "validate RACK.yaml...",
		Short: "Check rack files",
		Long: "validate reads rack files as `rdmalab up` does, and brings nothing up. For each file it prints one line with what the\n" +
			"rack has, or every mistake with line and column. The exit status is 1 if a file has a mistake or cannot be read.",
		Example: "  rdmalab validate topo/racks/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wrong := 0
			for _, name := range args {
				line, err := validated(name)
				if err != nil {
					wrong++
					cmd.PrintErrln(err)
				} else if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}
			if wrong > 0 {
				return fmt.Errorf("%d of %d rack files cannot be used", wrong, len(args))
			}
			return nil
		},
	}
}

// validated reads a rack file and describes its rack in a line.
func validated(name string) (string, error) {
	data, err := readFile(name)
	if err != nil {
		return "", err
	}
	r, err := rackfile.ParseFile(name, data)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: rack %s: %d hosts (%d compute, %d memory, %d metadata), switch program %s with %d rules, %d faults",
		name, r.Name, len(r.Hosts), len(r.ByRole(rackfile.Compute)), len(r.ByRole(rackfile.Memory)), len(r.ByRole(rackfile.Metadata)),
		r.Switch.Program, len(r.Switch.Rules), len(r.Faults)), nil
}
