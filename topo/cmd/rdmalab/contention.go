package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/topo/contention"
)

// contentionCmd is fig. 10 of the paper in virtual time.
func contentionCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "fig10",
		Aliases: []string{"contention"},
		Short:   "Measure contended CAS, plain and replaced by the switch, at the pace of hardware",
		Long: "fig10 lets 1 to 64 clients do CAS on one word, one at a time each, in virtual time: as plain CAS, and through\n" +
			"a switch that replaces CAS by WRITE. Beside it are the limits that the SwordBox paper gives. The model of\n" +
			"--cost is the one that `rdmalab sim calibrate` compares with published figures; nothing is tuned here.",
		Example: "  rdmalab sim fig10\n  rdmalab sim fig10 -o json",
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
			series := contention.Figure()
			for i := range series {
				if err := series[i].Run(m); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(cmd, series)
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), modelLines(m)); err != nil {
				return err
			}
			return contention.WriteTable(cmd.OutOrStdout(), series)
		},
	}
	costFlag(cmd, &name, "connectx5-dpdk")
	outputFlag(cmd)
	return cmd
}

// modelLines are the figures of the model that matter here.
func modelLines(m *cost.Model) string {
	var b strings.Builder
	a, w := &m.NIC.Atomic, &m.NIC.Write
	fmt.Fprintf(&b, "model %s: atomics on one word %v/s in host memory, %v/s in device memory; of one queue pair %v/s and %v/s\n",
		m.Name, a.Word.Host, a.Word.Device, a.QP.Host, a.QP.Device)
	fmt.Fprintf(&b, "  WRITEs of one queue pair %v/s in host memory, %v/s in device memory; doorbell %v, completion %v, atomic %v, WRITE %v\n",
		w.QP.Host, w.QP.Device, m.NIC.Doorbell, m.NIC.Completion, a.Latency.Host, w.Latency.Host)
	fmt.Fprintf(&b, "  switch: %d cores, each rewrites %v/s and forwards %v/s, delay %v; links %v each way\n",
		m.Switch.Cores, m.Switch.Rewrite, m.Switch.Forward, m.Switch.Delay, m.Link.Delay)
	return b.String()
}
