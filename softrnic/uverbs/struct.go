package uverbs

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// The structs are those of ib_user_verbs.h and rdma_user_rxe.h, with shorter names and without the
// pointer to the memory for the answer. Reserved fields that nothing checks are blank.

type (
	// Context is the answer to GetContext. The library fills in the descriptor for asynchronous
	// events.
	Context struct{ AsyncFD, Vectors uint32 }

	// Device is the answer to QueryDevice.
	Device struct {
		FWVer                  uint64
		NodeGUID, SysImageGUID [8]byte
		MaxMRSize, PageSizeCap uint64
		VendorID, Part, HW     uint32
		DeviceQueues
		DeviceAtomics
		DeviceMore
		MaxPKeys       uint16
		AckDelay, Port uint8
		_              [4]uint8
	}
	// DeviceQueues are the capabilities, and the limits of queues and memory.
	DeviceQueues struct {
		MaxQP, MaxQPWR, CapFlags uint32
		MaxSGE, MaxSGERd         uint32
		MaxCQ, MaxCQE            uint32
		MaxMR, MaxPD             uint32
	}
	// DeviceAtomics are the limits of READs and atomics.
	DeviceAtomics struct{ QPRd, EERd, ResRd, QPInitRd, EEInitRd, AtomicCap uint32 }
	// DeviceMore are the limits of multicast groups, memory windows, address handles and shared
	// receive queues.
	DeviceMore struct {
		MaxEE, MaxRDD, MaxMW            uint32
		RawIPv6, RawEthernet            uint32
		Groups, GroupQPs, TotalGroupQPs uint32
		MaxAH, MaxFMR, MapPerFMR        uint32
		MaxSRQ, MaxSRQWR, MaxSRQSGE     uint32
	}
	// ExDevice follows Device in the answer to the extended QueryDevice.
	ExDevice struct {
		CompMask, Length          uint32
		ODP                       [3]uint64
		TimestampMask, CoreClock  uint64
		CapFlagsEx                uint64
		RSS                       [2]uint64
		MaxWQTypeRQ, RawPacketCap uint32
		TagMatching               [3]uint64
		Moderation                uint64
		MaxDM                     uint64
		XRCODP                    uint32
		_                         uint32
	}

	// PortArgs are the arguments of QueryPort, Port is the answer.
	PortArgs struct {
		Port uint8
		_    [7]uint8
	}
	Port struct {
		CapFlags, MaxMsg, BadPKey, QKeyViol uint32
		GIDs                                uint32
		PKeys, LID, SMLID                   uint16
		PortState
		MaxVL, SMSL, Timeout, InitType uint8
		PortLink
		Flags, _ uint8
	}
	PortState struct{ State, MaxMTU, ActiveMTU, LMC uint8 }
	PortLink  struct{ Width, Speed, Phys, LinkLayer uint8 }

	// Handle has the arguments of commands that only name an object. It is also the answer to AllocPD,
	// and to CreateCompChannel, where the library replaces H by the channel's descriptor.
	Handle struct{ H uint32 }

	// RegMRArgs are the arguments of RegMR, MR is the answer.
	RegMRArgs struct {
		Start, Length, VA uint64
		PD, Access        uint32
	}
	MR struct{ H, LKey, RKey uint32 }

	// ReregMRArgs are the arguments of ReregMR; Flags says what changes. Rereged is the answer.
	ReregMRArgs struct {
		H, Flags          uint32
		Start, Length, VA uint64
		PD, Access        uint32
	}
	Rereged struct{ LKey, RKey uint32 }

	// AllocDMArgs are the arguments of AllocDM; Align is the logarithm of the alignment. The answer is
	// a Handle with a reserved word.
	AllocDMArgs struct {
		Length   uint64
		Align, _ uint32
	}
	// DMPlace has the arguments of CopyToDM and CopyFromDM: Length bytes of device memory from Offset on.
	DMPlace struct {
		H, Length uint32
		Offset    uint64
	}
	// RegDMArgs are the arguments of RegDM. The answer is an MR.
	RegDMArgs struct {
		Offset, Length    uint64
		PD, DM, Access, _ uint32
	}
	// Limits is the answer to QueryLimits: the bytes of device memory that a program may have.
	Limits struct{ MaxDM uint64 }
	// DM is the answer to QueryDM, MRInfo the answer to QueryMR.
	DM     struct{ Length uint64 }
	MRInfo struct {
		Length     uint64
		LKey, RKey uint32
	}

	// RingArgs are the arguments of UseRing: a send ring of 64-byte blocks. Flags has bits like RingManaged. Rate is
	// the most entries a second; 0 means no limit.
	RingArgs struct {
		Addr                             uint64
		H, LKey, Blocks, Flags, Prefetch uint32
		Rate                             uint32
	}
	// DoorbellArgs are the arguments of Doorbell.
	DoorbellArgs struct{ H, Limit uint32 }
	// Number is the answer to CQNumber.
	Number struct{ Number, _ uint32 }

	// MWArgs are the arguments of AllocMW, MW is the answer.
	MWArgs struct {
		PD   uint32
		Type uint8
		_    [3]uint8
	}
	MW struct{ H, RKey uint32 }

	// AHAttr has the destination of an address handle.
	AHAttr struct {
		DestGID                [16]byte
		Flow                   uint32
		SourceGID, Hop, TClass uint8
		_                      uint8
		DLID                   uint16
		SL, PathBits, Rate     uint8
		Global, Port           uint8
		_                      uint8
	}
	// AHArgs are the arguments of CreateAH, AH is the answer. AH.Num is the number by which the
	// entries of a send queue (entry.go) name the address handle.
	AHArgs struct {
		User  uint64
		PD, _ uint32
		Attr  AHAttr
	}
	AH struct{ H, Num, _ uint32 }

	// Area is the place of a ring in the memory file of a context (struct mminfo); see WelcomeArea.
	Area struct {
		Offset  uint64
		Size, _ uint32
	}

	// CQArgs are the arguments of CreateCQ, ExCQArgs those of the extended command; CQ is the
	// answer.
	CQArgs struct {
		User        uint64
		CQE, Vector uint32
		Channel     int32
		_           uint32
	}
	ExCQArgs struct {
		User            uint64
		CQE, Vector     uint32
		Channel         int32
		CompMask, Flags uint32
		_               uint32
	}
	CQ struct{ H, CQE uint32 }
	// ResizeCQArgs are the arguments of ResizeCQ. The answer is a CQSize, and behind it the Area of
	// the new ring.
	ResizeCQArgs struct{ H, CQE uint32 }
	CQSize       struct{ CQE, _ uint32 }
	// ModifyCQArgs are the arguments of ModifyCQ. An event is raised after Count completions, or
	// Period microseconds after the first of them.
	ModifyCQArgs struct {
		H, Mask       uint32
		Count, Period uint16
		Reserved      uint32
	}
	// Ex follows CQ or QP in the answer to an extended command: which optional fields are valid
	// (none), and the length of CQ or QP together with Ex in bytes.
	Ex struct{ CompMask, Length uint32 }

	// Notify has the arguments of ReqNotifyCQ. Solicited is not 0 if only a solicited completion
	// raises the event.
	Notify struct{ H, Solicited uint32 }
	// Reported is the answer to DestroyQP and DestroySRQ. CQReported is the answer to DestroyCQ. They
	// count the events that the program must acknowledge before the destroy function of libibverbs
	// returns: asynchronous events, and those of the completion channel.
	Reported   struct{ Events uint32 }
	CQReported struct{ Completions, Events uint32 }

	// QPArgs are the arguments of CreateQP, QP is the answer.
	QPArgs struct {
		User                                 uint64
		PD, SendCQ, RecvCQ, SRQ              uint32
		MaxSend, MaxRecv, MaxSGE, MaxRecvSGE uint32
		MaxInline                            uint32
		SignalAll, Type, HasSRQ              uint8
		Own                                  uint8 // not 0: by the provider of this project, which knows queue pairs of XRC
	}
	// ExQPArgs are the arguments of the extended CreateQP.
	ExQPArgs struct {
		QPArgs
		CompMask, CreateFlags, IndTable, SourceQPN uint32
	}
	QP struct {
		H, QPN                               uint32
		MaxSend, MaxRecv, MaxSGE, MaxRecvSGE uint32
		MaxInline, _                         uint32
	}

	// QPDest is the address of a peer.
	QPDest struct {
		DestGID                [16]byte
		Flow                   uint32
		DLID, _                uint16
		SourceGID, Hop, TClass uint8
		SL, PathBits, Rate     uint8
		Global, Port           uint8
	}
	// QPNumbers and QPState have attributes that are in both ModifyQPArgs and QPAttr.
	QPNumbers struct {
		QKey, RecvPSN, SendPSN, DestQPN, Access uint32
		PKeyIndex, AltPKeyIndex                 uint16
	}
	QPState struct {
		State, Current, PathMTU, Migration        uint8
		Draining                                  uint8 // of a modify command not used here: an event is raised whenever the send queue is drained
		MaxRdAtomic, MaxDestRdAtomic              uint8
		MinRNRTimer, Port, Timeout                uint8
		RetryCount, RNRRetry, AltPort, AltTimeout uint8
	}
	// ModifyQPArgs are the arguments of ModifyQP.
	ModifyQPArgs struct {
		Dest, Alt QPDest
		H, Mask   uint32
		QPNumbers
		QPState
		_ [2]uint8
	}
	// QueryQPArgs are the arguments of QueryQP, QPAttr is the answer.
	QueryQPArgs struct{ H, Mask uint32 }
	// Posted is the answer to PostSend: the number of the work request that was refused, from 1 on; 0
	// means none.
	Posted struct{ Bad uint32 }
	QPAttr struct {
		Dest, Alt                            QPDest
		MaxSend, MaxRecv, MaxSGE, MaxRecvSGE uint32
		MaxInline                            uint32
		QPNumbers
		QPState
		SignalAll uint8
		_         [5]uint8
	}

	// MulticastArgs are the arguments of AttachMulticast and DetachMulticast.
	MulticastArgs struct {
		Group [16]byte
		H     uint32
		LID   uint16
		_     uint16
	}

	// SRQArgs are the arguments of CreateSRQ, and SRQ is the answer. In the answer, SRQ is followed
	// by the Area of the ring and by SRQNum, the number of the queue.
	SRQArgs struct {
		User                     uint64
		PD, MaxWR, MaxSGE, Limit uint32
	}
	SRQ    struct{ H, MaxWR, MaxSGE, Num uint32 }
	SRQNum struct{ Num, _ uint32 }
	// ModifySRQArgs are the arguments of ModifySRQ.
	ModifySRQArgs struct{ H, Mask, MaxWR, Limit uint32 }
	// SRQAttr is the answer to QuerySRQ.
	SRQAttr struct{ MaxWR, MaxSGE, Limit, _ uint32 }

	// XRCDArgs are the arguments of OpenXRCD: the program's descriptor of the file that names the domain, or -1,
	// and flags of open(2). The answer is a Handle.
	XRCDArgs struct {
		FD    int32
		Flags uint32
	}
	// XSRQArgs are the arguments of CreateXSRQ. The answer is that of CreateSRQ.
	XSRQArgs struct {
		User                     uint64
		Type, PD                 uint32
		MaxWR, MaxSGE, Limit     uint32
		MaxTags, XRCD, CompleteQ uint32
	}
	// OpenQPArgs are the arguments of OpenQP. The answer is that of CreateQP.
	OpenQPArgs struct {
		User      uint64
		XRCD, QPN uint32
		Type      uint8
		_         [7]uint8
	}
)

