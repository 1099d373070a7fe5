package afpacket

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Errors of Open and of a port in use.
var (
	// ErrPrivilege: this process has no permission for raw sockets.
	ErrPrivilege = errors.New("raw sockets are not permitted: run as root, or with CAP_NET_RAW (and CAP_NET_ADMIN)")
	// ErrNoInterface: the interface is not in this network namespace.
	ErrNoInterface = errors.New("no such network interface in this network namespace")
	// ErrGone: the interface was removed while the port was open.
	ErrGone = errors.New("the network interface was removed")
	// ErrClosed: the port was closed before the call.
	ErrClosed = errors.New("port is closed")
)

// Mode says which frames a port receives from its interface, and whether the kernel gets them, too.
type Mode uint8

// Modes.
const (
	// Host receives RoCEv2, IGMP and MLD. It keeps RoCEv2 from the kernel, which gets all other
	// frames, also IGMP and MLD.
	Host Mode = iota
	// Switch receives all frames. The kernel gets none, if Info.Silencer is "tcx".
	Switch
	// Tap receives a copy of each frame, for measurements and tools; the kernel gets the frame
	// itself.
	Tap
)

// Defaults and limits.
const (
	defaultSlots = 512
	maxSlots     = 1 << 16
	// batchSize is the largest number of frames that one Recv returns and one system call sends.
	batchSize = 64
)

// Config describes a port to open.
type Config struct {
	// Ifname is the interface, looked up in the network namespace of the calling thread.
	Ifname string
	// Mode says which frames the port receives.
	Mode Mode
	// Index becomes Frame.Port of received frames.
	Index int
	// Slots is the number of frames in the receive ring; 0 means 512. A ring that does not fit into
	// the processor's cache is slower than a small one.
	Slots int
	// Also, in mode Host, is the number of a further UDP port: datagrams to it are received like
	// those to port 4791. 0 means none.
	Also uint16
	// Pauses, in mode Host, receives pause frames (IEEE 802.1Qbb), too.
	Pauses bool
	// Promiscuous makes the interface receive frames to all addresses, until the port is closed or its
	// process ends.
	Promiscuous bool
	// EtherType, in mode Tap, selects frames of this type; 0 means all.
	EtherType uint16
	// Merge sends consecutive RoCEv2 packets or 1RMA messages with the same addresses and UDP ports as
	// one super-frame, as NICs with segmentation offload do (see packetio.FirstRun). A receiver, or a
	// capture in between, splits it.
	Merge bool
	// NoRing receives with recvmmsg instead of a ring.
	NoRing bool
	// NoTCX disables the BPF program that keeps the kernel from handling RoCEv2 packets; the port
	// uses sockets instead (see Info.Silencer).
	NoTCX bool
	// Unaddressed says that the namespace of the interface has no addresses and no IPv6, so that the kernel
	// answers nothing there, and needs no program that keeps frames from it. To attach or to detach
	// one takes some 10 ms, in which no other interface of the machine can be changed.
	Unaddressed bool
}

func (c *Config) Validate() error {
	switch {
	case c.Ifname == "" || len(c.Ifname) > 15:
		return fmt.Errorf("afpacket: interface name %q: want 1 to 15 characters", c.Ifname)
	case c.Mode > Tap:
		return fmt.Errorf("afpacket: unknown mode %d", c.Mode)
	case c.Slots < 0 || c.Slots > maxSlots:
		return fmt.Errorf("afpacket: %d ring slots: want 1 to %d, or 0 for %d", c.Slots, maxSlots, defaultSlots)
	case c.EtherType != 0 && c.Mode != Tap:
		return errors.New("afpacket: an EtherType can only be chosen in mode Tap")
	}
	return nil
}

// Info says how a port was opened, for logs and status pages.
type Info struct {
	Ifname  string `json:"ifname"`
	Ifindex int    `json:"ifindex"`
	MAC     string `json:"mac"`
	MTU     int    `json:"mtu"`
	// Receive is "ring 512x4352" or "recvmmsg".
	Receive string `json:"receive"`
	// Silencer is the mechanism that keeps the kernel from answering RoCEv2: "tcx", "socket" or
	// "none".
	Silencer string `json:"silencer"`
	// Notes say which features the kernel or the interface does not offer, what the port does instead,
	// and the error if there was one.
	Notes []string `json:"notes,omitempty"`
}

var (
	_ packetio.Port   = (*Port)(nil)
	_ packetio.Waiter = (*Waiter)(nil)
)
