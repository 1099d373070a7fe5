package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Config describes a NIC.
type Config struct {
	// Name is the NIC's name in listings and errors.
	Name string
	MAC  wire.MAC
	// LinkMTU is the largest IP packet of the link in bytes. 0 means 4200, enough for path MTU
	// 4096.
	LinkMTU int
	// GIDs are the NIC's addresses; at least one.
	GIDs []verbs.GID
	// Rand generates queue pair numbers, keys and the first IP ID; required. After New, only the
	// engine may use it.
	Rand *rand.Rand
	// Resolve returns the MAC address of a peer's IP address; required. It must not block.
	Resolve func(netip.Addr) (wire.MAC, bool)
	// PKeys is the P_Key table of the port: at most MaxPKeys entries, each of a different partition.
	// nil means only 0xffff, the default partition with full membership.
	PKeys []uint16
	// TOS is the TOS byte (IPv4) or traffic class (IPv6), that is DSCP and ECN, of packets for which
	// none was chosen (TrafficClass 0).
	TOS uint8
	// DistinctKeys makes the L_Key and the R_Key of a region different numbers (mem.NewDistinct).
	DistinctKeys bool
	// NoICRCCheck accepts packets with any ICRC.
	NoICRCCheck bool
	// Window is passed to transport.Config for every queue pair. 0 means the default of that type.
	Window int
	Acks   Acks
	// Recovery is passed to transport.Config for every queue pair.
	Recovery transport.Recovery
	// CMTimeout is passed to cm.Config as ResponseTimeout: the time after which the connection manager
	// repeats a message that was not answered. 0 means the default of that type.
	CMTimeout uint8
	// RingPaced delays each entry of a send ring by its execution time, and executes at most one entry
	// of a ring in one Tick. If it is false, the entries of one Tick take effect at once, and the ring
	// then waits for the sum of their execution times.
	RingPaced bool
	// RingCosts has the execution times of entries of send rings in host memory, and in the NIC's own.
	RingCosts cost.Ring
	// Loopback is how long a packet from the NIC to itself takes. 0 means that it is delivered in the
	// step in which it is sent. Only with a Loopback can the NIC fetch an entry of a send ring while a
	// request that changes this entry is in flight.
	Loopback time.Duration
	// Congestion makes the NIC a notification point and a reaction point: its packets may be marked, it
	// answers marked packets by CNPs, and CNPs slow its queue pairs. nil means none of this. New copies
	// it.
	Congestion *congestion.Config
	// Open makes packets between connected queue pairs leave without being encoded (packetio.Open). The
	// port of the NIC must pass them on.
	Open   bool
	Limits Limits
}

// Limits are the largest sizes of a NIC's tables. The zero value of a field means its default.
type Limits struct {
	PDs  int // 0 means 1024
	MRs  int // 0 means 65536
	CQs  int // 0 means 16384
	QPs  int // 0 means 16384
	AHs  int // 0 means 65536
	SRQs int // 0 means 4096
	// CQE is the depth of one completion queue; 0 means 1 << 22.
	CQE int
	// QPWR is the depth of one work queue; 0 means 16384.
	QPWR int
	// SGE is the number of SGEs of one work request; 0 means 32.
	SGE int
	// Inline is the size of one work request's inline data in bytes; 0 means 1024.
	Inline int
	// RdAtomic is the number of READs and atomics of one queue pair that may be in flight in each
	// direction; 0 means 128.
	RdAtomic int
	// DeviceMemory is the memory on the NIC, in bytes; 0 means 262144.
	DeviceMemory int
	// Attachments is the number of attachments to multicast groups, of all queue pairs together; 0
	// means 4096.
	Attachments int
	// GroupQPs is the number of queue pairs that one group may have, because each gets a copy of
	// every datagram; 0 means 64.
	GroupQPs int
	// AsyncEvents is the number of asynchronous events kept until an application fetches them; 0
	// means 256.
	AsyncEvents int
}

const (
	defaultLinkMTU = 4200
	// MaxPKeys is the largest number of partitions of a port.
	MaxPKeys = 128
	// maxGIDs is the largest number of addresses of a port.
	maxGIDs = 64
)

