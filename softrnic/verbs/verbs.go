// Package verbs is the API for applications, with the terms of ibverbs: Context, PD, MR, CQ, QP,
// work requests, work completions, and one attribute struct for each queue pair transition. It has
// types and functions for their values, but no NIC.
//
// Applications are plain blocking code over these interfaces. An application waits for completions,
// for asynchronous events and, by a Gate, for its other threads. It takes time, random numbers and
// threads from the Runtime of its Context. So the same code runs on a rack in real time and in the
// simulator in virtual time.
//
// Memory: the buffer of a work request belongs to the NIC from the post until the completion was
// polled. Memory that peers may access is read and written locally only through the methods of its
// MR.
package verbs

import (
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Context is an open device.
type Context interface {
	// Runtime returns the application's source of time, waiting, threads and random numbers.
	Runtime() Runtime
	// Device returns the limits and addresses of the NIC.
	Device() DeviceAttr
	AllocPD() (PD, error)
	// AllocDM allocates length bytes of device memory. It fails with ErrLimit if fewer are left.
	AllocDM(length int) (DM, error)
	// CreateCQ makes a completion queue of at least depth entries.
	CreateCQ(depth int) (CQ, error)
	// NextAsyncEvent waits for an asynchronous event. It fails with ErrTimeout at the deadline.
	NextAsyncEvent(deadline clock.Time) (AsyncEvent, error)
	// Close destroys all objects of this Context.
	Close() error
}

// Runtime replaces package time and the go statement for applications.
type Runtime interface {
	Now() clock.Time
	Sleep(d time.Duration)
	// Go starts another thread of the application. Wait returns when all of them have returned.
	Go(name string, f func())
	Wait()
	// Rand returns random numbers for this application alone. The seed of the run determines them.
	Rand() *rand.Rand
	// NewGate makes a gate, by which one thread of the application waits for another.
	NewGate() Gate
}

// Gate lets one thread of an application wait for another one, for example for the thread that
// polls its completion queue. It is not a lock.
type Gate interface {
	// Wait waits until the gate is open, and closes it. It fails with ErrTimeout at the deadline.
	// Only one thread may wait at a time.
	Wait(deadline clock.Time) error
	// Open opens the gate. It does nothing if the gate is open.
	Open()
}

// DeviceAttr describes a NIC.
type DeviceAttr struct {
	Name string
	// GIDs is the table of the port's addresses. A zero GID is a free entry: an address that was
	// removed leaves one, so that the others keep their indexes.
	GIDs []GID
	// PortDown is true while the port has no carrier, PortDisabled if it is switched off.
	PortDown, PortDisabled bool
	// MAC address of the port, and MTU of the link in bytes.
	MAC     wire.MAC
	LinkMTU int
	// ActiveMTU is the largest path MTU with which packets fit the link. It is also the largest
	// payload of a datagram in bytes.
	ActiveMTU   MTU
	MaxQP       int
	MaxQPWR     int // work requests in one queue
	MaxSGE      int // SGEs of one work request
	MaxInline   int // bytes
	MaxCQE      int // entries of one completion queue
	MaxSRQ      int
	MaxAH       int
	MaxRdAtomic int // READs and atomics in flight, as initiator and as responder
	// Ahead is how many packets ahead of the expected one a queue pair of this NIC can hold, if it
	// recovers from losses by selective retransmission; 0 means go-back-N.
	Ahead      int
	MaxMsgSize uint32 // bytes
	// PKeys is the table of the partitions of the port; see PKeyMember. A NIC without partitions
	// has only 0xffff.
	PKeys []uint16
	// MaxDM is the size of the device memory in bytes.
	MaxDM int
	GroupLimits
}

// GroupLimits are the limits of multicast groups: MaxAttachments is the largest number of attachments
// to groups, MaxGroupQPs the largest number of queue pairs attached to one group.
type GroupLimits struct{ MaxAttachments, MaxGroupQPs int }

// Access is a set of access rights of a memory region.
type Access uint8

// Access rights. Local read is always granted. Remote write and remote atomic need local write.
const (
	LocalWrite Access = 1 << iota
	RemoteWrite
	RemoteRead
	RemoteAtomic
	// MWBind allows memory windows over a region.
	MWBind
	// FlushGlobal and FlushPersistent allow OpFlush.
	FlushGlobal
	FlushPersistent
)

// RemoteRights are the rights that a region, window or queue pair can grant a peer.
const RemoteRights = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent

// PD is a protection domain: regions and queue pairs can be used together only if they are in the
// same one.
type PD interface {
	// RegMR registers buf, or length new bytes if buf is nil.
	RegMR(buf []byte, length int, access Access) (MR, error)
	// AllocFastMR makes a region for fast registration. Its keys give no access until an OpRegMR
	// registers a part of the region. buf and length are as in RegMR.
	AllocFastMR(buf []byte, length int) (MR, error)
	CreateQP(QPInit) (QP, error)
	// AllocMW makes an unbound memory window.
	AllocMW() (MW, error)
	// RegDM registers length bytes of device memory from `off` on, as a zero-based region: its Addr
	// is 0.
	RegDM(dm DM, off, length int, access Access) (MR, error)
	// CreateSRQ makes a receive queue that several queue pairs share.
	CreateSRQ(SRQInit) (SRQ, error)
	// CreateAH resolves an address for datagrams. It fails with ErrUnreachable if no MAC address is
	// known for it.
	CreateAH(AHAttr) (AH, error)
	// Dealloc ends the domain. It fails with ErrBusy while the domain has regions, windows, queue
	// pairs, shared receive queues or address handles.
	Dealloc() error
}

// MR is a registered memory region.
type MR interface {
	// Addr returns the first virtual address, by which SGEs and peers name the region.
	Addr() uint64
	Len() int
	// LKey returns the key for work requests of this host. RKey returns the key for peers. Neither can
	// be used in place of the other.
	LKey() uint32
	RKey() uint32
	// ReadAt and WriteAt copy bytes out of and into the region. The copies are ordered with the NIC's
	// own accesses.
	ReadAt(p []byte, off int) error
	WriteAt(p []byte, off int) error
	// Load64 and Store64 read and write an aligned word in host byte order. They are atomic with
	// respect to remote atomics.
	Load64(off int) (uint64, error)
	Store64(off int, v uint64) error
	// SGE returns an SGE of n bytes from offset `off` of the region on.
	SGE(off, n int) SGE
	// Rereg changes the access rights of a region that RegMR or RegDM has made; its keys and addresses
	// stay. Requests that arrive later are checked against the new rights. Rereg fails with ErrBusy
	// while windows are bound to the region, because their rights depend on the old ones.
	Rereg(access Access) error
	Dereg() error
}

// SGE is a contiguous part of local memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// CQ is a completion queue.
type CQ interface {
	// Poll moves up to len(wc) completions to wc, oldest first, and returns their number. It never
	// waits.
	Poll(wc []WC) (int, error)
	// Arm requests an event for the next completion. If solicited is true, the event is for the next
	// completion that is solicited or has failed.
	Arm(solicited bool) error
	// WaitEvent waits for the event that Arm has requested. It fails with ErrTimeout at the deadline.
	WaitEvent(deadline clock.Time) error
	// Wait waits until Poll would return a completion. It fails with ErrTimeout at the deadline.
	Wait(deadline clock.Time) error
	// Resize changes the depth to at least depth entries; completions stay. It fails with
	// ErrInvalid if more than depth completions wait, and with ErrBusy if more wait than the NIC
	// moves at once (16384); then poll first.
	Resize(depth int) error
	// Moderate delays the events of Arm. An event is raised when count completions that may cause it
	// were queued, or when period has passed since the first of them, whichever is earlier. A count
	// below 2 or a period of 0 turns moderation off; then a delayed event is raised at once. Poll and
	// Wait find completions without delay.
	Moderate(count int, period time.Duration) error
	// Destroy ends the queue. Threads that wait for it get ErrClosed.
	Destroy() error
}

// QPType is the transport service.
type QPType uint8

// Transport services.
const (
	RC QPType = iota
	UC
	UD
	// XRCInitiator and XRCTarget are the two ends of an extended reliable connection (annex A14). An
	// initiator only sends. A target only receives, and belongs to an XRC domain; see XRCD.
	XRCInitiator
	XRCTarget
)

// QPInit are the creation attributes of a queue pair.
type QPInit struct {
	Type           QPType
	SendCQ, RecvCQ CQ
	// SRQ, if not nil, is the shared receive queue from which the queue pair takes its receives.
	SRQ       SRQ
	MaxSendWR int // 0 means 128
	MaxRecvWR int // 0 means 128
	MaxSGE    int // 0 means 4
	MaxInline int // bytes; 0 means 256
	// SignalAll makes every send work request signalled.
	SignalAll bool
}

// QPState is the state of a queue pair, as in ibv_qp_state (IBTA 10.3.1/rc).
type QPState uint8

// Queue pair states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateError
)

