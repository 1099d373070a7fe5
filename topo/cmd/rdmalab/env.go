package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func envCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "env HOST",
		Short: "Print the variables by which a program finds a host's NIC",
		Long: "env prints, for a shell, the environment variables that `rdmalab exec` sets for a program on a host: the socket\n" +
			"of its NIC, and what an unmodified program over libibverbs needs. The program may run wherever the files of the\n" +
			"rack are seen; it has the network of the host only by `rdmalab exec`.",
		Example:           "  eval $(rdmalab env cn0)\n  ibv_devices",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
			if _, _, ok := r.Spec.Host(args[0]); !ok {
				return badUse("the rack has no host %q; it has %v", args[0], r.Spec.HostNames())
			}
			env, err := r.ProgramEnv(args[0], os.Getenv("LD_PRELOAD"))
			if err != nil {
				return err
			}
			for _, v := range env {
				name, value, _ := strings.Cut(v, "=")
				fmt.Fprintf(cmd.OutOrStdout(), "export %s=%s\n", name, quote(value))
			}
			return nil
		},
	}
}

// quote writes a word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
