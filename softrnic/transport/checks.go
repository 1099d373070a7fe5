package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// checkSequence: inside a message only its MIDDLE and LAST may follow, outside only FIRST and ONLY (IBTA 9.7.4.1/sequence).
func (q *QP) checkSequence(_ *wire.Packet, info *wire.OpInfo) verdict {
	if info.Flags&wire.OpRequest == 0 {
		return refuseOpcode // IBTA 9.7.4.1/reserved
	}
	inside := info.Flags&(wire.OpMiddle|wire.OpLast) != 0
	switch q.rsp.msg {
	case noMessage:
		if inside {
			return refuseSequence
		}
	case inSend:
		if !inside || info.Flags&wire.OpSend == 0 {
			return refuseSequence
		}
	case inWrite:
		if !inside || info.Flags&wire.OpWrite == 0 {
			return refuseSequence
		}
	}
	return pass
}

// operationRights are what a queue pair must allow its peer for an operation.
var operationRights = [...]struct {
	op   wire.OpFlags
	need verbs.Access
}{
	{wire.OpWrite, verbs.RemoteWrite},
	{wire.OpRead, verbs.RemoteRead},
	{wire.OpAtomic, verbs.RemoteAtomic},
}

// checkOperation: the queue pair must be set up for the operation (IBTA 9.7.4.1/enabled).
func (q *QP) checkOperation(_ *wire.Packet, info *wire.OpInfo) verdict {
	for _, r := range operationRights {
		if info.Flags&r.op != 0 && q.init.Access&r.need == 0 {
			return refuseOperation
		}
	}
	return pass
}

// checkResources: a READ or atomic needs a free responder resource, a SEND or immediate data a receive
// (IBTA 9.7.4.1/resources).
func (q *QP) checkResources(_ *wire.Packet, info *wire.OpInfo) verdict {
	switch {
	case info.Flags&(wire.OpRead|wire.OpAtomic) != 0:
		if q.owedFresh() >= q.rsp.maxRdAtomic {
			return refuseDepth
		}
	case info.Flags&wire.OpSend != 0 && info.Flags&(wire.OpFirst|wire.OpOnly) != 0,
		info.Flags&wire.OpWrite != 0 && info.Flags&wire.OpImm != 0:
		if !q.ready() {
			return refuseNotReady
		}
		q.rsp.recvHeld = true
	}
	return pass
}

// checkLength: FIRST and MIDDLE fill the path MTU, LAST is 1 to MTU bytes, ONLY 0 to MTU; a SEND fits its receive, a
// WRITE is as long as its RETH says (IBTA 9.7.4.1/length).
func (q *QP) checkLength(p *wire.Packet, info *wire.OpInfo) verdict {
	n := uint32(len(p.Payload))
	switch {
	case info.Flags&(wire.OpRead|wire.OpAtomic) != 0:
		if n != 0 || p.RETH.Length > MaxMsgSize {
			return refuseLength
		}
		return pass
	case info.Flags&(wire.OpFirst|wire.OpMiddle) != 0 && n != q.mtu,
		info.Flags&wire.OpLast != 0 && (n == 0 || n > q.mtu),
		n > q.mtu:
		return refuseLength
	case info.Flags&wire.OpWrite != 0:
		return q.checkWriteLength(p, info, n)
	}
	if info.Flags&(wire.OpFirst|wire.OpOnly) != 0 {
		q.rsp.received = 0
	}
	if uint64(q.rsp.received)+uint64(n) > q.rq.at(q.rq.head).length {
		return refuseTooLong
	}
	return pass
}

func (q *QP) checkWriteLength(p *wire.Packet, info *wire.OpInfo, n uint32) verdict {
	ok := false
	switch {
	case info.Flags&wire.OpOnly != 0:
		ok = p.RETH.Length == n
	case info.Flags&wire.OpFirst != 0:
		ok = p.RETH.Length > n && p.RETH.Length <= MaxMsgSize
	case info.Flags&wire.OpMiddle != 0:
		ok = q.rsp.left > n
	default:
		ok = q.rsp.left == n
	}
	if !ok {
		return refuseLength
	}
	return pass
}

