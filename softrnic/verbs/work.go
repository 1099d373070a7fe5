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
	// OpBindMW binds a memory window; see MW.
	OpBindMW
	// OpRegMR is fast registration (REG_MR) of a region of AllocFastMR. The SGL is one SGE that names
	// a part of the region; see MR.SGE. RKey is its R_Key with any low byte, which also becomes the
	// low byte of its L_Key (see LKeyWith). BindAccess are the access rights, which may include
	// LocalWrite and MWBind. Peers and work requests name the part by these keys and by addresses of
	// the region. OpLocalInv, or a peer's OpSendInv, with the R_Key ends the registration. Only after
	// that the region can be registered again. A registration that fails completes with MWBindErr. As
	// with OpBindMW, it does not overlap with other work requests.
	OpRegMR
	// OpMaskedCmpSwap is OpCmpSwap that compares only the bits in CompareAddMask and swaps only those
	// in SwapMask. OpMaskedFetchAdd is OpFetchAdd on fields of the word: CompareAddMask has the
	// highest bit of each field; no carry leaves a field. Both are vendor-specific operations, whose
	// encoding on the wire only this NIC uses.
	OpMaskedCmpSwap
	OpMaskedFetchAdd
	// OpAtomicWrite writes Swap to the aligned word at RemoteAddr, so that no reader sees a part of
	// it; the key needs RemoteWrite. It takes neither SGL nor Inline. Like a READ it has a response,
	// and counts as one of the READs and atomics in flight. A duplicate is not executed again, so that
	// it cannot undo a later write.
	OpAtomicWrite
	// OpFlush completes when the bytes that Flush names are placed as Flush says. This includes
	// everything that earlier work requests of this queue pair have written there. Key and queue pair
	// must grant FlushGlobal if Flush has Global, and FlushPersistent if it has Persistent. OpFlush
	// takes neither SGL nor Inline, and counts as one of the READs and atomics in flight.
	OpFlush
)

// Flush are the operands of OpFlush.
type Flush struct {
	// Length is the number of bytes from RemoteAddr on. With Region, the whole region of RKey is
	// flushed instead, and RemoteAddr and Length are ignored.
	Length uint32
	Region bool
	// Global: the bytes become visible to all readers of the memory. Persistent: the bytes survive a
	// loss of power. At least one must be set. No memory of this NIC is persistent, so both have the
	// same effect.
	Global, Persistent bool
}

// SendFlags modify a send work request.
type SendFlags uint8

// Flags of a send work request.
const (
	// Signalled requests a completion. A failed work request always has one.
	Signalled SendFlags = 1 << iota
	// Solicited makes the receive's completion a solicited one; see CQ.Arm.
	Solicited
	// Fence delays the work request until all earlier READs and atomics of this queue pair are
	// complete.
	Fence
	// Inline copies the data from Data when the work request is posted, so that the program may change
	// them at once. SGL is not used.
	Inline
)

// SendWR is a send work request.
type SendWR struct {
	ID    uint64
	Op    WROpcode
	Flags SendFlags
	// SGL is the local memory: the source of SEND and WRITE, the target of READ and atomics (8
	// bytes); not used by OpAtomicWrite and OpFlush. PostSend copies the slice, but not the memory.
	SGL []SGE
	// Data is the payload if Flags has Inline.
	Data []byte
	// Imm is the immediate data.
	Imm uint32
	// InvRKey is the R_Key of a fast registration or of a bound window. OpSendInv invalidates a key
	// of the peer, OpLocalInv a key of this host. A region that RegMR made cannot be invalidated,
	// only deregistered.
	InvRKey uint32
	// RemoteAddr and RKey name the peer's memory for WRITE, READ, atomics, OpAtomicWrite and
	// OpFlush.
	RemoteAddr uint64
	RKey       uint32
	Flush      Flush // operands of OpFlush
	// BindAccess has the rights that OpBindMW grants the peer, a subset of RemoteRights, or the rights
	// that OpRegMR grants.
	BindAccess Access
	// CompareAdd is the compare value of OpCmpSwap or the addend of OpFetchAdd. Swap is the swap
	// value of OpCmpSwap or the value that OpAtomicWrite writes. Both are in host byte order.
	CompareAdd, Swap uint64
	// CompareAddMask and SwapMask are the masks of masked atomics; other operations ignore them.
	CompareAddMask, SwapMask uint64
	// AH, RemoteQPN and RemoteQKey are the destination of a datagram. If RemoteQKey has its highest
	// bit set, the datagram carries the Q_Key of the sending queue pair instead (IBTA
	// 10.2.5/q-key).
	AH         AH
	RemoteQPN  wire.QPN
	RemoteQKey uint32
	// RemoteSRQN is the XRC shared receive queue of the peer to which a work request of an XRCInitiator goes.
	RemoteSRQN uint32
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
	WCFlush
	// WCNop is a NOP, WAIT, ENABLE or RECV_ENABLE of a send ring.
	WCNop
)

// WCFlags say which optional fields of a completion are set.
type WCFlags uint8

// Flags of a completion.
const (
	WithImm WCFlags = 1 << iota
	WithInv
	// WithGRH: the received message begins with GRHLen bytes in front of the payload (see ParseGRH).
	// ByteLen includes them.
	WithGRH
	// OverIPv4, together with WithGRH: the datagram was received over IPv4, not over IPv6.
	OverIPv4
)

// WC is a work completion. If Status is not Success, only ID, Status, QPN and VendorErr are valid.
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

// String returns the text of ibv_wc_status_str.
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
	// EventSRQLimit: a shared receive queue has fewer receives left than its limit; see SRQ.SetLimit.
	EventSRQLimit
	// EventQPLastWQE: a queue pair has entered the error state, and takes no more receives from its
	// shared receive queue.
	EventQPLastWQE
	// EventGIDChange: the table of the port's addresses has changed.
	EventGIDChange
	// EventSRQErr: an XRC shared receive queue has failed, because its completion queue overran.
	EventSRQErr
)

// AsyncEvent is an event that belongs to no work request.
type AsyncEvent struct {
	Kind AsyncKind
	QPN  wire.QPN // set for events of a queue pair
	CQ   uint32   // set for events of a completion queue
	SRQ  uint32   // set for events of a shared receive queue
}
