package cli

import (
	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func linkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "link HOST|TRUNK up|down",
		Short:             "Cut or restore a host's link, or a trunk between switches",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: arguments(linkNames, words("up", "down")),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, up := args[0], args[1] == "up"
			if !up && args[1] != "down" {
				if host == "up" || host == "down" {
					return badUse("the host comes first; write: rdmalab link %s %s", args[1], host)
				}
				if word := map[string]string{"on": "up", "off": "down", "cut": "down"}[args[1]]; word != "" {
					return badUse("link state %q is unknown; write: rdmalab link %s %s", args[1], host, word)
				}
				return badUse("link state %q is unknown; %suse up or down", args[1], nearest.Meant(args[1], []string{"up", "down"}))
			}
			if up && cmd.Flags().Changed("for") {
				return badUse("--for goes with down only")
			}
			return hurt(cmd, func(r *rack.Rack) (rack.Action, string, error) {
				return rack.ActionLinkUp, "the link of " + host + " is " + args[1], r.Link(cmd.Context(), host, up)
			}, host)
		},
	}
	forFlag(cmd, "with down: set the link up again after this time, up to 24h, like 500ms (default: it stays down until rdmalab link HOST up)")
	return cmd
}
