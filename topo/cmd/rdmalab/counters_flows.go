package main

import (
	"context"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// switchFlows shows the RoCEv2 flows that the switch saw, the busiest first. Addresses are shown as
// hosts.
func switchFlows(cmd *cobra.Command, asJSON bool) error {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	client, err := switchControl(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), daemonWait)
	defer cancel()
	var flows []pipeline.Flow
	if err := client.Call(ctx, http.MethodGet, "/flows", nil, &flows); err != nil {
		return whose(err, spec.SwitchName)
	}
	if asJSON {
		return printJSON(cmd, flows)
	}
	if len(flows) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "no RoCEv2 packet has passed the switch")
		return err
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tTO QP\tPACKETS\tBYTES\tLAST SEEN") // Flush reports errors
	for _, f := range flows {
		from, to := f.Src.String(), f.Dst.String()
		if h, ok := rack.ByAddr(f.Src); ok {
			from = h.Name
		}
		if h, ok := rack.ByAddr(f.Dst); ok {
			to = h.Name
		}
		fmt.Fprintf(t, "%s\t%s\t%#x\t%d\t%d\t%v ago\n", from, to, uint32(f.QPN), f.Packets, f.Bytes, f.Idle.Round(time.Millisecond))
	}
	return t.Flush()
}
