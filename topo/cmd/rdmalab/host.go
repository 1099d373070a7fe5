package main

import (
	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/hostd"
)

// hostCmd is the daemon of a host. `rdmalab up` starts it.
func hostCmd() *cobra.Command {
	var cfg hostd.Config
	cmd := &cobra.Command{
		Use:     "host",
		Short:   "Be the daemon of a host (started by `rdmalab up`)",
		Example: "  rdmalab host --rack-dir /run/rdmalab/default --name cn0",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return hostd.Run(cmd.Context(), cfg) },
	}
	cmd.Flags().StringVar(&cfg.Dir, "rack-dir", "", "the rack's state folder (required)")
	cmd.Flags().StringVar(&cfg.Name, "name", "", "the host's name (required)")
	cmd.Flags().StringVar(&cfg.Ifname, "ifname", "", "the interface of the NIC (default rack0)")
	for _, name := range []string{"rack-dir", "name"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // it was defined above
		}
	}
	return cmd
}
