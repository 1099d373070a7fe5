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
		Args:  cobra.NoArgs,
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
