package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// shermanCheckCmd proves the structure of the tree, and that of the answers.
func shermanCheckCmd() *cobra.Command {
	var from string
	in := hostd.TreeCheck{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read the whole tree and prove that it is whole; with --clients also that its answers are right",
		Long: "check reads every page of the tree from the memory servers: ranges of keys leave nothing out and nothing twice,\n" +
			"neighbours and children are where they should be, no key is there twice, locks are free or held by the living,\n" +
			"and no page is lost. With --clients, so many on one host first read, write, insert, delete and scan a few keys,\n" +
			"and one order of all operations on each key must explain what they were told. Inject faults, crash and restart\n" +
			"machines meanwhile. Exit status 1 if something is wrong.",
		Example: "  rdmalab sherman check\n" +
			"  rdmalab inject loss 5% --link ms0 && rdmalab sherman check --clients 8 --rounds 500",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			if in.Clients > 0 && in.Base == 0 {
				in.Base = uint64(time.Now().UnixNano()) &^ 0xffff // keys that nobody else has
			}
			var v hostd.TreeVerdict
			if err := treeRequest(cmd, from, hostd.PathTreeCheck, in, &v); err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd, v)
			} else {
				err = printTreeVerdict(cmd.OutOrStdout(), &v)
			}
			if err == nil && (v.Why != "" || v.History != nil && !v.History.Linearizable) {
				err = exitCode(1)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&in.Clients, "clients", 0, "clients that make a history first (default none)")
	fs.IntVar(&in.Rounds, "rounds", 200, "operations of each")
	fs.IntVar(&in.Keys, "keys", 64, "keys that they share")
	fs.Uint64Var(&in.Seed, "seed", 1, "makes the operations")
	fs.Uint64Var(&in.Base, "base", 0, "the first key (default fresh ones)")
	fs.IntVar(&in.Unreachable, "unreachable", 0, "pages that interrupted splits may have left behind; -1: any number")
	fs.IntVar(&in.HalfSplits, "half-splits", -1, "splits that may lack their separator; -1: any number")
	fs.IntVar(&in.DeadLocks, "dead-locks", 0, "locks whose owners may be gone, because nobody has wanted them since; -1: any number")
	fromFlag(cmd, &from)
	outputFlag(cmd)
	return cmd
}

func printTreeVerdict(out io.Writer, v *hostd.TreeVerdict) error {
	if h := v.History; h != nil {
		_, _ = fmt.Fprintf(out, "%d operations in %v, %d without an answer\n", h.Operations, h.Took.Round(time.Millisecond), h.Unknown)
		if h.Linearizable {
			_, _ = fmt.Fprintln(out, "linearizable: one order of all operations on each key explains every answer")
		} else {
			_, _ = fmt.Fprintf(out, "not linearizable: %s\n", h.Why)
		}
	}
	if v.Tree != nil {
		_, _ = fmt.Fprintf(out, "%v\n%d MiB in %d reads, %v\n", v.Tree, v.Tree.Bytes>>20, v.Tree.Reads, v.Took.Round(time.Millisecond))
	}
	if v.Why != "" {
		_, err := fmt.Fprintln(out, v.Why)
		return err
	}
	_, err := fmt.Fprintln(out, "the tree is whole")
	return err
}

// shermanLoadCmd fills an empty tree.
func shermanLoadCmd() *cobra.Command {
	var from string
	in := hostd.TreeLoad{Records: true}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Fill an empty tree with keys 0 to N-1, bottom up",
		Example: "  rdmalab sherman start --fresh && rdmalab sherman load --keys 100000\n" +
			"  rdmalab run ycsb --store sherman --keys 100000 --no-load",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out hostd.TreeLoaded
			if err := treeRequest(cmd, from, hostd.PathTreeLoad, in, &out); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d keys in %v pages of levels 0 to %d, %d MiB, in %v\n", out.Keys, out.Pages, len(out.Pages)-1,
				out.Bytes>>20, out.Took.Round(time.Millisecond))
			return err
		},
	}
	cmd.Flags().Uint64Var(&in.Keys, "keys", 1024, fmt.Sprintf("keys, with values of at least %d bytes", kv.MinValue))
	fromFlag(cmd, &from)
	return cmd
}
