package proto

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// Version is the version of the protocol. It changes when messages or shared memory change.
	Version = 7
	// MaxMessage is the largest size of a message in bytes.
	MaxMessage = 1 << 16
	// MaxData is the largest amount of data in one access to device memory, in bytes. Longer
	// accesses are made in pieces.
	MaxData = 1 << 15
	// EnvSocket is the environment variable that names the daemon's socket.
	EnvSocket = "RDMALAB_VERBS"
)

// Op is the kind of a request.
type Op string

// Kinds of requests. The comments give the types of the arguments and, after the arrow, of the
// result.
const (
	OpHello        Op = "hello"         // Hello → Welcome, with the control page and the wake socket
	OpAllocPD      Op = "alloc_pd"      // None → Handle
	OpDeallocPD    Op = "dealloc_pd"    // Handle → None
	OpAlloc        Op = "alloc"         // Alloc → Handle, with the memory
	OpFree         Op = "free"          // Handle → None
	OpRegMR        Op = "reg_mr"        // RegMR → MR, with the memory if it is new
	OpReregMR      Op = "rereg_mr"      // ReregMR → None
	OpDeregMR      Op = "dereg_mr"      // Handle → None
	OpAllocMW      Op = "alloc_mw"      // Handle (PD) → Handle
	OpQueryMW      Op = "query_mw"      // Handle → Key
	OpDeallocMW    Op = "dealloc_mw"    // Handle → None
	OpAllocDM      Op = "alloc_dm"      // Alloc → Handle
	OpAccessDM     Op = "access_dm"     // Access → Data
	OpAccessMR     Op = "access_mr"     // Access → Data; for regions of device memory
	OpRegDM        Op = "reg_dm"        // RegMR → MR
	OpFreeDM       Op = "free_dm"       // Handle → None
	OpCreateCQ     Op = "create_cq"     // CreateCQ → Queue, with the ring
	OpResizeCQ     Op = "resize_cq"     // ResizeCQ → None
	OpModerateCQ   Op = "moderate_cq"   // ModerateCQ → None
	OpCountCQ      Op = "count_cq"      // Handle → None; from now on completions are only counted, and those that do not fit are lost
	OpDestroyCQ    Op = "destroy_cq"    // Handle → None
	OpCreateSRQ    Op = "create_srq"    // CreateSRQ → Queue, with the ring
	OpQuerySRQ     Op = "query_srq"     // Handle → verbs.SRQAttr
	OpLimitSRQ     Op = "limit_srq"     // Limit → None
	OpResizeSRQ    Op = "resize_srq"    // Limit → None; N is the number of receives
	OpDestroySRQ   Op = "destroy_srq"   // Handle → None
	OpCreateAH     Op = "create_ah"     // CreateAH → Address
	OpDestroyAH    Op = "destroy_ah"    // Handle → None
	OpCreateQP     Op = "create_qp"     // CreateQP → Queue, with the rings
	OpQueryQP      Op = "query_qp"      // Handle → verbs.QPAttr
	OpModifyQP     Op = "modify_qp"     // ModifyQP → None
	OpUseRing      Op = "use_ring"      // UseRing → None
	OpDoorbell     Op = "doorbell"      // Doorbell → None
	OpDestroyQP    Op = "destroy_qp"    // Handle → None
	OpAttach       Op = "attach"        // Multicast → None
	OpDetach       Op = "detach"        // Multicast → None
	OpShare        Op = "share"         // Share → Shared, with the memory
	OpUnshare      Op = "unshare"       // Share → None; only Name is used
	OpDial         Op = "dial"          // Connect → Data
	OpListen       Op = "listen"        // Service → Handle
	OpUnlisten     Op = "unlisten"      // Handle → None
	OpNextRequest  Op = "next_request"  // Wait → Incoming
	OpAccept       Op = "accept"        // Connect → None; H is the request
	OpReject       Op = "reject"        // Reject → None
	OpDisconnect   Op = "disconnect"    // Wait → None; H is the queue pair
	OpDisconnected Op = "disconnected"  // Wait → None; H is the queue pair
	OpCloseManager Op = "close_manager" // None → None
	OpClose        Op = "close"         // None → None; the last request; the daemon answers it when all objects are destroyed and their quotas are free
	OpProgress     Op = "progress"      // Progress → Progress, with Working
)

