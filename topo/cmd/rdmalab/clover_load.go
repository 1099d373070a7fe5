package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover/kv"

	"github.com/rdmalab/rdmalab/topo/spec"
)

// cloverLoadCmd inserts keys.
func cloverLoadCmd() *cobra.Command {
	f := runFlags{store: storeClover, workload: "c"}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Insert keys 0 to N-1, each with a value of its own",
		Long: "load lets clients on all compute hosts insert the keys from 0 on, and leaves those that are there already. Values\n" +
			"carry their key and a checksum, so that `rdmalab run ycsb --no-load` can compare what it reads. A store that does\n" +
			"not run is started.",
		Example: "  rdmalab clover load --keys 10000 --value-size 1000\n" +
			"  rdmalab run ycsb --no-load --keys 10000 --value 1000 --workload b",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := spec.ParseSize(f.value); err != nil { // of run the flag has another name
				return badUse("--value-size: %w", err)
			}
			f.config.Ops = 1 // none of them is made
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "keys 0 to %d are there, values of %d bytes; it took %v\n", f.config.Keys-1,
				max(f.config.Value, kv.MinValue), took.Round(time.Millisecond))
			return err
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.config.Keys, "keys", 1024, "how many keys")
	fs.StringVar(&f.value, "value-size", "100", "bytes of a value")
	fs.IntVar(&f.clients, "clients", 16, "clients in all, spread over the compute hosts")
	return cmd
}
