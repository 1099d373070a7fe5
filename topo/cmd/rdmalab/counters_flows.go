package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// switchFlows shows the RoCEv2 flows that the switch has seen, sorted by packets, the largest
// number first. It shows the names of hosts instead of addresses.
func switchFlows(cmd *cobra.Command) error { return listing(cmd, "/flows", printFlows) }

func printFlows(out io.Writer, names namer, flows []pipeline.Flow) error {
	if len(flows) == 0 {
		_, err := fmt.Fprintln(out, "no RoCEv2 packet has passed the switch")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tTO QP\tPACKETS\tBYTES\tLAST SEEN") // Flush reports errors
	for _, f := range flows {
		fmt.Fprintf(t, "%s\t%s\t%#x\t%d\t%d\t%v ago\n", names.name(f.Src), names.name(f.Dst), uint32(f.QPN), f.Packets, f.Bytes, f.Idle.Round(time.Millisecond))
	}
	return t.Flush()
}
