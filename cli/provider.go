package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// providerFlag chooses the provider for libibverbs. Without the flag, the environment variable
// uverbs.EnvProvider does, which the flag sets.
type providerFlag struct{ value string }

func (f *providerFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.value, "provider", "", "what serves the NIC to libibverbs: \"own\", the provider of rdmalab, which has device memory, timestamps and\n"+
		"more, or \"rxe\", that of rdma-core; by default the variable "+uverbs.EnvProvider+", else own. Where own does not\nknow the private interface of this libibverbs, rxe serves the NIC")
	_ = cmd.RegisterFlagCompletionFunc("provider", cobra.FixedCompletions([]string{uverbs.ProviderOwn, uverbs.ProviderRXE}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// set puts the choice into the environment of this process, and so of the program.
func (f *providerFlag) set() error {
	what := "--provider"
	if f.value == "" {
		f.value, what = os.Getenv(uverbs.EnvProvider), uverbs.EnvProvider
	}
	switch f.value {
	case "":
		return nil
	case uverbs.ProviderOwn, uverbs.ProviderRXE:
		return os.Setenv(uverbs.EnvProvider, f.value)
	}
	return badUse("%s %q: %swant %s or %s", what, f.value, nearest.Meant(f.value, []string{uverbs.ProviderOwn, uverbs.ProviderRXE}), uverbs.ProviderOwn, uverbs.ProviderRXE)
}
