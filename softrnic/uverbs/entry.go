package uverbs

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Sizes in bytes. They are the sizes of entries without their SGEs (rxe_send_wqe, rxe_recv_wqe), of
// an SGE, of a completion, of the word of an ATOMIC_WRITE, and of the slot of a completion.
const (
	sendLen = 208
	recvLen = 40
	sgeLen  = 16
	wcLen   = 48
	wordLen = 8
	WCSlot  = 64
)

// SendSlot returns the size of a send entry in bytes. It has room for the given number of SGEs, for
// the given number of inline bytes, or for the word of an ATOMIC_WRITE, whichever is largest.
func SendSlot(sges, inline int) int { return sendLen + max(sges*sgeLen, inline, wordLen) }

// RecvSlot returns the size of a receive entry with the given number of SGEs, in bytes.
func RecvSlot(sges int) int { return recvLen + sges*sgeLen }

// Offsets in a send entry.
const (
	sendID      = 0
	sendOp      = 12
	sendFlags   = 16
	sendImm     = 20 // immediate data, or the R_Key to invalidate
	sendRemote  = 24 // remote address; local address of a bind; queue pair of a datagram
	sendRKey    = 32 // R_Key of a WRITE, READ or ATOMIC_WRITE
	sendCompare = 32 // value to compare or add
	sendSwap    = 40
	sendAtomic  = 48  // R_Key of an atomic
	sendMasks   = 56  // masks of an atomic: of the comparison, or the highest bits of the fields to add to; of the swap
	sendSRQN    = 72  // of XRC: the shared receive queue of the peer
	sendQKey    = 28  // Q_Key of a datagram
	sendAH      = 36  // address handle of a datagram
	sendLength  = 184 // number of inline bytes, or of a FLUSH
	sendPieces  = 196 // number of SGEs
	// Offsets in the entry of a bind.
	sendBound   = 32 // length of the memory
	sendBindMR  = 40 // L_Key of the memory
	sendBindKey = 48 // the new R_Key
	sendRights  = 52 // access rights
	// Offsets in the entry of a FLUSH. Its length is in sendLength, where the kernel reads it; librxe leaves the field for it
	// in front of the key empty.
	sendFlushKey   = 36
	sendFlushType  = 40
	sendFlushLevel = 41
)

// recvPieces is the offset of the number of SGEs in a receive entry.
const recvPieces = 28

// Flags of a send entry (enum ibv_send_flags).
const (
	flagFence     = 1
	flagSignalled = 2
	flagSolicited = 4
	flagInline    = 8
)

// operations has the operation for each supported number of enum ibv_wr_opcode; see known.
var operations = [...]verbs.WROpcode{
	verbs.OpWrite, verbs.OpWriteImm, verbs.OpSend, verbs.OpSendImm, verbs.OpRead, verbs.OpCmpSwap, verbs.OpFetchAdd,
	verbs.OpLocalInv, verbs.OpBindMW, verbs.OpSendInv, flush: verbs.OpFlush, atomicWrite: verbs.OpAtomicWrite,
	maskedCmpSwap: verbs.OpMaskedCmpSwap, maskedFetchAdd: verbs.OpMaskedFetchAdd,
}

// flush is the number of FLUSH, which rdma-core has from version 46 on. atomicWrite is the number
// of ATOMIC_WRITE; its word is in the place of inline data.
const (
	flush       = 14
	atomicWrite = 15
	// The numbers of masked atomics are those of rdmalabdv.h, in folder provider; no driver has them.
	maskedCmpSwap  = 28
	maskedFetchAdd = 29
)

// known has the bit 1<<n set if number n of enum ibv_wr_opcode is supported.
const known = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<9 | 1<<flush | 1<<atomicWrite | 1<<maskedCmpSwap | 1<<maskedFetchAdd

