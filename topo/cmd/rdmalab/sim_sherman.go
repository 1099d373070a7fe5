package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/treeload"
)

// treeloadReport is what treeload prints as JSON.
type treeloadReport struct {
	Wire  []treeload.WireCost   `json:"wire"`
	Locks []treeload.LockSeries `json:"locks"`
	Tree  []treeload.TreePoint  `json:"tree"`
}

// treeloadCmd measures Sherman and its locks at the pace of hardware.
func treeloadCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "treeload",
		Short: "Measure Sherman and its locks at the pace of hardware",
		Long: "treeload prints three tables, all in virtual time: what single operations of the tree put on the wire, beside what\n" +
			"the published formats come to; what one lock yields to 1 to 256 clients when its word is in host memory, in the\n" +
			"memory of the NIC, or behind a switch that turns CAS into WRITE, with the papers' figures; and YCSB A on the tree\n" +
			"with locks in these places, at Zipf 0.99 and 1.2, for clients that share nothing and for clients on eight nodes that\n" +
			"hand locks over. The model of --cost is the one that `rdmalab sim calibrate` compares with published figures;\n" +
			"nothing is tuned here. A minute or two.",
		Example: "  rdmalab sim treeload\n  rdmalab sim treeload -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			m, err := loadCost(name)
			if err != nil {
				return err
			}
			tell := func(format string, args ...any) { _, _ = fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) } // a courtesy
			var rep treeloadReport
			if rep.Wire, err = treeload.Wire(); err != nil {
				return err
			}
			rep.Locks = treeload.Locks()
			for i := range rep.Locks {
				if err := rep.Locks[i].Run(m); err != nil {
					return err
				}
				tell("%s: done", rep.Locks[i].Name)
			}
			rep.Tree, err = treeload.Tree(m, func(p treeload.TreePoint) {
				tell("YCSB %s, Zipf %g, %d clients, alone: %v, locks in %s: %.3f Mops", p.Workload, p.Zipf, p.Clients, p.Alone, p.Locks, p.Mops)
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, rep)
			}
			out := cmd.OutOrStdout()
			if _, err := fmt.Fprintln(out, modelLines(m)); err != nil {
				return err
			}
			if err := treeload.WriteWire(out, rep.Wire); err != nil {
				return err
			}
			_, _ = fmt.Fprintln(out)
			if err := treeload.WriteLocks(out, rep.Locks); err != nil {
				return err
			}
			_, _ = fmt.Fprintln(out)
			return treeload.WriteTree(out, rep.Tree)
		},
	}
	costFlag(cmd, &name, "connectx5-dpdk")
	outputFlag(cmd)
	return cmd
}