// MTU is a path MTU in bytes: 256, 512, 1024, 2048 or 4096.
type MTU uint16

// Valid reports whether m is one of the path MTUs below.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 && m&(m-1) == 0 }

// Path MTUs.
const (
	MTU256  MTU = 256
	MTU512  MTU = 512
	MTU1024 MTU = 1024
	MTU2048 MTU = 2048
	MTU4096 MTU = 4096
)

// ToInit are the attributes of the transition from RESET to INIT.
type ToInit struct {
	// Access has the rights of the peer through this queue pair, a subset of RemoteRights.
	Access Access
	// PKeyIndex is the index of the queue pair's partition in DeviceAttr.PKeys. Packets of other
	// partitions, and those between two limited members, are dropped silently and counted.
	PKeyIndex int
	// QKey is the Q_Key that a datagram to this UD queue pair must carry.
	QKey uint32
}

// ToRTR are the attributes of the transition from INIT to RTR. A UD queue pair ignores them.
type ToRTR struct {
	DestQPN   wire.QPN
	DestGID   GID
	SourceGID int      // index into DeviceAttr.GIDs; the family must be DestGID's
	RecvPSN   wire.PSN // first PSN expected
	PathMTU   MTU
	// MaxDestRdAtomic is how many READs and atomics of the peer may be in flight (responder
	// resources).
	MaxDestRdAtomic int    // 0 means 16; -1 means none
	MinRNRTimer     uint8  // code of the time that the peer must wait after an RNR NAK
	TrafficClass    uint8  // 0 means the default of the NIC
	HopLimit        uint8  // 0 means 64
	FlowLabel       uint32 // as in AHAttr
	// Ahead is how many packets ahead of the expected one the peer can hold, for selective
	// retransmission in both directions; 0 means go-back-N. A NIC whose DeviceAttr.Ahead is 0 uses
	// go-back-N in any case. It is an extension of this project, of RC alone.
	Ahead int `json:",omitempty"`
}

