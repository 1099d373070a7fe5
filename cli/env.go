package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func envCmd() *cobra.Command {
	var shared bool
	var provider providerFlag
	cmd := &cobra.Command{
		Use:               "env HOST",
		Short:             "Print the variables by which a program finds a host's NIC",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(hostNames),
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			if err := errors.Join(checkHost(r.Spec, args[0]), onlyHost(r.Spec, args[0])); err != nil {
				return err
			}
			if err := provider.set(); err != nil {
				return err
			}
			env, err := r.ProgramEnv(args[0], rack.InheritedEnv())
			if err != nil {
				return err
			}
			_, has := preload.Library()
			warnNoLibrary(cmd.ErrOrStderr(), has)
			if shared {
				env = append(env, uverbs.EnvMemory+"="+uverbs.SharedMemory)
			}
			for _, v := range env {
				name, value, _ := strings.Cut(v, "=")
				fmt.Fprintf(cmd.OutOrStdout(), "export %s=%s\n", name, machines.Quote(value))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&shared, "shared-memory", false, "a libibverbs program shares its registered memory with the daemon: faster, but wrong for some programs (see rdmalab exec --help)")
	provider.add(cmd)
	return cmd
}