// Object returns the handle of the object that a command is about. For a command that makes an
// object in a protection domain, this is the handle of the domain.
func (a Handle) Object() uint32        { return a.H }
func (a ResizeCQArgs) Object() uint32  { return a.H }
func (a RingArgs) Object() uint32      { return a.H }
func (a DoorbellArgs) Object() uint32  { return a.H }
func (a ModifyCQArgs) Object() uint32  { return a.H }
func (a Notify) Object() uint32        { return a.H }
func (a ModifyQPArgs) Object() uint32  { return a.H }
func (a QueryQPArgs) Object() uint32   { return a.H }
func (a MulticastArgs) Object() uint32 { return a.H }
func (a ModifySRQArgs) Object() uint32 { return a.H }
func (a RegMRArgs) Object() uint32     { return a.PD }
func (a ReregMRArgs) Object() uint32   { return a.H }
func (a DMPlace) Object() uint32       { return a.H }
func (a RegDMArgs) Object() uint32     { return a.PD }
func (a MWArgs) Object() uint32        { return a.PD }
func (a AHArgs) Object() uint32        { return a.PD }
func (a SRQArgs) Object() uint32       { return a.PD }
func (a XSRQArgs) Object() uint32      { return a.PD }
func (a OpenQPArgs) Object() uint32    { return a.XRCD }