// checkKey: R_Key, protection domain, access and bounds of the whole message at its first packet; none of that for
// a length of 0 (IBTA 9.7.4.1/key, C9-88).
func (q *QP) checkKey(p *wire.Packet, info *wire.OpInfo) verdict {
	ok := true
	switch {
	case info.Flags&wire.OpWrite != 0 && info.Flags&(wire.OpFirst|wire.OpOnly) != 0:
		_, ok = q.remote(p.RETH.RKey, p.RETH.VA, p.RETH.Length, verbs.RemoteWrite)
	case info.Flags&wire.OpRead != 0:
		_, ok = q.remote(p.RETH.RKey, p.RETH.VA, p.RETH.Length, verbs.RemoteRead)
	case info.Flags&wire.OpAtomic != 0:
		_, ok = q.remote(p.AtomicETH.RKey, p.AtomicETH.VA, atomicSize, verbs.RemoteAtomic)
		if ok && p.AtomicETH.VA%atomicSize != 0 {
			return refuseAlignment // IBTA 9.4.5/alignment
		}
	}
	if !ok {
		return refuseAccess
	}
	return pass
}

// execute does what the request asks.
func (q *QP) execute(p *wire.Packet, info *wire.OpInfo) verdict {
	switch {
	case info.Flags&wire.OpSend != 0:
		return q.executeSend(p, info)
	case info.Flags&wire.OpWrite != 0:
		return q.executeWrite(p, info)
	case info.Flags&wire.OpAtomic != 0:
		q.executeAtomic(p)
	default:
		q.env.Counters.RxReadRequests++
	}
	return pass
}

func (q *QP) executeSend(p *wire.Packet, info *wire.OpInfo) verdict {
	r := &q.rsp
	if q.scatter(q.recvPD, q.rq.sgl(q.rq.head), r.received, p.Payload) != mem.OK {
		return refuseLocal
	}
	r.received += uint32(len(p.Payload))
	r.msg = inSend
	if info.Flags&wire.OpInv != 0 && q.env.Mem.Invalidate(q.cfg.PD, q.cfg.QPN, p.IETH) != mem.OK {
		return refuseInvalidate
	}
	return pass
}

func (q *QP) executeWrite(p *wire.Packet, info *wire.OpInfo) verdict {
	r := &q.rsp
	if info.Flags&(wire.OpFirst|wire.OpOnly) != 0 {
		r.va, r.rkey, r.left = p.RETH.VA, p.RETH.RKey, p.RETH.Length
		r.received = p.RETH.Length
	}
	n := uint32(len(p.Payload))
	dst, ok := q.remote(r.rkey, r.va, n, verbs.RemoteWrite)
	if !ok {
		return refuseAccess // the region went away within the message
	}
	q.copyWrite(dst, p.Payload, info)
	r.va += uint64(n)
	r.left -= n
	r.msg = inWrite
	return pass
}

// executeAtomic does a CMP_SWAP or FETCH_ADD and keeps its result for duplicates. The oldest result is forgotten when
// there are as many as the peer may have atomics outstanding (IBTA 9.4.5/replay).
func (q *QP) executeAtomic(p *wire.Packet) {
	r := &q.rsp
	word, _ := q.remote(p.AtomicETH.RKey, p.AtomicETH.VA, atomicSize, verbs.RemoteAtomic) // was checked
	res := result{psn: p.BTH.PSN, op: p.BTH.Opcode, va: p.AtomicETH.VA}
	if p.BTH.Opcode == wire.RCCmpSwap {
		res.value = mem.CmpSwap(word, p.AtomicETH.Compare, p.AtomicETH.SwapOrAdd)
	} else {
		res.value = mem.FetchAdd(word, p.AtomicETH.SwapOrAdd)
	}
	if len(r.replay) >= r.maxRdAtomic {
		r.replay = r.replay[:copy(r.replay, r.replay[1:])]
	}
	r.replay = append(r.replay, res)
	q.env.Counters.RxAtomicRequests++
}