// Send copies slot to scratch and decodes the send entry. SGEs go into sges; inline data stay in
// scratch. ah is the number of the address handle; it has no meaning for a connected queue pair. ok
// is false if the entry is malformed or its operation is not supported.
func Send(slot, scratch []byte, wr *verbs.SendWR, sges []verbs.SGE) (ah uint32, ok bool) {
	b := scratch[:copy(scratch, slot)]
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	if len(b) < sendLen {
		return 0, false
	}
	op, flags := u32(sendOp), u32(sendFlags)
	*wr = verbs.SendWR{ID: u64(sendID), RemoteSRQN: u32(sendSRQN)} // other services than XRC ignore the queue
	if op >= uint32(len(operations)) || known&(1<<op) == 0 {
		return 0, false
	}
	wr.Op = operations[op]
	for _, f := range [...]struct {
		theirs uint32
		ours   verbs.SendFlags
	}{{flagFence, verbs.Fence}, {flagSignalled, verbs.Signalled}, {flagSolicited, verbs.Solicited}, {flagInline, verbs.Inline}} {
		if flags&f.theirs != 0 {
			wr.Flags |= f.ours
		}
	}
	switch wr.Op {
	case verbs.OpCmpSwap, verbs.OpFetchAdd:
		wr.RemoteAddr, wr.CompareAdd, wr.Swap, wr.RKey = u64(sendRemote), u64(sendCompare), u64(sendSwap), u32(sendAtomic)
	case verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd:
		wr.RemoteAddr, wr.CompareAdd, wr.Swap, wr.RKey = u64(sendRemote), u64(sendCompare), u64(sendSwap), u32(sendAtomic)
		wr.CompareAddMask, wr.SwapMask = u64(sendMasks), u64(sendMasks+8)
	case verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead:
		wr.RemoteAddr, wr.RKey = u64(sendRemote), u32(sendRKey)
	case verbs.OpAtomicWrite:
		return word(b, wr)
	case verbs.OpFlush:
		wr.Flags &^= verbs.Inline
		wr.RemoteAddr, wr.RKey = u64(sendRemote), u32(sendFlushKey)
		types, level := b[sendFlushType], b[sendFlushLevel]
		wr.Flush = verbs.Flush{
			Length: u32(sendLength), Region: level == wire.FlushRegion,
			Global: types&wire.FlushGlobal != 0, Persistent: types&wire.FlushPersistent != 0,
		}
		return 0, level <= wire.FlushRegion && types&^(wire.FlushGlobal|wire.FlushPersistent) == 0
	case verbs.OpSendInv, verbs.OpLocalInv:
		wr.InvRKey = u32(sendImm)
	default: // only datagrams need an address handle
		wr.RemoteQPN, wr.RemoteQKey, ah = wire.QPN(u32(sendRemote)), u32(sendQKey), u32(sendAH)
	}
	if wr.Op == verbs.OpBindMW {
		return 0, bind(b, wr, sges)
	}
	if wr.Op == verbs.OpSendImm || wr.Op == verbs.OpWriteImm {
		wr.Imm = binary.BigEndian.Uint32(b[sendImm:])
	}
	if wr.Flags&verbs.Inline != 0 {
		n := u32(sendLength)
		if n > uint32(len(b)-sendLen) {
			return 0, false
		}
		wr.Data = b[sendLen : sendLen+n : sendLen+n]
		return ah, true
	}
	n, ok := pieces(b[sendLen:], u32(sendPieces), sges)
	wr.SGL = sges[:n]
	return ah, ok
}

// word decodes the address, the R_Key and the word of an ATOMIC_WRITE. The word is always inline,
// even without the flag for inline data.
func word(b []byte, wr *verbs.SendWR) (ah uint32, ok bool) {
	if len(b) < sendLen+wordLen {
		return 0, false
	}
	wr.Flags &^= verbs.Inline
	wr.RemoteAddr, wr.RKey = binary.NativeEndian.Uint64(b[sendRemote:]), binary.NativeEndian.Uint32(b[sendRKey:])
	wr.Swap = binary.NativeEndian.Uint64(b[sendLen:])
	return 0, true
}

// bind decodes the memory, the new R_Key and the rights of a bind. It ignores the right of local
// writes, which does not concern peers.
func bind(b []byte, wr *verbs.SendWR, sges []verbs.SGE) bool {
	length, rights := binary.NativeEndian.Uint64(b[sendBound:]), binary.NativeEndian.Uint32(b[sendRights:])
	access, others := AccessOf(rights)
	if others != 0 {
		access |= verbs.MWBind // no window can have this right, so the NIC refuses the bind, as it must for a right that it does not support
	}
	if length > math.MaxUint32 || len(sges) == 0 {
		return false
	}
	sges[0] = verbs.SGE{
		Addr: binary.NativeEndian.Uint64(b[sendRemote:]), Length: uint32(length), LKey: binary.NativeEndian.Uint32(b[sendBindMR:]),
	}
	wr.SGL, wr.RKey = sges[:1], binary.NativeEndian.Uint32(b[sendBindKey:])
	wr.BindAccess = access &^ verbs.LocalWrite
	return true
}