// Bits of ModifyQPArgs.Mask (enum ibv_qp_attr_mask).
const (
	MaskState      = 1 << 0
	MaskCurrent    = 1 << 1
	MaskSQDNotify  = 1 << 2
	MaskAccess     = 1 << 3
	MaskPKeyIndex  = 1 << 4
	MaskPort       = 1 << 5
	MaskQKey       = 1 << 6
	MaskDest       = 1 << 7
	MaskPathMTU    = 1 << 8
	MaskTimeout    = 1 << 9
	MaskRetry      = 1 << 10
	MaskRNRRetry   = 1 << 11
	MaskRecvPSN    = 1 << 12
	MaskRdAtomic   = 1 << 13
	MaskAltPath    = 1 << 14
	MaskRNRTimer   = 1 << 15
	MaskSendPSN    = 1 << 16
	MaskDestAtomic = 1 << 17
	MaskMigration  = 1 << 18
	MaskDestQPN    = 1 << 20
)

// Bits of ReregMRArgs.Flags (enum ibv_rereg_mr_flags).
const (
	ReregTranslation = 1 << 0
	ReregPD          = 1 << 1
	ReregAccess      = 1 << 2
)

// Bits of ExCQArgs.Flags (enum ib_uverbs_ex_create_cq_flags). With CQTimestamps, each completion in the
// ring has a timestamp; see PutTimestamp. With CQIgnoreOverrun, completions without room are dropped.
const (
	CQTimestamps    = 1 << 0
	CQIgnoreOverrun = 1 << 1
)