// ToRTS are the attributes of the transition from RTR to RTS. UC and UD queue pairs use only
// SendPSN.
type ToRTS struct {
	SendPSN wire.PSN
	// Timeout is the local ACK timeout code: 4.096 µs · 2^Timeout; 0 never times out.
	Timeout uint8
	// RetryCount is how often a request is sent again after a timeout or sequence NAK, 0 to 7.
	RetryCount uint8
	// RNRRetry is how often a request is sent again after an RNR NAK, 0 to 6; 7 means without limit.
	RNRRetry uint8
	// MaxRdAtomic is how many READs and atomics of this side may be in flight.
	MaxRdAtomic int // 0 means 16; -1 means none
}

// QPAttr has the attributes of a queue pair.
type QPAttr struct {
	QPN     wire.QPN
	Type    QPType
	State   QPState
	Init    ToInit
	RTR     ToRTR
	RTS     ToRTS
	SendPSN wire.PSN // the next PSN to be sent
	RecvPSN wire.PSN // the next PSN that is expected
	// SendQueued and RecvQueued are the numbers of work requests that are not complete.
	SendQueued, RecvQueued int
	// RetransPkts is the number of retransmitted packets since the queue pair was created.
	RetransPkts uint64
	// Draining is true in SQD until all work requests that were started are complete.
	Draining bool
}

// QP is a queue pair.
type QP interface {
	QPN() wire.QPN
	Query() (QPAttr, error)
	// ToInit changes the state from RESET to INIT.
	ToInit(ToInit) error
	// ToRTR changes the state from INIT to RTR.
	ToRTR(ToRTR) error
	// ToRTS changes the state from RTR to RTS.
	ToRTS(ToRTS) error
	// Modify changes attributes without a transition: all of them or, on error, none. It fails with
	// ErrState if an attribute cannot change in this state.
	Modify(QPModify) error
	// ToSQD lets the send queue drain. ResumeRTS changes the state from SQD or SQE back to RTS.
	ToSQD() error
	ResumeRTS() error
	// ToError flushes all work requests that are not complete. ToReset removes them without
	// completions.
	ToError() error
	ToReset() error
	// PostSend queues work requests in order. If one is refused, the error has its index; those
	// before it are queued.
	PostSend(wr ...SendWR) error
	PostRecv(wr ...RecvWR) error
	// AttachMulticast makes a UD queue pair receive the datagrams to a group, an IPv6 or IPv4-mapped
	// multicast address. Each attached queue pair gets a copy of a datagram, also on the NIC that
	// sends it; a sender gets its own datagrams if it is attached. A second attachment changes
	// nothing. DetachMulticast ends an attachment; it fails with ErrInvalid if the queue pair is not
	// attached.
	AttachMulticast(group GID) error
	DetachMulticast(group GID) error
	// Destroy ends the queue pair. It fails with ErrBusy while the queue pair is attached to a group.
	Destroy() error
}
