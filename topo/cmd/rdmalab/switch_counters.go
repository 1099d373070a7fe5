package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
)

func switchCountersCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Show what the parts of program swordbox counted",
		Long: "counters shows the counters of connection tracking, of the modes, of the switch's own connections and of its\n" +
			"record. Those that are 0 are left out unless --all is given. What passed the ports is in `rdmalab counters switch`.",
		Example: "  rdmalab switch counters\n" +
			"  rdmalab switch counters --all",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listing(cmd, "/program/counters", func(cmd *cobra.Command, groups []serialize.Group) error {
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, g := range groups {
					for _, c := range g.Counters {
						if c.Value > 0 || all {
							fmt.Fprintf(w, "%s\t%s\t%9d\t%s\n", g.Name, c.Name, c.Value, c.Help) // Flush reports
						}
					}
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also counters that are 0")
	outputFlag(cmd)
	return cmd
}
