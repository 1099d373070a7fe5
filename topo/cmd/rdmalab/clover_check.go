package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// cloverCheckCmd makes a history of the store and decides whether it is linearizable.
func cloverCheckCmd() *cobra.Command {
	var from string
	in := hostd.StoreCheck{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Let clients share a few keys and prove that every answer was right",
		Long: "check lets clients on one host read, write, insert and delete a few keys, records what they were told, and looks\n" +
			"for one order of all operations on each key that explains it. Inject faults, crash and restart machines\n" +
			"meanwhile; --loss allows keys to be lost with the memory of a server that is crashed. Exit status 1 if there\n" +
			"is no such order.",
		Example: "  rdmalab inject loss 5% --link ms0 && rdmalab clover check --clients 8\n" +
			"  (sleep 1; rdmalab crash md0; rdmalab restart md0; rdmalab clover start) & rdmalab clover check --rounds 2000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			rack, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			if in.Meta, err = metaHost(rack); err != nil {
				return err
			}
			if in.Base == 0 {
				in.Base = uint64(time.Now().UnixNano()) &^ 0xffff // keys that nobody else has
			}
			var v hostd.StoreVerdict
			if err := clientRequest(cmd, rack, from, hostd.PathStoreCheck, in, &v); err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd, v)
			} else {
				err = printVerdict(cmd, from, &v)
			}
			if err == nil && !v.Linearizable {
				err = exitCode(1)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&in.Clients, "clients", 8, "clients on the host")
	fs.IntVar(&in.Rounds, "rounds", 200, "operations of each")
	fs.IntVar(&in.Keys, "keys", 4, "keys that they share")
	fs.IntVar(&in.Value, "value", 100, "bytes of a value")
	fs.Uint64Var(&in.Seed, "seed", 1, "makes the operations")
	fs.Uint64Var(&in.Base, "base", 0, "the first key (default fresh ones)")
	fs.IntVar(&in.Share, "share-qp", 0, "clients that share a queue pair to each memory server (default: each has its own)")
	fs.BoolVar(&in.Loss, "loss", false, "memory may be lost meanwhile")
	fromFlag(cmd, &from)
	outputFlag(cmd)
	return cmd
}

func printVerdict(cmd *cobra.Command, from string, v *hostd.StoreVerdict) error {
	out := cmd.OutOrStdout()
	_, _ = fmt.Fprintf(out, "%d operations in %v, %d without an answer, %d found their key lost\n", v.Operations,
		v.Took.Round(time.Millisecond), v.Unknown, v.Lost)
	if !v.Linearizable {
		_, err := fmt.Fprintf(out, "not linearizable: %s\n", v.Why)
		return err
	}
	_, err := fmt.Fprintln(out, "linearizable: one order of all operations explains every answer")
	if err != nil {
		return err
	}
	var st rpc.Stats
	if err := storeRequest(cmd, from, hostd.PathStoreStat, hostd.StoreOp{Op: "stat"}, &st); err != nil {
		return err
	}
	// What is neither free nor a client's is in a chain; a whole chain that was followed to its end has one node.
	leaked := st.Linked - min(st.Linked, st.Keys-st.LostKeys)
	_, err = fmt.Fprintf(out, "chains broken %d, nodes leaked %d; %d free, held %d, in chains %d of %d keys\n", st.Broken, leaked, st.Free, st.Held,
		st.Linked, st.Keys)
	return err
}
