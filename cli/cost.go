package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment/calibrate"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// costFlag adds the flag --cost. usual is its default.
func costFlag(cmd *cobra.Command, dst *string, usual string) {
	cmd.Flags().StringVar(dst, "cost", usual, "times that the hardware takes in virtual time: "+strings.Join(costs.Names(), ", ")+" or a file (see rdmalab sim cost)")
	must(cmd.RegisterFlagCompletionFunc("cost", cobra.FixedCompletions(costs.Names(), cobra.ShellCompDirectiveDefault)))
}

// loadCost loads the cost model that --cost names: a built-in model or a file. It returns nil for
// "", which means that there are no costs.
func loadCost(name string) (*cost.Model, error) {
	if name == "" {
		return nil, nil
	}
	if m, err := costs.Builtin(name); err == nil {
		return m, nil
	}
	text, err := readFile(name)
	if err != nil {
		return nil, badUse("--cost %s: it is none of %s, and as a file: %w", name, strings.Join(costs.Names(), ", "), err)
	}
	return costs.Parse(name, text)
}

func calibrateCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Compare the results of a cost model with published figures",
		Long: "calibrate repeats, on a rack in virtual time, measurements that were published for the NIC ConnectX-5, whatever\n" +
			"--cost names, and compares the results with the publications. It shows how well a cost model (the times that hardware\n" +
			"takes, see `rdmalab sim cost`) fits this NIC; with a model of another NIC, lines may be WRONG. A model whose switch\n" +
			"runs on processor cores, like connectx5-dpdk, has one line more.\n\n" +
			"Each line has the name of a FIGURE, the PUBLISHED value, the value IN SIM with the cost model of --cost, the\n" +
			"difference (OFF BY) and the ALLOWED difference, both in percent of the published value, and the SOURCE. If the\n" +
			"difference is larger than allowed, the line ends with WRONG and the exit status is 1. --cost is required.",
		Example: "  rdmalab sim calibrate --cost connectx5\n" +
			"  rdmalab sim cost connectx5 > my.yaml && rdmalab sim calibrate --cost my.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := loadCost(name)
			if err != nil {
				return err
			}
			figures, err := calibrate.Run(m)
			if err != nil {
				return err
			}
			err = show(cmd, figures, calibrate.WriteTable)
			for i := range figures {
				if err == nil && !figures[i].OK() {
					err = exitCode(1)
				}
			}
			return err
		},
	}
	costFlag(cmd, &name, "")
	outputFlag(cmd)
	cmd.Flag("cost").Usage += " (required)"
	must(cmd.MarkFlagRequired("cost"))
	return cmd
}

func costCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cost [NAME]",
		Short: "Print a built-in cost file, with the sources of its figures",
		Long: "cost NAME prints a built-in cost file: the times that NICs, links, the switch and clients take in virtual time.\n" +
			"connectx3 and connectx5 are the NICs ConnectX-3 and -5, connectx3-40g is ConnectX-3 on 40 Gbit/s, and connectx5-dpdk\n" +
			"has the middlebox of the SwordBox paper (DPDK) instead of a switch at line rate. Without a name it lists the\n" +
			"built-in files. To use other figures, write a file with `base: NAME` and the figures that differ, and name it by the\n" +
			"flag --cost of `rdmalab sim`, `rdmalab sim calibrate`, `rdmalab run ycsb`, `rdmalab run sweep` or `rdmalab experiment\n" +
			"NAME`.",
		Example: "  rdmalab sim cost connectx5\n" +
			"  rdmalab sim cost connectx5 > my.yaml && rdmalab sim calibrate --cost my.yaml",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(costs.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := []byte(strings.Join(costs.Names(), "\n") + "\n")
			if len(args) > 0 {
				var err error
				if text, err = costs.Text(args[0]); err != nil {
					return asUse(err)
				}
			}
			_, err := cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
