package verbs

import "github.com/rdmalab/rdmalab/softrnic/wire"

// WROpcode is the operation of a send work request.
type WROpcode uint8

// Operations of the send queue.
const (
	OpSend WROpcode = iota
	OpSendImm
	OpSendInv
	OpWrite
	OpWriteImm
	OpRead
	OpCmpSwap
	OpFetchAdd
	OpLocalInv
	// OpBindMW binds a memory window: see MW.
	OpBindMW
	// OpRegMR registers memory for fast registration (REG_MR): the SGL is one piece of it, by
	// MR.SGE; RKey is its R_Key with any low byte, which becomes that of its L_Key, too (see
	// LKeyWith); BindAccess are the rights, LocalWrite and MWBind among them. Peers and work
	// requests name the piece by those keys and by addresses of the region, until OpLocalInv or a
	// peer's OpSendInv with the R_Key; only then can it be registered again. A registration that
	// does not work completes with MWBindErr. As with OpBindMW, work requests before and behind it
	// do not overlap with it.
	OpRegMR
	// OpMaskedCmpSwap is OpCmpSwap that compares the bits of CompareAddMask only, and swaps those of
	// SwapMask only. OpMaskedFetchAdd is OpFetchAdd on fields of the word: no carry leaves a bit of
	// CompareAddMask, which has the highest bit of each field. Both are manufacturers' operations,
	// which only this NIC's own kind understands on the wire.
	OpMaskedCmpSwap
	OpMaskedFetchAdd
	// OpAtomicWrite writes Swap to the aligned word at RemoteAddr, never a part of it, under a key
	// with RemoteWrite. It takes neither SGL nor Inline. Like a READ it has an answer of its own,
	// and counts to the depth of READs and atomics; executed once, a duplicate of it never undoes a
	// later write.
	OpAtomicWrite
)

// SendFlags modify a send work request.
type SendFlags uint8

// Flags of a send work request.
const (
	// Signalled asks for a completion (always given on error).
	Signalled SendFlags = 1 << iota
	// Solicited sets the solicited event bit at the receiver.
	Solicited
	// Fence waits for all earlier READs and atomics of this queue pair to complete.
	Fence
	// Inline copies the data at the post: the buffer is free again at once, and Data is sent
	// instead of SGL.
	Inline
)

// SendWR is a send work request.
type SendWR struct {
	ID    uint64
	Op    WROpcode
	Flags SendFlags
	// SGL is the local memory: source of SEND and WRITE, target of READ and atomics (8 bytes); none
	// of OpAtomicWrite.
	// The slice is copied by the post, the memory is not.
	SGL []SGE
	// Data is the payload when Flags has Inline.
	Data []byte
	// Imm is the immediate data.
	Imm uint32
	// InvRKey is the R_Key of a fast registration or a bound window: of the peer's, which OpSendInv
	// invalidates, or of this host's, which OpLocalInv does. Regions of RegMR are not invalidated
	// by work requests, only by Dereg.
	InvRKey uint32
	// RemoteAddr and RKey name the peer's memory for WRITE, READ, atomics and OpAtomicWrite.
	RemoteAddr uint64
	RKey       uint32
	// BindAccess has the rights of the peer to the window that OpBindMW binds: RemoteRead,
	// RemoteWrite, RemoteAtomic; or the rights of OpRegMR.
	BindAccess Access
	// CompareAdd is the compare value of OpCmpSwap or the addend of OpFetchAdd; Swap is the swap
	// value, or what OpAtomicWrite writes, in host order.
	CompareAdd, Swap uint64
	// CompareAddMask and SwapMask are those of masked atomics; others ignore them.
	CompareAddMask, SwapMask uint64
	// AH, RemoteQPN and RemoteQKey say where a datagram goes. If the Q_Key has its highest bit set,
	// the datagram carries the Q_Key of its own queue pair instead (IBTA 10.2.5/q-key).
	AH         AH
	RemoteQPN  wire.QPN
	RemoteQKey uint32
}

// RecvWR is a receive work request.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// WCOpcode is the completed operation.
type WCOpcode uint8

// Operations of completions.
const (
	WCSend WCOpcode = iota
	WCWrite
	WCRead
	WCCmpSwap
	WCFetchAdd
	WCLocalInv
	WCRecv
	WCRecvWriteImm
	WCBindMW
	WCRegMR
	WCMaskedCmpSwap
	WCMaskedFetchAdd
	WCAtomicWrite
)

// WCFlags say which optional fields of a completion are set.
type WCFlags uint8

// Flags of a completion.
const (
	WithImm WCFlags = 1 << iota
	WithInv
	// WithGRH: the first GRHLen bytes of the receive are the area that ParseGRH reads; ByteLen
	// includes them.
	WithGRH
	// OverIPv4, with WithGRH: the datagram's network header is that of IPv4, and not of IPv6.
	OverIPv4
)

// WC is a work completion. If Status is not Success only ID, Status, QPN and VendorErr mean
// anything.
type WC struct {
	ID     uint64
	Status Status
	Opcode WCOpcode
	Flags  WCFlags
	// ByteLen is the number of bytes received or read.
	ByteLen   uint32
	Imm       uint32
	InvRKey   uint32
	QPN       wire.QPN
	SrcQPN    wire.QPN
	Solicited bool
	VendorErr uint32
}

// Status is a completion status; the values and names are those of ibv_wc_status.
type Status uint8

// Completion statuses.
const (
	Success Status = iota
	LocLenErr
	LocQPOpErr
	LocEECOpErr
	LocProtErr
	WRFlushErr
	MWBindErr
	BadRespErr
	LocAccessErr
	RemInvReqErr
	RemAccessErr
	RemOpErr
	RetryExcErr
	RNRRetryExcErr
	LocRDDViolErr
	RemInvRDReqErr
	RemAbortErr
	InvEECNErr
	InvEECStateErr
	FatalErr
	RespTimeoutErr
	GeneralErr
)

var statusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "Work Request Flushed Error", "memory window bind error", "bad response error",
	"local access error", "remote invalid request error", "remote access error", "remote operation error",
	"transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
	"remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout error", "general error",
}

// String is the text that ibv_wc_status_str gives.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}

// AsyncKind is the kind of an asynchronous event.
type AsyncKind uint8

// Asynchronous events.
const (
	EventQPFatal AsyncKind = iota
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventCQErr
	EventPortActive
	EventPortErr
	EventDeviceFatal
	// EventSRQLimit: a shared receive queue has fewer receives left than SetLimit asked for.
	EventSRQLimit
	// EventQPLastWQE: a queue pair in the error state has taken its last receive from its shared
	// receive queue.
	EventQPLastWQE
)

// AsyncEvent is an event that belongs to no work request.
type AsyncEvent struct {
	Kind AsyncKind
	QPN  wire.QPN // of queue pair events
	CQ   uint32   // of completion queue events
	SRQ  uint32   // of shared receive queue events
}
