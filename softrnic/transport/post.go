package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// atomicSize is the length of an atomic's operand in bytes.
const atomicSize = 8

// sendOp has the properties of an operation that the requester needs.
type sendOp struct {
	wc verbs.WCOpcode
	// inline: the flag Inline is allowed. data: the operation moves a message of any length. solicit:
	// the flag Solicited has an effect. local: the operation sends no packet.
	inline, data, solicit, local bool
}

// sendOps is indexed by verbs.WROpcode.
var sendOps = [...]sendOp{
	verbs.OpSend:     {wc: verbs.WCSend, inline: true, data: true, solicit: true},
	verbs.OpSendImm:  {wc: verbs.WCSend, inline: true, data: true, solicit: true},
	verbs.OpSendInv:  {wc: verbs.WCSend, inline: true, data: true, solicit: true},
	verbs.OpWrite:    {wc: verbs.WCWrite, inline: true, data: true},
	verbs.OpWriteImm: {wc: verbs.WCWrite, inline: true, data: true, solicit: true},
	verbs.OpRead:     {wc: verbs.WCRead, data: true},
	verbs.OpCmpSwap:  {wc: verbs.WCCmpSwap},
	verbs.OpFetchAdd: {wc: verbs.WCFetchAdd},
	verbs.OpLocalInv: {wc: verbs.WCLocalInv, local: true},
	verbs.OpBindMW:   {wc: verbs.WCBindMW, local: true},
	verbs.OpRegMR:    {wc: verbs.WCRegMR, local: true},

	verbs.OpMaskedCmpSwap:  {wc: verbs.WCMaskedCmpSwap},
	verbs.OpMaskedFetchAdd: {wc: verbs.WCMaskedFetchAdd},

	verbs.OpAtomicWrite: {wc: verbs.WCAtomicWrite},
	verbs.OpFlush:       {wc: verbs.WCFlush},
}

// PostSend queues a work request and sends what may be sent. The request and its SGL are copied;
// the memory that the SGL names is not, unless the request is inline. Errors: ErrState before RTS,
// ErrNoSpace when MaxSendWR work requests are not complete, ErrInvalid for a malformed request. In
// the states ERROR and SQE the request is accepted and flushed at once (IBTA 10.3.1/post).
func (q *QP) PostSend(now clock.Time, wr *verbs.SendWR, out *Actions) error {
	q.core.lastNow = now
	switch q.core.state {
	case verbs.StateRTS, verbs.StateSQD, verbs.StateSQE, verbs.StateError:
	default:
		q.core.sawPost(wr.Op, verbs.ErrState)
		return verbs.Errorf("post send", verbs.ErrState, "the state is %v; bring the queue pair to RTS first", q.core.state)
	}
	if q.req.sender.sq.len() >= q.req.sender.sq.limit {
		q.core.sawPost(wr.Op, verbs.ErrNoSpace)
		return verbs.Errorf("post send", verbs.ErrNoSpace, "%d work requests are not complete; poll the send CQ", q.req.sender.sq.len())
	}
	length, err := q.req.cfg.CheckSend(wr)
	q.core.sawPost(wr.Op, err)
	if err != nil {
		return err
	}
	q.req.sender.enqueue(wr, length)
	if q.core.state == verbs.StateError || q.core.state == verbs.StateSQE {
		q.req.sender.completeSend(q.req.sender.sq.at(q.req.sender.sq.head), verbs.WRFlushErr, q.core.flushed, out)
		return nil
	}
	q.send(now, out)
	return nil
}

// Local reports whether the operation sends no packet. An unknown operation is not local.
func Local(op verbs.WROpcode) bool { return int(op) < len(sendOps) && sendOps[op].local }

