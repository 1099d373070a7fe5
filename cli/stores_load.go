package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// loadCmd makes the command load for a store that has no such command of its own: clients on all
// compute hosts insert keys.
func loadCmd(s *store.Store) *cobra.Command {
	f := runFlags{store: s.Name, workload: "c", typed: func(string) bool { return false }}
	d := &s.Commands.Load
	cmd := &cobra.Command{
		Use: "load", Short: d.Short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.config.Ops = 1 // check requires it, and a load does not use it
			if err := f.check(); err != nil {
				return asUse(err)
			}
			rack, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			run, err := newStoreRun(cmd, rack, &f)
			if err != nil {
				return err
			}
			began := time.Now()
			if _, err := run.all(cmd.Context(), true); err != nil {
				return err
			}
			took := time.Since(began)
			return say(cmd, "keys 0 to %d are there, values of %d bytes; it took %v", f.config.Keys-1,
				max(f.config.Value, kv.MinValue), took.Round(time.Millisecond))
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.config.Keys, "keys", 1024, "number of keys; the first is 0")
	fs.StringVar(&f.value, "value-size", "100", "bytes of a value (16 if less is given): a size like 100 or 4KiB, MIN-MAX (each size equally likely), zipf:THETA:MIN-MAX (smaller ones are more frequent, by Zipf's exponent THETA, 0 to 1.5), or sizes with their shares like 64=50,1KiB=50")
	fs.IntVar(&f.clients, "clients", 16, "clients in all, spread over the compute hosts, at most 1024 on each")
	return cmd
}
