package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment/calibrate"
	"github.com/rdmalab/rdmalab/nearest"
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
		return nil, badUse("--cost %s: %sit is none of %s, and as a file: %w", name, nearest.Meant(name, costs.Names()), strings.Join(costs.Names(), ", "), err)
	}
	m, err := costs.Parse(name, text)
	return m, asUse(err)
}

func calibrateCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Compare the results of a cost model with published figures",
		Args:  cobra.NoArgs,
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
		Use:               "cost [NAME]",
		Short:             "Print a built-in cost file, with the sources of its figures",
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
