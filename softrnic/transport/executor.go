package transport

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// message is the kind of the multi-packet message of which a responder has received the first
// packets, but not the last one.
type message uint8

const (
	noMessage message = iota
	inSend
	inWrite
)

// executor checks and executes requests packet by packet, for reliable and unreliable connections.
type executor struct {
	*core
	rcv     *receiver
	answers *answers

	// msg is the message in progress. received is the number of bytes of a SEND that have arrived,
	// or the length of a WRITE; va, rkey and left name the bytes of a WRITE that have not arrived.
	msg      message
	received uint32
	va       uint64
	rkey     uint32
	left     uint32
	// replay holds the results of the last atomics, ATOMIC_WRITEs and FLUSHes, for answers to
	// duplicates.
	replay results
}

// reset forgets the message in progress and the stored results.
func (x *executor) reset() {
	*x = executor{core: x.core, rcv: x.rcv, answers: x.answers, replay: results{all: x.replay.all[:0]}}
}

// run makes the checks of a request until one of them refuses it, and then executes it. The order
// decides which NAK the peer gets (IBTA 9.7.4.1/order). The checks are called directly, because
// calls through a table of functions would add 5 % to the processing time of a message.
func (x *executor) run(p *wire.Packet, info *wire.OpInfo) verdict {
	v := x.checkSequence(p, info)
	if v == pass && x.cfg.XRC != nil {
		v = x.checkSRQ(p)
	}
	if v == pass {
		v = x.checkOperation(p, info)
	}
	if v == pass {
		v = x.checkResources(p, info)
	}
	if v == pass {
		v = x.checkLength(p, info)
	}
	if v == pass {
		v = x.checkKey(p, info)
	}
	if v == pass {
		v = x.execute(p, info)
	}
	x.sawVerdict(p.BTH.Opcode, v)
	return v
}

