package ucma

import "github.com/rdmalab/rdmalab/softrnic/uverbs"

// Op is the number of a command that librdmacm writes to /dev/infiniband/rdma_cm.
type Op uint32

// Commands (RDMA_USER_CM_CMD_*).
const (
	CreateID Op = iota
	DestroyID
	BindIP
	ResolveIP
	ResolveRoute
	QueryRoute
	Connect
	Listen
	Accept
	Reject
	Disconnect
	InitQPAttr
	GetEvent
	GetOption
	SetOption
	Notify
	JoinIPMulticast
	LeaveMulticast
	MigrateID

	JoinMulticast Op = 22
	WriteEvent    Op = 24
)

// Commands that the preloaded library itself sends when the program opens or closes an event
// channel.
const (
	OpenChannel  Op = 0x7fff0001
	CloseChannel Op = 0x7fff0002
)

// Port spaces (enum rdma_ucm_port_space).
const (
	spaceIB  = 0x013f
	spaceTCP = 0x0106
	spaceUDP = 0x0111
)

// Types of the queue pair of an identifier (enum ibv_qp_type).
const (
	typeRC           = uverbs.TypeRC
	typeUC           = uverbs.TypeUC
	typeUD           = uverbs.TypeUD
	typeXRCInitiator = uverbs.TypeXRCInitiator
	typeXRCTarget    = uverbs.TypeXRCTarget
)

// privateRoom is the size of the field for private data in arguments and events, in bytes.
const privateRoom = 256

// The structs are those of rdma_user_cm.h, with shorter names. Response is the address in the
// program's memory at which the preloaded library stores the answer.
type (
	createID struct {
		UID, Response uint64
		Space         uint16
		QPType        uint8
		_             [5]uint8
	}
	// Handle is the answer to commands that make an identifier or a membership in a group.
	Handle struct{ ID uint32 }

	destroyID struct {
		Response uint64
		ID, _    uint32
	}
	// Reported is the answer to DestroyID, MigrateID and LeaveMulticast: how many events of the
	// identifier or membership the program has read.
	Reported struct{ Events uint32 }

	// address is a struct sockaddr_in6, or a struct sockaddr_in in the same bytes.
	address [28]byte

	bindIP struct {
		Response uint64
		Addr     address
		ID       uint32
	}
	resolveIP struct {
		Src, Dst    address
		ID, Timeout uint32
	}
	resolveRoute struct{ ID, Timeout uint32 }
	query        struct {
		Response   uint64
		ID, Option uint32
	}
	// path is a struct ib_user_path_rec. As in the kernel's header, byte arrays are in network byte
	// order and fields of type uint32 in host byte order.
	path struct {
		DstGID, SrcGID          [16]byte
		DstLID, SrcLID          [2]byte
		RawTraffic              uint32
		FlowLabel               [4]byte
		Reversible, MTU         uint32
		PKey                    [2]byte
		HopLimit, TrafficClass  uint8
		Paths, SL               uint8
		MTUSelector, RateSel    uint8
		Rate, LifeSel, LifeTime uint8
		Preference              uint8
	}
	route struct {
		NodeGUID [8]byte
		Paths    [2]path
		Src, Dst address
		NumPaths uint32
		Port     uint8
		_        [3]uint8
		Index, _ uint32
	}

	// connParam has the parameters of a connection.
	connParam struct {
		QPN, QKey                         uint32
		Private                           [privateRoom]byte
		PrivateLen, SRQ, Resources, Depth uint8
		FlowControl, Retry, RNRRetry      uint8
		Valid                             uint8
	}
	// datagramParam has the parameters of a datagram service.
	datagramParam struct {
		QPN, QKey  uint32
		AH         uverbs.AHAttr
		Private    [privateRoom]byte
		PrivateLen uint8
		_          [7]uint8
	}
	connect struct {
		Param connParam
		ID, _ uint32
	}
	listen struct{ ID, Backlog uint32 }
	accept struct {
		UID   uint64
		Param connParam
		ID, _ uint32
	}
	reject struct {
		ID                 uint32
		PrivateLen, Reason uint8
		_                  [2]uint8
		Private            [privateRoom]byte
	}
	// joinIPMulticast and joinMulticast are answered with a Handle, which LeaveMulticast takes in a
	// destroyID.
	joinIPMulticast struct {
		Response, UID uint64
		Addr          address
		ID            uint32
	}
	joinMulticast struct {
		Response, UID uint64
		ID            uint32
		Len, Flags    uint16
		Addr          [128]byte // a struct sockaddr_storage
	}
	named      struct{ ID uint32 }
	initQPAttr struct {
		Response  uint64
		ID, State uint32
	}
	setOption struct {
		Value                uint64
		ID, Level, Name, Len uint32
	}
	notify struct{ ID, Event uint32 }
	// writeEvent: Param has the value that the program reads in the event. The struct in the kernel's header has
	// room for the parameters of a connection behind it, which no command uses.
	writeEvent struct {
		ID, _        uint32
		Kind, Status uint32
		Param        uint64
	}
	// migrateID: FD is the descriptor of the identifier's former channel.
	migrateID struct {
		Response uint64
		ID, FD   uint32
	}

	// qpAttr is a struct ib_uverbs_qp_attr: the attributes of a transition. Current, Migration,
	// Alt, Queues, Notify and Draining are zero in all answers.
	qpAttr struct {
		Mask, State, Current, PathMTU, Migration uint32
		QKey, RecvPSN, SendPSN, DestQPN, Access  uint32
		AH, Alt                                  uverbs.AHAttr
		Queues                                   [5]uint32
		PKeys                                    [2]uint16
		QPTimes
		_ [7]uint8
	}
	// QPTimes has counters and times of a queue pair.
	QPTimes struct {
		Notify, Draining                          uint8
		MaxRdAtomic, MaxDestRdAtomic, MinRNRTimer uint8
		Port, Timeout, RetryCount, RNRRetry       uint8
	}

	// event is a struct rdma_ucm_event_resp. Param has a connParam, a datagramParam or zeros.
	event struct {
		UID              uint64
		ID, Kind, Status uint32
		Param            [datagramParamLen]byte
		_                uint32
		ECE              [2]uint32
	}
)

// id returns the handle of the identifier that a command is about.
func (a accept) id() uint32       { return a.ID }
func (a bindIP) id() uint32       { return a.ID }
func (a connect) id() uint32      { return a.ID }
func (a destroyID) id() uint32    { return a.ID }
func (a initQPAttr) id() uint32   { return a.ID }
func (a listen) id() uint32       { return a.ID }
func (a migrateID) id() uint32    { return a.ID }
func (a named) id() uint32        { return a.ID }
func (a notify) id() uint32       { return a.ID }
func (a query) id() uint32        { return a.ID }
func (a reject) id() uint32       { return a.ID }
func (a resolveIP) id() uint32    { return a.ID }
func (a resolveRoute) id() uint32 { return a.ID }
func (a writeEvent) id() uint32   { return a.ID }

// datagramParamLen is the length of the longest parameters of an event in bytes.
const datagramParamLen = 304

// Kinds of events (enum rdma_cm_event_type).
const (
	addrResolved    = 0
	addrError       = 1
	routeResolved   = 2
	connectRequest  = 4
	connectResponse = 5
	unreachable     = 7
	rejected        = 8
	established     = 9
	disconnected    = 10
	deviceRemoval   = 11
	multicastJoin   = 12
	timewaitExit    = 15
	userEvent       = 18 // one that the program writes by rdma_write_cm_event
	internalEvent   = 19 // one that librdmacm writes for itself, as for rdma_resolve_addrinfo
)
