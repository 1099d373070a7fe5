package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/topo/storeload"
)

// collapseCmd shows what contention does to Clover.
func collapseCmd() *cobra.Command {
	var name, steer string
	var table bool
	var share int
	var rows []int
	cmd := &cobra.Command{
		Use:   "collapse",
		Short: "Measure Clover under contention at the pace of hardware",
		Long: "collapse lets 8 to 240 clients work on 1024 keys of Clover (Zipf 0.99, nodes of 128 bytes) in virtual time, with\n" +
			"0 to 100% writes, and prints what is left: throughput, writes that won their first race, round trips and bytes\n" +
			"per operation. The model of --cost is the one that `rdmalab sim calibrate` compares with published figures.\n" +
			"With --steer each row is followed by one with a switch that steers, and what that gains. --table runs the experiments of\n" +
			"the SwordBox paper (figures 5 and 11 to 14) without steering, in mode hard and in mode paper, beside its numbers.",
		Example: "  rdmalab sim collapse\n  rdmalab sim collapse --steer both\n  rdmalab sim collapse --table\n  rdmalab sim collapse -o json",
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
			if !slices.Contains([]string{storeload.None, "write", "read", "both"}, steer) {
				return badUse("--steer %.20q is unknown; take none, write, read or both", steer)
			}
			if len(rows) > 0 && !table {
				return badUse("--rows chooses rows of the table: add --table")
			}
			if share < 0 || share > clover.MaxGroup || table && share > 1 {
				return badUse("--share-qp %d: want 0 to %d clients on a queue pair, and no --table, whose clients have their own", share, clover.MaxGroup)
			}
			if table {
				return collapseTable(cmd, m, rows, asJSON)
			}
			list, err := storeload.Table(m, steer, share, func(p storeload.Point) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%g%% writes, %d clients, steer %s: %.2f Mops\n", p.Writes, p.Clients, p.Steer, p.Mops) // a courtesy
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, list)
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), modelLines(m)); err != nil {
				return err
			}
			return storeload.WriteTable(cmd.OutOrStdout(), list)
		},
	}
	costFlag(cmd, &name, "connectx5")
	cmd.Flags().StringVar(&steer, "steer", storeload.None, "what the switch steers: none, write, read or both")
	complete(cmd, "steer", "none", "write", "read", "both")
	cmd.Flags().BoolVar(&table, "table", false, "run the experiments of the SwordBox paper and print its numbers beside")
	cmd.Flags().IntVar(&share, "share-qp", 0, "clients of a machine that share a queue pair to the memory server (default: each has its own)")
	cmd.Flags().IntSliceVar(&rows, "rows", nil, "of the table, only these: numbers from 1")
	outputFlag(cmd)
	return cmd
}

// collapseTable runs the experiments of the paper, all of them or some.
func collapseTable(cmd *cobra.Command, m *cost.Model, rows []int, asJSON bool) error {
	all := storeload.Rows()
	list := all
	if len(rows) > 0 {
		list = nil
	}
	for _, n := range rows {
		if n < 1 || n > len(all) {
			return badUse("--rows %d: the table has rows 1 to %d", n, len(all))
		}
		list = append(list, all[n-1])
	}
	for i := range list {
		if err := list[i].Fill(m); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: done\n", list[i].Name) // a courtesy
	}
	if asJSON {
		return printJSON(cmd, struct {
			Model *cost.Model     `json:"model"`
			Rows  []storeload.Row `json:"rows"`
		}{m, list})
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), modelLines(m)); err != nil {
		return err
	}
	return storeload.WriteRows(cmd.OutOrStdout(), list)
}