// checkSequence refuses a reserved opcode, and a packet that cannot come at this point: within a
// message only MIDDLE and LAST of this message are allowed, outside of a message only FIRST and
// ONLY (IBTA 9.7.4.1/sequence).
func (x *executor) checkSequence(_ *wire.Packet, info *wire.OpInfo) verdict {
	if info.Flags&wire.OpRequest == 0 {
		return refuseOpcode // IBTA 9.7.4.1/reserved
	}
	inside := info.Flags&(wire.OpMiddle|wire.OpLast) != 0
	switch x.msg {
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

// operationRights returns the rights that a queue pair must grant its peer for a request. ok is
// false for operands that are reserved.
func operationRights(p *wire.Packet, info *wire.OpInfo) (need verbs.Access, ok bool) {
	switch {
	case info.Flags&wire.OpWrite != 0, p.BTH.Opcode == wire.RCAtomicWrite:
		return verbs.RemoteWrite, true
	case info.Flags&wire.OpRead != 0:
		return verbs.RemoteRead, true
	case info.Flags&wire.OpAtomic != 0:
		return verbs.RemoteAtomic, true
	case info.Flags&wire.OpFlush != 0:
		return flushRights(&p.FETH)
	}
	return 0, true
}

// flushRights returns the rights that a FLUSH needs. ok is false for a placement type or level that
// is reserved.
func flushRights(h *wire.FETH) (need verbs.Access, ok bool) {
	if h.Placement&wire.FlushGlobal != 0 {
		need = verbs.FlushGlobal
	}
	if h.Placement&wire.FlushPersistent != 0 {
		need |= verbs.FlushPersistent
	}
	return need, need != 0 && h.Placement&^(wire.FlushGlobal|wire.FlushPersistent) == 0 && h.Level <= wire.FlushRegion
}

// checkOperation refuses an operation for which the queue pair does not grant its peer the rights
// (IBTA 9.7.4.1/enabled).
func (x *executor) checkOperation(p *wire.Packet, info *wire.OpInfo) verdict {
	if need, ok := operationRights(p, info); !ok || x.init.Access&need != need {
		return refuseOperation
	}
	return pass
}

// checkResources refuses a READ, atomic or FLUSH if no responder resource is free. It refuses the
// first packet of a SEND, and the last packet of a WRITE with immediate data, if there is no
// receive (IBTA 9.7.4.1/resources).
func (x *executor) checkResources(_ *wire.Packet, info *wire.OpInfo) verdict {
	switch {
	case info.Flags&wire.OpAnswered != 0:
		if x.answers.fresh() >= x.answers.maxRdAtomic {
			return refuseDepth
		}
	case info.Flags&wire.OpSend != 0 && info.Flags&(wire.OpFirst|wire.OpOnly) != 0,
		info.Flags&wire.OpWrite != 0 && info.Flags&wire.OpImm != 0:
		if !x.rcv.ready() {
			return refuseNotReady
		}
		x.rcv.held = true
	}
	return pass
}

// checkLength refuses a packet of a wrong length (IBTA 9.7.4.1/length). The payload of FIRST and
// MIDDLE must fill the path MTU, that of LAST must have 1 to MTU bytes, and that of ONLY 0 to MTU.
// A SEND must fit into its receive, a WRITE must be as long as its RETH says, and an ATOMIC_WRITE
// must have 8 bytes.
func (x *executor) checkLength(p *wire.Packet, info *wire.OpInfo) verdict {
	n := uint32(len(p.Payload))
	switch {
	case p.BTH.Opcode == wire.RCAtomicWrite:
		if n != atomicSize || p.RETH.Length != n {
			return refuseLength
		}
		return pass
	case info.Flags&wire.OpAnswered != 0:
		if n != 0 || p.RETH.Length > MaxMessage && p.FETH.Level != wire.FlushRegion {
			return refuseLength
		}
		return pass
	case info.Flags&(wire.OpFirst|wire.OpMiddle) != 0 && n != x.mtu,
		info.Flags&wire.OpLast != 0 && (n == 0 || n > x.mtu),
		n > x.mtu:
		return refuseLength
	case info.Flags&wire.OpWrite != 0:
		return x.checkWriteLength(p, info, n)
	}
	if info.Flags&(wire.OpFirst|wire.OpOnly) != 0 {
		x.received = 0
	}
	if uint64(x.received)+uint64(n) > x.rcv.oldest().length {
		return refuseTooLong
	}
	return pass
}

// checkWriteLength compares n, the payload of a WRITE packet in bytes, with the length in the RETH
// or with the rest of the message.
func (x *executor) checkWriteLength(p *wire.Packet, info *wire.OpInfo, n uint32) verdict {
	ok := false
	switch {
	case info.Flags&wire.OpOnly != 0:
		ok = p.RETH.Length == n
	case info.Flags&wire.OpFirst != 0:
		ok = p.RETH.Length > n && p.RETH.Length <= MaxMessage
	case info.Flags&wire.OpMiddle != 0:
		ok = x.left > n
	default:
		ok = x.left == n
	}
	if !ok {
		return refuseLength
	}
	return pass
}

// checkKey checks R_Key, protection domain, access rights and bounds at the first packet of a
// message, for the whole message. A message of length 0 is not checked (IBTA 9.7.4.1/key, C9-88).
func (x *executor) checkKey(p *wire.Packet, info *wire.OpInfo) verdict {
	ok := true
	switch {
	case info.Flags&wire.OpWrite != 0 && info.Flags&(wire.OpFirst|wire.OpOnly) != 0:
		_, ok = x.access.remote(p.RETH.RKey, p.RETH.VA, p.RETH.Length, verbs.RemoteWrite)
	case info.Flags&wire.OpRead != 0:
		_, ok = x.access.remote(p.RETH.RKey, p.RETH.VA, p.RETH.Length, verbs.RemoteRead)
	case info.Flags&wire.OpFlush != 0:
		ok = x.mayFlush(p)
	case info.Flags&wire.OpAtomic != 0:
		va, rkey, right := wordOf(p)
		_, ok = x.access.remote(rkey, va, atomicSize, right)
		if ok && va%atomicSize != 0 {
			return refuseAlignment // IBTA 9.4.5/alignment
		}
	}
	if !ok {
		return refuseAccess
	}
	return pass
}

// mayFlush checks the key of a FLUSH. The key must grant each placement type that the FLUSH
// requests (oA19-13).
func (x *executor) mayFlush(p *wire.Packet) bool {
	need, _ := flushRights(&p.FETH)
	if p.FETH.Level == wire.FlushRegion {
		return x.env.Mem.Whole(x.access.guests, x.cfg.QPN, p.RETH.RKey, need) == mem.OK
	}
	_, ok := x.access.remote(p.RETH.RKey, p.RETH.VA, p.RETH.Length, need)
	return ok
}

// execute executes a request that has passed all checks.
func (x *executor) execute(p *wire.Packet, info *wire.OpInfo) verdict {
	switch {
	case info.Flags&wire.OpSend != 0:
		return x.executeSend(p, info)
	case info.Flags&wire.OpWrite != 0:
		return x.executeWrite(p, info)
	case info.Flags&wire.OpAtomic != 0:
		return x.executeAtomic(p)
	case info.Flags&wire.OpFlush != 0:
		// The data of this connection are already in memory: a torn WRITE was completed when the FLUSH
		// arrived, and other copies are made at once. A duplicate FLUSH is only answered again (oA19-14).
		x.keep(result{psn: p.BTH.PSN, op: p.BTH.Opcode, va: p.RETH.VA})
		x.env.Counters.RxFlushRequests++
	default:
		x.env.Counters.RxReadRequests++
	}
	return pass
}

func (x *executor) executeSend(p *wire.Packet, info *wire.OpInfo) verdict {
	if x.access.scatter(x.rcv.pd, x.rcv.sgl(), x.received, p.Payload) != mem.OK {
		return refuseLocal
	}
	x.received += uint32(len(p.Payload))
	x.msg = inSend
	if info.Flags&wire.OpInv != 0 && x.env.Mem.Invalidate(x.access.guests, x.cfg.QPN, p.IETH, true) != mem.OK {
		return refuseInvalidate
	}
	return pass
}

func (x *executor) executeWrite(p *wire.Packet, info *wire.OpInfo) verdict {
	if info.Flags&(wire.OpFirst|wire.OpOnly) != 0 {
		x.va, x.rkey, x.left = p.RETH.VA, p.RETH.RKey, p.RETH.Length
		x.received = p.RETH.Length
	}
	n := uint32(len(p.Payload))
	dst, ok := x.access.remote(x.rkey, x.va, n, verbs.RemoteWrite)
	if !ok {
		return refuseAccess // the region was deregistered during the message
	}
	paused, ok := x.answers.torn.copyWrite(dst, p.Payload, x.va, x.rkey, info)
	if !ok {
		return refuseAccess
	}
	if paused {
		x.answers.at = x.answers.torn.until
	}
	x.va += uint64(n)
	x.left -= n
	x.msg = inWrite
	return pass
}

// wordOf returns the word that an atomic or an ATOMIC_WRITE names, and the right that it needs.
func wordOf(p *wire.Packet) (va uint64, rkey uint32, right verbs.Access) {
	if p.BTH.Opcode == wire.RCAtomicWrite {
		return p.RETH.VA, p.RETH.RKey, verbs.RemoteWrite
	}
	return p.AtomicETH.VA, p.AtomicETH.RKey, verbs.RemoteAtomic
}

// executeAtomic executes an atomic or ATOMIC_WRITE and stores its result for duplicates. An
// ATOMIC_WRITE must not be executed twice either, because the second execution would undo later
// writes.
func (x *executor) executeAtomic(p *wire.Packet) verdict {
	va, rkey, right := wordOf(p)
	word, _ := x.access.remote(rkey, va, atomicSize, right) // checkKey has checked it
	res := result{psn: p.BTH.PSN, op: p.BTH.Opcode, va: va}
	ok := false
	switch a, m := &p.AtomicETH, &p.Masks; p.BTH.Opcode.Plain() {
	case wire.RCCmpSwap:
		res.value, ok = word.CmpSwap(a.Compare, a.SwapOrAdd)
	case wire.RCFetchAdd:
		res.value, ok = word.FetchAdd(a.SwapOrAdd)
	case wire.RCAtomicWrite:
		ok = word.Store64(binary.NativeEndian.Uint64(p.Payload))
	case wire.RCMaskedCmpSwap:
		res.value, ok = word.MaskedCmpSwap(a.Compare, m.CompareOrBoundary, a.SwapOrAdd, m.Swap)
	default: // RCMaskedFetchAdd
		res.value, ok = word.MaskedFetchAdd(a.SwapOrAdd, m.CompareOrBoundary)
	}
	if !ok {
		return refuseAccess
	}
	x.keep(res)
	x.env.Counters.RxAtomicRequests++
	return pass
}

func (x *executor) keep(res result) { x.replay.add(res, x.answers.maxRdAtomic) }

// completeMessage is called for the last packet of a SEND or WRITE. It completes the receive that
// the message used, if any.
func (x *executor) completeMessage(p *wire.Packet, info *wire.OpInfo, out *Actions) {
	write := info.Flags&wire.OpWrite != 0
	x.msg = noMessage
	if write {
		x.env.Counters.RxWriteRequests++
	}
	if !x.rcv.held {
		return
	}
	wc := x.rcv.complete(verbs.Success, reason.None, out)
	wc.Opcode, wc.ByteLen, wc.Solicited = verbs.WCRecv, x.received, p.BTH.Solicited
	if write {
		wc.Opcode = verbs.WCRecvWriteImm
	}
	if info.Flags&wire.OpImm != 0 {
		wc.Flags, wc.Imm = verbs.WithImm, p.ImmDt
	}
	if info.Flags&wire.OpInv != 0 {
		wc.Flags, wc.InvRKey = verbs.WithInv, p.IETH
	}
}
