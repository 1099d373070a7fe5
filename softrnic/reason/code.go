package reason

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Code is the number of a reason. A completion with an error has it as VendorErr (vendor_err of
// libibverbs). The numbers are those of this project alone, and never change.
type Code uint32

// Reasons of the requester itself.
const (
	None Code = 0

	// LocalKey and the four codes after it are the faults of memory that a work request names, in the
	// order of mem.Fault.
	LocalKey    Code = 0x11
	LocalPD     Code = 0x12
	LocalAccess Code = 0x13
	LocalBounds Code = 0x14
	LocalPage   Code = 0x15
	NoReads     Code = 0x16
	LocalOp     Code = 0x17
	BadPost     Code = 0x18
	BadEntry    Code = 0x19
)

// Reasons that the peer's answer has.
const (
	PeerInvalid     Code = 0x21
	PeerAccess      Code = 0x22
	PeerOperation   Code = 0x23
	PeerUnknown     Code = 0x24
	PeerBadResponse Code = 0x25
)

// Reasons to send requests again, and to give up.
const (
	Timeout     Code = 0x31
	SequenceNak Code = 0x32
	ImpliedNak  Code = 0x33
	NotReady    Code = 0x34
)

// Reasons of the responder.
const (
	BadSequence     Code = 0x41
	ReservedOpcode  Code = 0x42
	NotEnabled      Code = 0x43
	TooManyReads    Code = 0x44
	WrongLength     Code = 0x45
	TooLong         Code = 0x46
	RemoteKey       Code = 0x47 // this and the four codes after it are in the order of mem.Fault
	RemotePD        Code = 0x48
	RemoteAccess    Code = 0x49
	RemoteBounds    Code = 0x4a
	RemotePage      Code = 0x4b
	Misaligned      Code = 0x4c
	BadInvalidate   Code = 0x4d
	NoReceive       Code = 0x4e
	WrongQKey       Code = 0x4f
	ReceiveKey      Code = 0x51 // this and the four codes after it are in the order of mem.Fault
	ReceivePD       Code = 0x52
	ReceiveAccess   Code = 0x53
	ReceiveBounds   Code = 0x54
	ReceivePage     Code = 0x55
	LateRead        Code = 0x56
	LostInterrupted Code = 0x57
	NoSRQ           Code = 0x58
	WrongXRCDomain  Code = 0x59
	BrokenSRQ       Code = 0x5a
)

// Reasons why work requests are flushed: why the queue pair went to ERROR.
const (
	AfterFailure Code = 0x61
	AfterRefusal Code = 0x62
	ByProgram    Code = 0x63
	ByManager    Code = 0x64
	ByOverrun    Code = 0x65
	ByFault      Code = 0x66
	NICDown      Code = 0x67
)

// Reasons of faults at the verbs boundary.
const (
	InjectedStatus Code = 0x71
)

// Side says which end of a connection knows a reason.
type Side string

// Sides.
const (
	Requester Side = "requester"
	Responder Side = "responder"
	Both      Side = "queue pair"
)

// Row is the entry of a code in the table.
type Row struct {
	Code Code
	Side Side
	// Name is the name of the constant.
	Name string
	// Statuses are the statuses of completions that have the code; none for a code that only a listing has.
	Statuses []verbs.Status
	// Text completes a sentence after "because".
	Text string
	// Look says what to look at, or what to change.
	Look string
}

// failures lists all statuses but Success.
func failures() (list []verbs.Status) {
	for s := verbs.LocLenErr; s <= verbs.GeneralErr; s++ {
		list = append(list, s)
	}
	return list
}

func statuses(s ...verbs.Status) []verbs.Status { return s }

// memoryRows makes the five rows of memory that a work request names; first is the code of the
// unknown key.
func memoryRows(first Code, side Side, names [5]string, key, who string, s []verbs.Status) []Row {
	return []Row{
		{first, side, names[0], s, "no region has the " + key + " of " + who, "`rdmalab mrs HOST`: the keys that exist; a key ends with its region, its invalidation or its memory window"},
		{first + 1, side, names[1], s, "the region of " + who + " is in another protection domain than the queue pair", "one protection domain for both"},
		{first + 2, side, names[2], s, "the region of " + who + " lacks an access right", "the access flags of ibv_reg_mr"},
		{first + 3, side, names[3], s, who + " goes beyond its region", "address and length against `rdmalab mrs HOST`"},
		{first + 4, side, names[4], s, "the program has unmapped memory of " + who, "munmap or free before ibv_dereg_mr"},
	}
}

// Table returns the rows of all codes in ascending order.
func Table() []Row {
	var t []Row
	prot := statuses(verbs.LocProtErr)
	t = append(t, memoryRows(LocalKey, Requester, [5]string{"LocalKey", "LocalPD", "LocalAccess", "LocalBounds", "LocalPage"}, "L_Key", "a piece of the work request", prot)...)
	invalid := statuses(verbs.RemInvReqErr)
	denied := statuses(verbs.LocAccessErr)
	t = append(t,
		Row{NoReads, Requester, "NoReads", statuses(verbs.LocQPOpErr), "the queue pair may have no READ or atomic in flight: max_rd_atomic was 0 at RTS", "max_rd_atomic of ibv_modify_qp"},
		Row{LocalOp, Requester, "LocalOp", statuses(verbs.MWBindErr), "a bind, a fast registration or an invalidation names memory or a key that it may not use", "the sentence in `rdmalab qps`"},
		Row{BadPost, Requester, "BadPost", statuses(verbs.LocQPOpErr), "the NIC has refused a work request that the program had put into its ring", "`rdmalab status`: REFUSED TO; the sentence in `rdmalab qps`"},
		Row{BadEntry, Requester, "BadEntry", statuses(verbs.LocQPOpErr, verbs.LocProtErr, verbs.LocLenErr), "an entry of a send ring, which executes a program, cannot be executed", "wr_id is the index of the entry"},

		Row{PeerInvalid, Requester, "PeerInvalid", invalid, "the peer answered with NAK invalid request", "`rdmalab qps PEER`: the peer knows the reason (codes 0x41 to 0x4d)"},
		Row{PeerAccess, Requester, "PeerAccess", statuses(verbs.RemAccessErr), "the peer answered with NAK remote access error", "`rdmalab qps PEER` and `rdmalab mrs PEER`: the peer knows the reason (codes 0x47 to 0x4d)"},
		Row{PeerOperation, Requester, "PeerOperation", statuses(verbs.RemOpErr), "the peer answered with NAK remote operational error", "`rdmalab qps PEER`: the peer knows the reason (codes 0x51 to 0x57)"},
		Row{PeerUnknown, Requester, "PeerUnknown", statuses(verbs.BadRespErr), "the peer answered with a NAK code that is reserved", "a capture: `rdmalab capture`"},
		Row{PeerBadResponse, Requester, "PeerBadResponse", statuses(verbs.BadRespErr), "the response has not the kind or the length that the work request needs", "a capture: `rdmalab capture`"},

		Row{Timeout, Requester, "Timeout", statuses(verbs.RetryExcErr), "no answer came within the ACK timeout, and retry_cnt repetitions changed nothing", "is the peer's queue pair there and in RTS: `rdmalab qps PEER`; is its link up: `rdmalab status`; faults: `rdmalab faults`"},
		Row{SequenceNak, Requester, "SequenceNak", statuses(verbs.RetryExcErr), "the peer missed a packet (NAK PSN sequence error), and retry_cnt repetitions changed nothing", "`rdmalab faults`, and drops in `rdmalab counters`"},
		Row{ImpliedNak, Requester, "ImpliedNak", statuses(verbs.RetryExcErr), "the response to a READ or atomic was lost (a later response overtook it), and retry_cnt repetitions changed nothing", "`rdmalab faults`, and drops in `rdmalab counters`"},
		Row{NotReady, Requester, "NotReady", statuses(verbs.RNRRetryExcErr), "the peer had no receive posted (RNR NAK), and rnr_retry repetitions changed nothing", "RECV QUEUED in `rdmalab qps PEER`; rnr_retry 7 has no limit"},

		Row{BadSequence, Responder, "BadSequence", invalid, "the opcode of the request cannot come at this place of a message", "a capture: `rdmalab capture`"},
		Row{ReservedOpcode, Responder, "ReservedOpcode", invalid, "the opcode of the request is reserved", "a capture: `rdmalab capture`"},
		Row{NotEnabled, Responder, "NotEnabled", invalid, "the queue pair does not allow its peer this operation", "qp_access_flags of ibv_modify_qp at INIT"},
		Row{TooManyReads, Responder, "TooManyReads", invalid, "the peer has more READs and atomics in flight than there are responder resources", "max_dest_rd_atomic here against max_rd_atomic of the peer"},
		Row{WrongLength, Responder, "WrongLength", invalid, "the length of the request does not fit its opcode, the path MTU or its RETH", "path_mtu of both queue pairs"},
		Row{TooLong, Responder, "TooLong", statuses(verbs.LocLenErr), "the message is longer than the receive", "the lengths of ibv_post_recv"},
	)
	t = append(t, memoryRows(RemoteKey, Responder, [5]string{"RemoteKey", "RemotePD", "RemoteAccess", "RemoteBounds", "RemotePage"}, "R_Key", "the request", denied)...)
	t = append(t,
		Row{Misaligned, Responder, "Misaligned", invalid, "the address of an atomic is not a multiple of 8", "the address in the work request"},
		Row{BadInvalidate, Responder, "BadInvalidate", denied, "a SEND with invalidate names a key that cannot be invalidated", "`rdmalab mrs HOST`"},
		Row{NoReceive, Responder, "NoReceive", nil, "no receive was posted; a reliable connection answers with an RNR NAK, others drop the message", "ibv_post_recv before the peer sends"},
		Row{WrongQKey, Responder, "WrongQKey", nil, "a datagram with another Q_Key was dropped", "the qkey of both sides"},
	)
	t = append(t, memoryRows(ReceiveKey, Responder, [5]string{"ReceiveKey", "ReceivePD", "ReceiveAccess", "ReceiveBounds", "ReceivePage"}, "L_Key", "the receive", prot)...)
	fl := statuses(verbs.WRFlushErr)
	return append(t,
		Row{LateRead, Responder, "LateRead", denied, "the region of a READ was deregistered or unmapped before all its responses were sent", "ibv_dereg_mr after the peer's last READ"},
		Row{LostInterrupted, Responder, "LostInterrupted", nil, "the queue pair failed before it had sent all responses of a READ", "its reason to fail, in the same listing"},

		Row{NoSRQ, Responder, "NoSRQ", invalid, "the request names an XRC shared receive queue that does not exist, or another one than the first packet of its message", "the number that ibv_get_srq_num has returned there"},
		Row{WrongXRCDomain, Responder, "WrongXRCDomain", denied, "the shared receive queue that the request names is in another XRC domain than the queue pair", "one XRC domain for both"},
		Row{BrokenSRQ, Responder, "BrokenSRQ", statuses(verbs.LocQPOpErr), "the shared receive queue that the request names has failed: its completion queue overran", "`rdmalab cqs`; a new queue"},

		Row{AfterFailure, Both, "AfterFailure", fl, "a work request before it failed, which ended the queue pair", "the completion before the first flushed one; `rdmalab why`"},
		Row{AfterRefusal, Both, "AfterRefusal", fl, "the queue pair refused a request of its peer, which ended the connection", "`rdmalab why`"},
		Row{ByProgram, Both, "ByProgram", fl, "the program moved the queue pair to ERROR (ibv_modify_qp, rdma_disconnect, the end of the program)", "the program"},
		Row{ByManager, Both, "ByManager", fl, "the connection manager ended the connection, as the peer asked", "the peer: rdma_disconnect, or its end"},
		Row{ByOverrun, Both, "ByOverrun", fl, "a completion queue of the queue pair overran", "the program polls too late, or the queue is too small: `rdmalab cqs`"},
		Row{ByFault, Both, "ByFault", fl, "a fault was injected into the NIC: `rdmalab inject nic`", "who injected it"},
		Row{NICDown, Both, "NICDown", nil, "the NIC crashed or was taken away", "`rdmalab crash --nic`, `rdmalab inject nic HOST unplug`"},
		Row{InjectedStatus, Both, "InjectedStatus", failures(), "a fault at the verbs boundary gave the completion its status: `rdmalab inject verbs`", "`rdmalab faults`; the operation itself succeeded"},
	)
}

var byCode = func() map[Code]Row {
	m := make(map[Code]Row)
	for _, r := range Table() {
		m[r.Code] = r
	}
	return m
}()

// Row returns the entry of a code; ok is false for a number that is none.
func (c Code) Row() (r Row, ok bool) {
	r, ok = byCode[c]
	return r, ok
}

// String returns the text of the code, to be put after "because".
func (c Code) String() string {
	if r, ok := byCode[c]; ok {
		return r.Text
	}
	return fmt.Sprintf("reason %#x", uint32(c))
}

// OfLocal returns the code of a fault of memory that a work request names.
func OfLocal(f mem.Fault) Code { return ofFault(LocalKey, f) }

// OfRemote returns the code of a fault of memory that a request of the peer names.
func OfRemote(f mem.Fault) Code { return ofFault(RemoteKey, f) }

// OfReceive returns the code of a fault of memory that a receive names.
func OfReceive(f mem.Fault) Code { return ofFault(ReceiveKey, f) }

// ofFault returns the code of a fault. An access that has failed although all checks pass has failed
// because memory was unmapped.
func ofFault(first Code, f mem.Fault) Code {
	if f == mem.OK {
		f = mem.BadPage
	}
	return first + Code(f-mem.BadKey)
}