// MaskModerate is the only supported bit of ModifyCQArgs.Mask.
const MaskModerate = 1 << 0

// Bits of ModifySRQArgs.Mask.
const (
	MaskSRQSize  = 1 << 0
	MaskSRQLimit = 1 << 1
)

// Types of queue pairs (enum ibv_qp_type). A TypeXRCTarget has the handle of an XRC domain in QPArgs.PD.
const (
	TypeRC           = 2
	TypeUC           = 3
	TypeUD           = 4
	TypeXRCInitiator = 9
	TypeXRCTarget    = 10
)

// Types of shared receive queues (enum ibv_srq_type).
const (
	SRQBasic = 0
	SRQXRC   = 1
)

// FirstTarget is the first handle of targets of XRC. The handle of another queue pair is the number of its bell,
// which is smaller; a target has no send queue, and so no bell.
const FirstTarget = 4096

// Types of memory windows (enum ibv_mw_type).
const (
	MWType1 = 1
	MWType2 = 2
)

// Access bits of a program (enum ibv_access_flags) that package verbs does not have, or has with
// another value. ZeroBased selects a region whose first virtual address is 0.
//
// OnDemand selects a region whose memory need not be mapped when it is registered: the NIC looks at each
// access what is there. HugePages says that the memory is in huge pages, which makes no difference here.
// Both need OwnProvider, by which the provider of this project says that it knows them: rdma-core's
// provider for the kernel's rxe driver says that the device has no memory on demand.
const (
	ZeroBased       = 1 << 5
	OnDemand        = 1 << 6
	HugePages       = 1 << 7
	OwnProvider     = 1 << 31
	flushGlobal     = 1 << 8
	flushPersistent = 1 << 9
)

// Granted converts the access rights that a program's queue pair grants its peer. A queue pair may
// have the right to flush to persistence, although no region has it.
func Granted(bits uint32) verbs.Access {
	access, _ := AccessOf(bits)
	if bits&flushPersistent != 0 {
		access |= verbs.FlushPersistent
	}
	return access & verbs.RemoteRights
}

// AccessOf converts access bits of a region or window. others has the bits that it cannot convert:
// ZeroBased, and rights that regions do not have here, such as the right to flush to persistence.
func AccessOf(bits uint32) (access verbs.Access, others uint32) {
	const same = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.MWBind
	access = verbs.Access(bits) & same
	if bits&flushGlobal != 0 {
		access |= verbs.FlushGlobal
	}
	return access, bits &^ (uint32(same) | flushGlobal)
}

// Bits of RingArgs.Flags, for the fields of verbs.RingInit with these names.
const (
	RingManaged  = 1 << 0
	RingChecked  = 1 << 1
	RingCounts16 = 1 << 2
)

// ShareName begins the name of a memory file (a memfd) that the daemon makes for ShareMemory; the
// file's number follows (Share.Number).
const ShareName = "rdmalab-share-"

type (
	// ShareArgs are the arguments of ShareMemory: addresses that the program is about to register.
	ShareArgs struct{ Start, End uint64 }
	// Share is the answer: the pages which the library replaces by the memory file whose descriptor
	// comes with the answer, and the file's number. Length is 0, and there is no descriptor, if
	// nothing is left that can be shared.
	Share struct {
		From, Length uint64
		Number       uint32
		_            uint32
	}
	// UnshareArgs are the arguments of UnshareMemory. Closing is 1 if the connection ends next.
	UnshareArgs struct{ Closing uint32 }
	// Unshare is the answer: the number of a memory file, which the library replaces by private pages
	// wherever the program has mapped it. 0: there is none.
	Unshare struct{ Number uint32 }
)