// Request is a message of an application: it asks the daemon to execute Op.
type Request struct {
	ID   uint64          `json:"id"`
	Op   Op              `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Reply is a message of the daemon: the answer to the Request with the same ID, or, if ID is 0, an
// asynchronous event.
type Reply struct {
	ID     uint64            `json:"id"`
	Error  *Error            `json:"error,omitempty"`
	Result json.RawMessage   `json:"result,omitempty"`
	Event  *verbs.AsyncEvent `json:"event,omitempty"`
}

// None means no arguments, or no result.
type None struct{}

// Hello is the first request of a connection.
type Hello struct {
	Version int `json:"version"`
	// Name is the name of the application in the daemon's status.
	Name string `json:"name,omitempty"`
}

// Welcome is the answer to Hello.
type Welcome struct {
	Device verbs.DeviceAttr `json:"device"`
	// Spin is how long an application should poll before it sleeps; 0 or less: it should not poll.
	Spin time.Duration `json:"spin"`
	// Seed seeds the application's random numbers (verbs.Runtime.Rand).
	Seed uint64 `json:"seed"`
	// Manager: the daemon can make connections for the application.
	Manager bool `json:"manager"`
}

// Handle names an object of this connection.
type Handle struct {
	H uint32 `json:"h"`
}

// Alloc asks for memory of a length in bytes.
type Alloc struct {
	Length int `json:"length"`
}

// RegMR registers Length bytes of the memory or device memory with the handle Memory, beginning at
// Offset. If Memory is 0, it registers new memory.
type RegMR struct {
	PD     uint32       `json:"pd"`
	Memory uint32       `json:"memory,omitempty"`
	Offset int          `json:"offset,omitempty"`
	Length int          `json:"length"`
	Access verbs.Access `json:"access"`
	// Fast makes a region for fast registration; Access is ignored.
	Fast bool `json:"fast,omitempty"`
}

// ReregMR changes the rights of a region.
type ReregMR struct {
	H      uint32       `json:"h"`
	Access verbs.Access `json:"access"`
}

// MR describes a memory region. Incarnation is the incarnation of the NIC in which the region was
// made, as ring.Control counts them.
type MR struct {
	H           uint32 `json:"h"`
	Addr        uint64 `json:"addr"`
	Length      int    `json:"length"`
	LKey        uint32 `json:"lkey"`
	RKey        uint32 `json:"rkey"`
	Incarnation uint64 `json:"incarnation"`
}

// Key is the R_Key of a memory window, by which peers name the window.
type Key struct {
	RKey uint32 `json:"rkey"`
}

// Access reads Length bytes of device memory from Offset on, or writes Data there if Write is set.
// H is the handle of the device memory (OpAccessDM) or of a region of it (OpAccessMR).
type Access struct {
	H      uint32 `json:"h"`
	Offset int    `json:"offset"`
	Length int    `json:"length,omitempty"`
	Write  bool   `json:"write,omitempty"`
	Data   []byte `json:"data,omitempty"`
}

// Data is a result that consists of bytes.
type Data struct {
	Data []byte `json:"data,omitempty"`
}

type CreateCQ struct {
	Depth int `json:"depth"`
}

// ResizeCQ changes the depth of the NIC's completion queue; the shared ring stays.
type ResizeCQ struct {
	H     uint32 `json:"h"`
	Depth int    `json:"depth"`
}

// ModerateCQ delays the events of a completion queue.
type ModerateCQ struct {
	H      uint32        `json:"h"`
	Count  int           `json:"count"`
	Period time.Duration `json:"period"`
}

// UseRing gives a queue pair a send ring (package sendring).
type UseRing struct {
	H    uint32         `json:"h"`
	Init verbs.RingInit `json:"init"`
}

// Doorbell tells the NIC up to which index it may execute the entries of a send ring.
type Doorbell struct {
	H     uint32 `json:"h"`
	Limit uint32 `json:"limit"`
}

type CreateSRQ struct {
	PD   uint32        `json:"pd"`
	Init verbs.SRQInit `json:"init"`
}

// Queue is the answer about a new object with rings. A completion queue has a ring of Slots
// entries. A queue pair or shared receive queue has a ring of Slots sends with SendSlot bytes each,
// and a ring of Slots receives with RecvSlot bytes each; a slot size of 0 means that this ring does
// not exist. Length is the size of the memory with the rings in bytes. Bell is the object's bell,
// Number is the number by which the NIC knows the object, and Incarnation is as in MR.
type Queue struct {
	H           uint32 `json:"h"`
	Bell        uint32 `json:"bell"`
	Number      uint32 `json:"number"`
	Slots       int    `json:"slots"`
	SendSlot    int    `json:"sendSlot,omitempty"`
	RecvSlot    int    `json:"recvSlot,omitempty"`
	Length      int    `json:"length"`
	Incarnation uint64 `json:"incarnation"`
	// The limits of a queue pair. From these the application knows which posts the NIC cannot refuse.
	MaxSendWR int `json:"maxSendWR,omitempty"`
	MaxSGE    int `json:"maxSGE,omitempty"`
	MaxInline int `json:"maxInline,omitempty"` // bytes
}

// Limit sets the limit of a shared receive queue to N receives and arms its limit event
// (OpLimitSRQ), or changes the queue's capacity to N receives (OpResizeSRQ).
type Limit struct {
	H uint32 `json:"h"`
	N int    `json:"n"`
}

type CreateAH struct {
	PD   uint32       `json:"pd"`
	Attr verbs.AHAttr `json:"attr"`
}

// Address is the answer about a new address handle; Number is the number by which the NIC knows it.
type Address struct {
	H      uint32 `json:"h"`
	Number uint32 `json:"number"`
}

type CreateQP struct {
	PD        uint32       `json:"pd"`
	Type      verbs.QPType `json:"type"`
	SendCQ    uint32       `json:"sendCQ"`
	RecvCQ    uint32       `json:"recvCQ"`
	SRQ       uint32       `json:"srq,omitempty"`
	MaxSendWR int          `json:"maxSendWR,omitempty"`
	MaxRecvWR int          `json:"maxRecvWR,omitempty"`
	MaxSGE    int          `json:"maxSGE,omitempty"`
	MaxInline int          `json:"maxInline,omitempty"`
	SignalAll bool         `json:"signalAll,omitempty"`
}

// Transition is a state transition of a queue pair.
type Transition string

const (
	ToInit    Transition = "init"
	ToRTR     Transition = "rtr"
	ToRTS     Transition = "rts"
	ToSQD     Transition = "sqd"
	ResumeRTS Transition = "resume"
	ToError   Transition = "error"
	ToReset   Transition = "reset"
	SameState Transition = "modify" // no transition, only attributes change
)

// ModifyQP makes transition To of the queue pair with handle H. Of Init, RTR, RTS and Attr, at most
// one has a meaning: the one with the attributes of this transition.
type ModifyQP struct {
	H    uint32       `json:"h"`
	To   Transition   `json:"to"`
	Init verbs.ToInit `json:"init,omitzero"`
	RTR  verbs.ToRTR  `json:"rtr,omitzero"`
	RTS  verbs.ToRTS  `json:"rts,omitzero"`
	// Attr has the attributes to change if To is SameState.
	Attr verbs.QPModify `json:"attr,omitzero"`
}

// Multicast attaches the queue pair with handle H to a multicast group, or detaches it.
type Multicast struct {
	H     uint32    `json:"h"`
	Group verbs.GID `json:"group"`
}

// Share opens or makes a shared region; see ipc.Context.Share.
type Share struct {
	Name   string       `json:"name"`
	Length int          `json:"length,omitempty"` // 0 means that the region must exist
	Access verbs.Access `json:"access,omitempty"`
}

// Shared is the answer to Share: the region, and a handle of its protection domain. Created is true
// if the request has made the region.
type Shared struct {
	PD      uint32 `json:"pd"`
	MR      MR     `json:"mr"`
	Created bool   `json:"created"`
}

// Service is the name of a service to listen for.
type Service struct {
	Name string `json:"name"`
}

// Wait waits for an event of the object with handle H, a listener or a queue pair, for at most
// Timeout; a negative Timeout means no limit.
type Wait struct {
	H       uint32        `json:"h"`
	Timeout time.Duration `json:"timeout"`
}

// Connect dials Service at the address To (OpDial), or accepts the connection request with handle H
// (OpAccept). QP is the handle of the queue pair that is connected.
type Connect struct {
	H       uint32        `json:"h,omitempty"`
	QP      uint32        `json:"qp"`
	To      netip.Addr    `json:"to,omitzero"`
	Service string        `json:"service,omitempty"`
	Params  rdmacm.Params `json:"params"`
	Private []byte        `json:"private,omitempty"`
	Timeout time.Duration `json:"timeout"`
}

// Incoming is a connection request of a peer.
type Incoming struct {
	H       uint32     `json:"h"`
	Service string     `json:"service"`
	Peer    netip.Addr `json:"peer"`
	Private []byte     `json:"private,omitempty"`
}

// Reject refuses a request, or answers it without a connection; see rdmacm.Request.Answer.
type Reject struct {
	H       uint32 `json:"h"`
	Reason  string `json:"reason"`
	Private []byte `json:"private,omitempty"`
}

// Progress asks whether the request with this ID on the same connection is in progress. If it is
// not, the daemon has sent the answer to that request before the answer to Progress.
type Progress struct {
	ID      uint64 `json:"id,omitempty"`
	Working bool   `json:"working,omitempty"`
}

// TimeLimit returns the longest time that a request with these arguments may take; ok is false if
// it has no limit.
func TimeLimit(args any) (limit time.Duration, ok bool) {
	switch a := args.(type) {
	case Connect:
		limit = a.Timeout
	case Wait:
		limit = a.Timeout
	default:
		return 0, false
	}
	return limit, limit >= 0
}

func (q Queue) QPN() wire.QPN { return wire.QPN(q.Number) }
