package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
)

func validateCmd() *cobra.Command {
	schema := false
	cmd := &cobra.Command{
		Use:   "validate {RACK.yaml... | --schema}",
		Short: "Check rack files",
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(rackfile.Schema())
				return err
			}
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
				return badUse("%d of %d rack files cannot be used", wrong, len(args))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of rack files")
	return cmd
}

// validated reads a rack file and describes its rack in a line.
func validated(name string) (string, error) {
	data, err := readFile(name)
	if err != nil {
		return "", err
	}
	r, err := parseRack(name, data)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: rack %s: %d hosts (%d compute, %d memory, %d metadata), switch program %s with %d rules, %d faults",
		name, r.Name, len(r.HostNames()), len(r.ByRole(rackfile.Compute)), len(r.ByRole(rackfile.Memory)), len(r.ByRole(rackfile.Metadata)),
		r.Switch.Program, len(r.Switch.Rules), len(r.Faults)), nil
}
