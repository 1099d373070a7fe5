package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/spec"
)

func switchFlows(cmd *cobra.Command) error { return listing(cmd, "/flows", printFlows) }

func printFlows(out io.Writer, names spec.Names, flows []pipeline.Flow) error {
	return handler.WriteTable(out, flows, "no RoCEv2 packet has passed the switch", "FROM\tTO\tTO QP\tPACKETS\tBYTES\tLAST SEEN", func(f *pipeline.Flow) string {
		return fmt.Sprintf("%s\t%s\t%#x\t%d\t%d\t%v ago", names.Of(f.Src), names.Of(f.Dst), uint32(f.QPN), f.Packets, f.Bytes, f.Idle.Round(time.Millisecond))
	})
}
