package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
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

	state verbs.QPState
	init  verbs.ToInit
	rtr   verbs.ToRTR
	rts   verbs.ToRTS
	mtu   uint32 // path MTU in bytes; for UD the MTU of the port
	// guests is the protection domain of the memory that requests of the peer may access: that of the
	// queue pair or, for a target of XRC, that of the shared receive queue which the present request
	// names.
	guests mem.PD
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

// remote returns n bytes at va of the region that a request names. It returns false if rkey does
// not grant the peer the rights `need` for all these bytes.
func (c *core) remote(rkey uint32, va uint64, n uint32, need verbs.Access) (mem.Piece, bool) {
	return c.remoteIn(c.guests, rkey, va, n, need)
}

// remoteIn is remote in protection domain pd.
func (c *core) remoteIn(pd mem.PD, rkey uint32, va uint64, n uint32, need verbs.Access) (mem.Piece, bool) {
	b, fault := c.env.Mem.Remote(pd, c.cfg.QPN, rkey, va, n, need)
	return b, fault == mem.OK
}

// gather fills dst with the bytes of the SGL from offset `off` on. Every SGE is checked again,
// because its region may have been deregistered before a retransmission.
func (c *core) gather(dst []byte, sgl []verbs.SGE, off uint32) mem.Fault {
	for i := range sgl {
		s := &sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(len(dst), int(s.Length-off))
		if n == 0 {
			break
		}
		if fault := c.env.Mem.Read(c.cfg.PD, s, off, dst[:n]); fault != mem.OK {
			return fault
		}
		dst, off = dst[n:], 0
	}
	return mem.OK
}

// scatter writes src into the SGL, from offset `off` on. The memory must be in protection domain
// pd. The caller has checked that src fits.
func (c *core) scatter(pd mem.PD, sgl []verbs.SGE, off uint32, src []byte) mem.Fault {
	for i := range sgl {
		s := &sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(len(src), int(s.Length-off))
		if n == 0 {
			break
		}
		if fault := c.env.Mem.Write(pd, s, off, src[:n]); fault != mem.OK {
			return fault
		}
		src, off = src[n:], 0
	}
	return mem.OK
}

// checkSGL returns the first fault of an SGE, for example a wrong L_Key or a range outside of the
// region. With write, each region must also allow local writes. It is called before the first
// packet of a message leaves.
func (c *core) checkSGL(sgl []verbs.SGE, write bool) mem.Fault {
	for i := range sgl {
		if _, fault := c.env.Mem.Local(c.cfg.PD, sgl[i], write); fault != mem.OK {
			return fault
		}
	}
	return mem.OK
}
