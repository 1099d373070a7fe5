package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

func switchCountersCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Show the counters of program swordbox",
		Long: "counters shows what program swordbox has counted since it was started, and some present numbers, like the flows in\n" +
			"use. Each line has the group of the counter, its name, its value and, unless the name says it, what it counts. The\n" +
			"groups are\n\n" +
			"  tracking             the connections that the switch tracks\n" +
			"  hardened, published  rules of action move and atomics, by their mode\n" +
			"  steer, count, …      rules of this action; \"published\" in the name of a group is the mode, and hot has the rules of\n" +
			"                       action count that count in the switch (without store=…)\n" +
			"  dialing              the switch's connections to memory servers\n" +
			"  restart              flows that the switch has moved before it crashed\n" +
			"  record               the journal, which lets the switch continue after a crash\n\n" +
			"-o json has all counters. The packets and bytes of each port are in `rdmalab counters switch`.\n\n" + needsSwordBox,
		Example: "  rdmalab switch counters\n" +
			"  rdmalab switch counters --all",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listing(cmd, "/program/counters", func(out io.Writer, _ rackfile.Names, groups []handler.Group) error {
				w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
				for _, g := range groups {
					for _, c := range g.Counters {
						if c.Value > 0 || all {
							fmt.Fprintf(w, "%s\t%s\t%9d\t%s\n", g.Name, c.Name, c.Value, c.Help) // Flush reports errors
						}
					}
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also counters that are 0")
	listFlags(cmd)
	return cmd
}