// Recv copies slot to scratch and decodes the receive. Its SGEs, nsge in number, go into sges. ok
// is false if the entry is malformed.
func Recv(slot, scratch []byte, sges []verbs.SGE) (id uint64, nsge int, ok bool) {
	b := scratch[:copy(scratch, slot)]
	if len(b) < recvLen {
		return 0, 0, false
	}
	nsge, ok = pieces(b[recvLen:], binary.NativeEndian.Uint32(b[recvPieces:]), sges)
	return binary.NativeEndian.Uint64(b), nsge, ok
}

// pieces decodes n SGEs from b into sges and returns n. It returns 0 and false if b has fewer SGEs,
// or if sges has room for fewer.
func pieces(b []byte, n uint32, sges []verbs.SGE) (int, bool) {
	if n > uint32(len(sges)) || n > uint32(len(b)/sgeLen) {
		return 0, false
	}
	for i := range sges[:n] {
		s := b[i*sgeLen:]
		sges[i] = verbs.SGE{
			Addr: binary.NativeEndian.Uint64(s), Length: binary.NativeEndian.Uint32(s[8:]), LKey: binary.NativeEndian.Uint32(s[12:]),
		}
	}
	return int(n), true
}

// completions are the opcodes of completions (enum ibv_wc_opcode), indexed by verbs.WCOpcode.
var completions = [...]uint32{
	verbs.WCSend: 0, verbs.WCWrite: 1, verbs.WCRead: 2, verbs.WCCmpSwap: 3, verbs.WCFetchAdd: 4, verbs.WCBindMW: 5,
	verbs.WCLocalInv: 6, verbs.WCRegMR: 6, verbs.WCMaskedCmpSwap: 3, verbs.WCMaskedFetchAdd: 4, verbs.WCFlush: 8, verbs.WCAtomicWrite: 9, verbs.WCRecv: 128, verbs.WCRecvWriteImm: 129,
	verbs.WCNop: 0,
}

// Flags of a completion (enum ibv_wc_flags).
const (
	wcGRH = 1
	wcImm = 2
	wcInv = 8
)

// The service level in the completion of a datagram, at offset wcSL, says which IP header the
// datagram had: IPv6 or IPv4. Programs expect this of RoCE NICs.
const (
	wcSL       = 44
	headerIPv6 = 1
	headerIPv4 = 2
)

// PutWC writes a completion to its slot.
func PutWC(slot []byte, wc *verbs.WC) {
	var b [wcLen]byte
	u32 := func(at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }
	binary.NativeEndian.PutUint64(b[:], wc.ID)
	u32(8, uint32(wc.Status))
	u32(12, completions[wc.Opcode])
	u32(16, wc.VendorErr)
	u32(20, wc.ByteLen)
	flags := uint32(0)
	if wc.Flags&verbs.WithImm != 0 {
		binary.BigEndian.PutUint32(b[24:], wc.Imm)
		flags |= wcImm
	}
	if wc.Flags&verbs.WithInv != 0 {
		u32(24, wc.InvRKey)
		flags |= wcInv
	}
	if wc.Flags&verbs.WithGRH != 0 {
		flags |= wcGRH
		b[wcSL] = headerIPv6
		if wc.Flags&verbs.OverIPv4 != 0 {
			b[wcSL] = headerIPv4
		}
	}
	u32(wcQPN, uint32(wc.QPN))
	u32(32, uint32(wc.SrcQPN))
	u32(36, flags)
	b[46] = 1 // the number of the NIC's only port
	copy(slot, b[:])
}

// wcQPN is the offset of the queue pair's number in the slot of a completion.
const wcQPN = 28

// WithdrawWC withdraws the completion in a slot if it is of queue pair n: its number becomes 0, over which
// this project's provider passes. The program may poll it at the same time; then it has the whole completion.
func WithdrawWC(slot []byte, n uint32) {
	if at := (*atomic.Uint32)(unsafe.Pointer(&slot[wcQPN:wcLen][0])); at.Load() == n {
		at.Store(0)
	}
}

// Withdrawn reports whether the completion in a slot was withdrawn.
func Withdrawn(slot []byte) bool {
	return (*atomic.Uint32)(unsafe.Pointer(&slot[wcQPN:wcLen][0])).Load() == 0
}

// stampAt is the offset of a timestamp in the slot of a completion, where the rxe driver has nothing.
const stampAt = wcLen

// PutTimestamp writes the timestamp of a completion to its slot: nanoseconds of the machine's
// monotonic clock. It must be written before the completion is made visible.
func PutTimestamp(slot []byte, nanoseconds uint64) {
	binary.NativeEndian.PutUint64(slot[stampAt:], nanoseconds)
}