// CheckSend checks those parts of a work request that depend neither on memory nor on the state of
// the queue pair, and returns the length of the message in bytes. Of c it reads only Type, MaxSGE
// and MaxInline, in which the defaults must be filled in. It fails with ErrInvalid for a malformed
// request, as PostSend does.
func (c *Config) CheckSend(wr *verbs.SendWR) (uint32, error) {
	const op = "post send"
	svc := services[c.Type]
	if int(wr.Op) >= len(sendOps) {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "unknown operation %v", wr.Op)
	}
	if svc.ops&(1<<wr.Op) == 0 {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "%v is no operation of %v", wr.Op, c.Type)
	}
	if svc.datagram {
		if err := checkDatagram(wr); err != nil {
			return 0, err
		}
	}
	if svc.requests && wr.RemoteSRQN > wire.MaxSRQN {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "remote SRQ number %#x has more than 24 bits", wr.RemoteSRQN)
	}
	kind := &sendOps[wr.Op]
	if wr.Flags&verbs.Inline != 0 {
		switch {
		case !kind.inline:
			return 0, verbs.Errorf(op, verbs.ErrInvalid, "%v cannot be inline", wr.Op)
		case len(wr.SGL) > 0:
			return 0, verbs.Errorf(op, verbs.ErrInvalid, "inline takes Data, not SGL")
		case len(wr.Data) > c.MaxInline:
			return 0, verbs.Errorf(op, verbs.ErrInvalid, "%d bytes inline; MaxInline is %d", len(wr.Data), c.MaxInline)
		}
		return uint32(len(wr.Data)), nil
	}
	length, err := sglLength(op, wr.SGL, c.MaxSGE)
	switch {
	case err != nil:
		return 0, err
	case kind.data:
		return uint32(length), nil
	case kind.local:
		return 0, checkLocal(wr)
	case (wr.Op == verbs.OpAtomicWrite || wr.Op == verbs.OpFlush) && len(wr.SGL) > 0:
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "%v takes no SGL", wr.Op)
	case wr.Op == verbs.OpFlush:
		return 0, checkFlush(&wr.Flush)
	case wr.Op == verbs.OpAtomicWrite:
		length = atomicSize
	case length != atomicSize:
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "%v needs an SGL of 8 bytes for the original value; it has %d", wr.Op, length)
	}
	if wr.RemoteAddr%atomicSize != 0 {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "%v at %#x, which is not a multiple of 8", wr.Op, wr.RemoteAddr)
	}
	return uint32(length), nil
}

func checkFlush(f *verbs.Flush) error {
	const op = "post send"
	switch {
	case !f.Global && !f.Persistent:
		return verbs.Errorf(op, verbs.ErrInvalid, "a FLUSH that is neither global nor persistent")
	case f.Length > MaxMessage && !f.Region:
		return verbs.Errorf(op, verbs.ErrInvalid, "a FLUSH of %d bytes; at most %d", f.Length, MaxMessage)
	}
	return nil
}

// sglLength returns the sum of the lengths of an SGL. It checks the number of SGEs and the sum.
func sglLength(op string, sgl []verbs.SGE, maxSGE int) (uint64, error) {
	if len(sgl) > maxSGE {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "%d SGEs; MaxSGE is %d", len(sgl), maxSGE)
	}
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	if n > MaxMessage {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "%d bytes; a message has at most %d", n, MaxMessage)
	}
	return n, nil
}

// enqueue puts a valid work request at the tail of the send queue.
func (s *sender) enqueue(wr *verbs.SendWR, length uint32) {
	pos := s.sq.tail
	w := s.sq.at(pos)
	*w = sendWQE{} // not a composite literal with the fields, which would be slow; see grown
	w.id, w.op, w.flags, w.length, w.posted = wr.ID, wr.Op, wr.Flags, length, s.lastNow
	w.imm, w.invRKey, w.rkey, w.remote = wr.Imm, wr.InvRKey, wr.RKey, wr.RemoteAddr
	w.compareAdd, w.swap, w.access, w.flush = wr.CompareAdd, wr.Swap, wr.BindAccess, wr.Flush
	w.srqn = wr.RemoteSRQN
	w.masks = wire.AtomicMasks{Swap: wr.SwapMask, CompareOrBoundary: wr.CompareAddMask}
	if s.cfg.SignalAll {
		w.flags |= verbs.Signalled
	}
	if s.svc.datagram {
		w.to = datagramPeer{ah: wr.AH.Handle(), qpn: wr.RemoteQPN, qkey: wr.RemoteQKey}
	}
	if wr.Flags&verbs.Inline != 0 {
		copy(s.sq.data(pos), wr.Data)
	} else {
		w.nsge = len(wr.SGL)
		copy(s.sq.sgl(pos), wr.SGL)
	}
	s.sq.tail++
}

// PostRecv queues a receive. Errors: ErrState in RESET, ErrNoSpace when MaxRecvWR receives are
// queued, ErrInvalid for a malformed request. In the error state the receive is flushed by the next
// Tick, which is due at once.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	const op = "post recv"
	if q.core.state == verbs.StateReset {
		return verbs.Errorf(op, verbs.ErrState, "the state is %v; bring the queue pair to INIT first", q.core.state)
	}
	if q.core.svc.opcodes == wire.ServiceXRC {
		return verbs.Errorf(op, verbs.ErrInvalid, "a queue pair of XRC has no receive queue; post to an XRC shared receive queue")
	}
	if q.core.cfg.SRQ != nil {
		return verbs.Errorf(op, verbs.ErrInvalid, "the queue pair takes its receives from a shared receive queue; post to that")
	}
	if err := q.rcv.rq.post(op, wr); err != nil {
		return err
	}
	if q.core.state == verbs.StateError {
		q.rcv.flushAt = q.core.lastNow
	}
	return nil
}
