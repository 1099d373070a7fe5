package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// core has the fields that all parts of a queue pair share (see the package comment): the NIC's
// memory and counters, the attributes from its creation and its transitions, and the state. Each
// part holds a pointer to it.
type core struct {
	env Env
	cfg Config
	svc *service
	// qp is the queue pair to which the parts belong: an error in one part ends the whole queue pair.
	qp *QP
	// sent and received add the completions of sends and of receives to the two completion queues.
	sent, received *cq.Source

	state  verbs.QPState
	init   verbs.ToInit
	rtr    verbs.ToRTR
	rts    verbs.ToRTS
	mtu    uint32 // path MTU in bytes; for UD the MTU of the port
	access memoryAccess
	// anyQKey: the queue pair may have a controlled Q_Key; see AllowControlledQKey.
	anyQKey bool
	// scratch is a buffer for bytes that scatter copies into a receive or an SGL: the word of an
	// atomic, or the 40 bytes in front of a datagram's payload. It is a field, because a local
	// variable would be allocated on the heap.
	scratch [verbs.GRHLen]byte
	// lastNow is the time that was passed to the last method with a time parameter. Methods without
	// this parameter use it.
	lastNow clock.Time
	// notes has what went wrong lately. flushed is why the queue pair is in ERROR.
	notes   reason.Notes
	flushed reason.Code
}

func (c *core) raise(kind verbs.AsyncKind, out *Actions) {
	c.env.Counters.AsyncEvents++
	out.Async = append(out.Async, verbs.AsyncEvent{Kind: kind, QPN: c.cfg.QPN})
}

// newPacket appends a packet to out.Tx that is empty except for its destination, the peer. The
// engine later replaces its P_Key by that of the queue pair.
func (c *core) newPacket(out *Actions) *wire.Packet {
	tx := grown(&out.Tx)
	p := &tx.Packet
	p.BTH.PKey, p.BTH.DestQP = wire.DefaultPKey, c.rtr.DestQPN
	return p
}
