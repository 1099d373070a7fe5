package insim

import (
	"context"
	"fmt"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/calibrate"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// NIC measures the rate of one-sided operations by the code of package calibrate.
func (p *Sim) NIC(ctx context.Context, l experiment.NIC) (float64, error) {
	ops := map[string]verbs.WROpcode{"write": verbs.OpWrite, "read": verbs.OpRead, "cas": verbs.OpCmpSwap, "add": verbs.OpFetchAdd}
	op, ok := ops[l.Op]
	if !ok {
		return 0, fmt.Errorf("there is no operation %.20q", l.Op)
	}
	rate, err := calibrate.Load{Op: op, Bytes: l.Bytes, Pairs: l.Pairs, Depth: l.Depth, Device: l.Device, OneWord: l.OneWord}.Throughput(p.Cost)
	if err == nil {
		err = ctx.Err()
	}
	return rate, err
}