// limit is a field of Limits: its name, its value and its default.
type limit struct {
	name  string
	value *int
	def   int
}

func (l *Limits) table() []limit {
	return []limit{
		{"PDs", &l.PDs, 1024},
		{"MRs", &l.MRs, 65536},
		{"CQs", &l.CQs, 16384},
		{"QPs", &l.QPs, 16384},
		{"AHs", &l.AHs, 65536},
		{"SRQs", &l.SRQs, 4096},
		{"CQE", &l.CQE, 1 << 22},
		{"QPWR", &l.QPWR, 16384},
		{"SGE", &l.SGE, 32},
		{"Inline", &l.Inline, 1024},
		{"RdAtomic", &l.RdAtomic, 128},
		{"Attachments", &l.Attachments, 4096},
		{"GroupQPs", &l.GroupQPs, 64},
		{"AsyncEvents", &l.AsyncEvents, 256},
		{"DeviceMemory", &l.DeviceMemory, 256 << 10},
	}
}

func (c Config) withDefaults() Config {
	c.LinkMTU = cmp.Or(c.LinkMTU, defaultLinkMTU)
	if c.Congestion != nil {
		own := *c.Congestion
		c.Congestion = &own
	}
	if len(c.PKeys) == 0 {
		c.PKeys = []uint16{wire.DefaultPKey}
	}
	for _, l := range c.Limits.table() {
		*l.value = cmp.Or(*l.value, l.def)
	}
	return c
}

func (c Config) Validate() error {
	switch {
	case c.Rand == nil:
		return fmt.Errorf("engine config: Rand is nil; pass a seeded generator")
	case c.Resolve == nil:
		return fmt.Errorf("engine config: Resolve is nil; pass the neighbour table")
	case len(c.GIDs) == 0 || len(c.GIDs) > maxGIDs:
		return fmt.Errorf("engine config: %d GIDs; give 1 to %d addresses", len(c.GIDs), maxGIDs)
	case c.MAC == wire.MAC{} || c.MAC[0]&1 != 0:
		return fmt.Errorf("engine config: MAC %v is no unicast address", c.MAC)
	case c.Loopback < 0:
		return fmt.Errorf("engine config: Loopback is %v; it cannot be negative", c.Loopback)
	case c.LinkMTU != 0 && c.LinkMTU < int(verbs.MTU256)+ipv4Overhead:
		return fmt.Errorf("engine config: link MTU %d cannot hold the smallest path MTU; give at least %d",
			c.LinkMTU, int(verbs.MTU256)+ipv4Overhead)
	}
	if err := validPKeys(c.PKeys); err != nil {
		return err
	}
	if c.Congestion != nil {
		if err := c.Congestion.Validate(); err != nil {
			return fmt.Errorf("engine config: congestion: %w", err)
		}
	}
	for _, l := range c.Limits.table() {
		if *l.value < 0 {
			return fmt.Errorf("engine config: limit %s is %d; it cannot be negative", l.name, *l.value)
		}
	}
	return nil
}

func validPKeys(table []uint16) error {
	if len(table) > MaxPKeys {
		return fmt.Errorf("engine config: %d P_Keys; a port has at most %d", len(table), MaxPKeys)
	}
	for i, k := range table {
		if k&^verbs.PKeyMember == 0 {
			return fmt.Errorf("engine config: P_Key %#x names no partition; use 1 to 0x7fff, plus 0x8000 for a full member", k)
		}
		for _, other := range table[:i] {
			if k&^verbs.PKeyMember == other&^verbs.PKeyMember {
				return fmt.Errorf("engine config: P_Keys %#x and %#x are of one partition; give one of them", other, k)
			}
		}
	}
	return nil
}

// Acks says how queue pairs acknowledge; 0 means the defaults of transport.Config.
type Acks struct {
	// Every is Config.AckEvery of the package transport: of how many request packets one asks for an ACK.
	Every int
	// Most is Config.Acks of that package: how many requests one ACK may answer.
	Most int
}
