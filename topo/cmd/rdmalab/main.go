// Command rdmalab is the whole project in one binary: the command line, the daemons that it starts, and tools.
// Each file of this package is one subcommand; commands lists them.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// commands is the explicit list of subcommands, in the order of the help text.
func commands() []*cobra.Command {
	return []*cobra.Command{}
}

func main() {
	root := &cobra.Command{
		Use:           "rdmalab",
		Short:         "A rack of RDMA machines on one Linux box",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "rdmalab:", err)
		os.Exit(1)
	}
}
