package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func sliceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slice COMMAND",
		Short: "The part of a rack on several machines that this machine runs",
	}
	cmd.AddCommand(sliceApplyCmd(), sliceStatusCmd(), sliceDownCmd())
	return cmd
}

// wholeVersion tells builds apart: two that have the same understand each other.
func wholeVersion() string {
	v := readVersion()
	return v.Version + either(v.Revision != "", " "+v.Revision, "") + either(v.Modified, " modified", "")
}

func sliceApplyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Bring up the slice that comes on the standard input, from rdmalab up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if onTerminal(cmd.InOrStdin()) {
				return badUse("slice apply reads a slice from its standard input: `rdmalab up` sends it over ssh")
			}
			s, secret, err := machines.ReadSlice(cmd.InOrStdin(), wholeVersion())
			if err != nil {
				return err
			}
			unix.Umask(umask)
			_, err = rack.UpSlice(cmd.Context(), s, secret)
			if err != nil && !errors.Is(err, rack.ErrAlreadyUp) {
				return err
			}
			return printJSON(cmd, machines.Applied{Made: err == nil})
		},
	}
}

func sliceStatusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show this machine's name, the generation, and what runs here",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			r, err := rack.Open(name)
			if err != nil {
				return err
			}
			if r.Spec.Machine == "" {
				return badUse("rack %q is on this machine alone: `rdmalab status` shows it", name)
			}
			s, err := r.Status(cmd.Context())
			if err != nil {
				return err
			}
			if !wantJSON(cmd) {
				if err := say(cmd, "machine %s of rack %q, generation %d\n", s.Machine, s.Name, s.Generation); err != nil {
					return err
				}
			}
			return show(cmd, s, printStatus)
		},
	}
	listFlags(cmd)
	return cmd
}

func sliceDownCmd() *cobra.Command {
	var generation uint64
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take away the slice of a generation; another one stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			_, err = rack.DownSlice(cmd.Context(), name, generation)
			return err
		},
	}
	cmd.Flags().Uint64Var(&generation, "generation", 0, "generation of the slice, as slice status shows it (required)")
	must(cmd.MarkFlagRequired("generation"))
	return cmd
}

// carried returns the client of the rack, if the rack is on several machines and this is where `rdmalab
// up` was called.
func carried(cmd *cobra.Command) (*machines.Client, bool, error) {
	name, err := rackName(cmd)
	if err != nil {
		return nil, false, err
	}
	return machines.Open(name)
}

// terminals reports whether input and output are terminals, so that a program far away needs one.
func terminals() bool { return isTerminal(os.Stdin) && isTerminal(os.Stdout) }
