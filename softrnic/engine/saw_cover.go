//go:build qpcover

package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// saw reports to transport.Observer that a packet to an existing queue pair was dropped, and why
// (fate).
func (t *tables) saw(f *wire.Frame, fate string) {
	qp := t.qps[f.BTH.DestQP]
	if transport.Observer == nil || qp == nil || f.BTH.Opcode.Service() != qp.q.Service() {
		return
	}
	what := "reserved"
	if f.BTH.Opcode.Known() {
		what = f.BTH.Opcode.String()
	}
	transport.Observer(qp.q.Config().Type.String(), qp.q.State().String(), what, fate)
}
