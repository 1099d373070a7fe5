package nldev

import "net/netip"

// Source describes the devices that a program sees. The functions are called when a request needs their
// results, and return copies.
type Source struct {
	// Devices are the devices, in the order of their indexes.
	Devices func() []Device
	// Objects are the objects of the device with an index, of one kind.
	Objects func(device uint32, kind Kind) []Object
	// Counters are the counters of the port of the device with an index.
	Counters func(device uint32) []Counter
	// SeesPIDs: process IDs mean something to the program, because it is in the PID namespace to which
	// they belong.
	SeesPIDs bool
	// SeesKeys: the program may know the L_Keys and R_Keys of all memory regions. Linux tells them only
	// to programs with CAP_NET_ADMIN.
	SeesKeys bool
}

// Device is a device with one port.
type Device struct {
	Index               uint32
	Name, Firmware      string
	NodeGUID, ImageGUID uint64 // in the byte order of the machine
	Caps                uint64 // enum ibv_device_cap_flags
	Port                Port
	// Chardev is the name of its character device in /dev/infiniband, and ChardevABI the version of the
	// driver's part of the commands.
	Chardev    string
	ChardevABI uint64
}

// Port is the state of a port.
type Port struct {
	State, Physical uint8  // as ibv_query_port and sysfs have them
	Ifname          string // the network interface; "" means that it is not known
	Ifindex         uint32
}

// Counter is a counter of a port.
type Counter struct {
	Name  string
	Value uint64
}

// Kind is a kind of objects.
type Kind uint8

// Kinds of objects.
const (
	PD Kind = iota
	CQ
	QP
	CMID
	MR
	Context
	SRQ
	kinds
)

// Owner says to which process an object belongs: PID in the namespace of the daemon, 0 if it is in
// another one. Kernel is the name of a part of the daemon if the object belongs to that, else "".
type Owner struct {
	PID    uint32
	Kernel string
}

// Object is an object of a device. Number is that by which tools name it; which other fields count
// depends on its kind.
type Object struct {
	Number uint32
	Owner  Owner
	PD     uint32 // of a QP, MR, SRQ
	Uses   uint64 // of a PD, CQ: the number of objects that use it
	Depth  uint32 // of a CQ: its capacity
	Queue  Queue  // of a QP
	Memory Memory // of an MR
	Conn   Conn   // of a CMID
	// Users are, of an SRQ, the numbers of the queue pairs that use it, in ascending order.
	Users []uint32
}

// Queue is what a queue pair has beyond other objects. Type and State are those of ibv_query_qp.
type Queue struct {
	Type, State      uint8
	Connected        bool // its service has one peer
	Remote           uint32
	SendPSN, RecvPSN uint32
}

// Memory is what a memory region has beyond other objects.
type Memory struct {
	LKey, RKey uint32
	Length     uint64 // bytes
}

// Conn is what an identifier of the connection manager has beyond other objects.
type Conn struct {
	QP       uint32 // the number of its queue pair; 0 if there is none
	Type     uint8  // the service of its queue pair, as ibv_query_qp has it
	Space    uint32 // enum rdma_port_space
	State    uint8  // enum rdma_cm_state
	Src, Dst netip.AddrPort
}
