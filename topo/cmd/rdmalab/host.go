package main

import (
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/hostd"
)

// umask is the umask of up and of the daemons, whatever umask the shell has. Users other than root
// may read some of the files that up and the daemons make, but may write none.
const umask = 0o022

func hostCmd() *cobra.Command {
	var cfg hostd.Config
	cmd := hiddenCmd("host", "Be the daemon of a host (started by `rdmalab up`)", func(cmd *cobra.Command, _ []string) error {
		unix.Umask(umask)
		return hostd.Run(cmd.Context(), cfg)
	})
	cmd.Example = "  rdmalab host --rack-dir /run/rdmalab/default --name cn0"
	cmd.Flags().StringVar(&cfg.Dir, "rack-dir", "", "the rack's state folder (required)")
	cmd.Flags().StringVar(&cfg.Name, "name", "", "the host's name (required)")
	cmd.Flags().StringVar(&cfg.Ifname, "ifname", "", "the interface of the NIC (default rack0)")
	must(cmd.MarkFlagRequired("rack-dir"))
	must(cmd.MarkFlagRequired("name"))
	return cmd
}
