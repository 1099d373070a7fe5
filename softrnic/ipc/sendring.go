package ipc

import (
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

var (
	_ verbs.RingQP    = (*qp)(nil)
	_ verbs.CountedCQ = (*cq)(nil)
)

// UseRing makes the NIC take the work requests of the queue pair from a send ring in memory of the
// program. From then on the daemon refuses posts of sends.
func (q *qp) UseRing(init verbs.RingInit) error {
	return q.send.state("use ring", q.pd.ctx.session.call(proto.OpUseRing, proto.UseRing{H: q.h, Init: init}, nil))
}

// Doorbell tells the NIC that it may execute the ring's entries before index limit. It needs a
// request to the daemon.
func (q *qp) Doorbell(limit uint32) error {
	return q.send.state("ring doorbell", q.pd.ctx.session.call(proto.OpDoorbell, proto.Doorbell{H: q.h, Limit: limit}, nil))
}

func (c *cq) Number() uint32 { return c.id }

// IgnoreOverrun makes the NIC's queue lose completions that do not fit, without an error.
func (c *cq) IgnoreOverrun() error {
	return c.change("ignore overrun", proto.OpCountCQ, proto.Handle{H: c.h})
}
