package nic

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Config describes a NIC. A field that is not marked as required has a default.
type Config struct {
	MAC wire.MAC // required
	// Addr is the NIC's IPv4 address; required.
	Addr netip.Addr
	// LinkMTU is the length of the largest IP packet of the link in bytes; 0 means 4200, enough for
	// an operation in one packet. With a smaller LinkMTU, the length of a data message's body is
	// the largest power of two that fits.
	LinkMTU int
	// Rand makes the keys of regions and the first generations of slots and tickets; required. On a
	// rack, its numbers must not be predictable.
	Rand *rand.Rand
	// Resolve returns the MAC address of a peer; required. It must not block. The bool is false if
	// the address is not known.
	Resolve func(netip.Addr) (wire.MAC, bool)
	// Epoch is the number of this incarnation of the NIC, from 0 to MaxEpoch. The owner of the NIC
	// must store the number, and give each incarnation a larger one than all earlier ones: Epoch is
	// a part of every initialisation vector, and a vector must not repeat under a key.
	Epoch uint32
	// RTT is the round-trip time of the rack; 0 means 50 µs. The defaults below depend on it.
	RTT time.Duration
	// DispatchTimeout is how long a command may wait for the window; 0 means 2 RTT. Timeout is how
	// long the next message of an operation may take; 0 means 4 RTT. All NICs of a rack should have
	// the same values.
	DispatchTimeout, Timeout time.Duration
	// Window is the size of the solicitation window: how many inbound bytes may be requested and
	// not yet have arrived. 0 means 65536.
	Window int
	// Threshold is how many bytes all waiting inbound requests may ask for together. If a request
	// would exceed it, the NIC answers with a NACK. 0 means the bytes that the link sends in
	// Timeout − RTT − DispatchTimeout, at least 4096, or 65536 if Rate is 0.
	Threshold int
	// Rate is the rate at which the NIC sends data, in bits per second; 0 means that it sends data
	// at once, but at most 64 messages in one call of Frame or Tick.
	Rate int64
	// Slots is how many commands may be in flight. Tickets is how many inbound WRITEs and REKEYs
	// may be in progress. Regions is the largest number of regions. 0 means 1024 each.
	Slots, Tickets, Regions int
}

// Bounds of a configuration.
const (
	// MaxEpoch is the largest Epoch.
	MaxEpoch = 1<<24 - 1
	maxTable = 1 << 16 // the largest number of slots, tickets or regions
	// maxTimeout is the largest timeout: the body of a pull has 32 bits for a timeout in
	// nanoseconds.
	maxTimeout = time.Second
	minMTU     = onerma.Overhead + onerma.Unit // room for one unit of data
)

func (c Config) withDefaults() Config {
	c.LinkMTU = cmp.Or(c.LinkMTU, 4200)
	c.RTT = cmp.Or(c.RTT, 50*time.Microsecond)
	c.DispatchTimeout = cmp.Or(c.DispatchTimeout, 2*c.RTT)
	c.Timeout = cmp.Or(c.Timeout, 4*c.RTT)
	c.Window = cmp.Or(c.Window, 65536)
	c.Slots = cmp.Or(c.Slots, 1024)
	c.Tickets = cmp.Or(c.Tickets, 1024)
	c.Regions = cmp.Or(c.Regions, 1024)
	if c.Threshold == 0 {
		c.Threshold = 65536
		if slack := c.Timeout - c.RTT - c.DispatchTimeout; c.Rate > 0 {
			c.Threshold = max(onerma.MaxOp, int(float64(slack)/float64(time.Second)*float64(c.Rate)/8))
		}
	}
	return c
}

// Validate returns an error if a field of c is wrong.
func (c Config) Validate() error {
	if c.Rand == nil || c.Resolve == nil {
		return fmt.Errorf("onerma config: Rand and Resolve are required")
	}
	if !c.Addr.Is4() || c.MAC == (wire.MAC{}) || c.MAC.IsMulticast() {
		return fmt.Errorf("onerma config: address %v and MAC %v: give an IPv4 address and a unicast MAC", c.Addr, c.MAC)
	}
	if c.Epoch > MaxEpoch {
		return fmt.Errorf("onerma config: epoch %d; the NIC has at most %d incarnations: give it another address", c.Epoch, MaxEpoch)
	}
	for name, v := range map[string]int{
		"LinkMTU": c.LinkMTU, "RTT": int(c.RTT), "DispatchTimeout": int(c.DispatchTimeout), "Timeout": int(c.Timeout), "Window": c.Window,
		"Threshold": c.Threshold, "Rate": int(c.Rate), "Slots": c.Slots, "Tickets": c.Tickets, "Regions": c.Regions,
	} {
		if v < 0 {
			return fmt.Errorf("onerma config: %s is %d; it cannot be negative", name, v)
		}
	}
	if c.RTT > maxTimeout || c.DispatchTimeout > maxTimeout { // the sums below would overflow
		return fmt.Errorf("onerma config: RTT %v and dispatch time-out %v; give at most %v", c.RTT, c.DispatchTimeout, maxTimeout)
	}
	d := c.withDefaults()
	switch {
	case d.LinkMTU < minMTU:
		return fmt.Errorf("onerma config: link MTU %d; give at least %d", d.LinkMTU, minMTU)
	case d.Window < onerma.MaxOp:
		return fmt.Errorf("onerma config: a window of %d bytes admits no operation; give at least %d", d.Window, onerma.MaxOp)
	case d.Threshold < onerma.MaxOp:
		return fmt.Errorf("onerma config: a threshold of %d bytes refuses long operations for ever; give at least %d", d.Threshold, onerma.MaxOp)
	case d.Timeout < d.DispatchTimeout+2*d.RTT:
		return fmt.Errorf("onerma config: time-out %v; a WRITE waits for %v at its target, so give at least that and 2 RTT of %v", d.Timeout, d.DispatchTimeout, d.RTT)
	case d.Timeout > maxTimeout:
		return fmt.Errorf("onerma config: time-out %v; give at most %v", d.Timeout, maxTimeout)
	case d.Slots > maxTable || d.Tickets > maxTable || d.Regions > maxTable:
		return fmt.Errorf("onerma config: %d slots, %d tickets, %d regions; a table has at most %d", d.Slots, d.Tickets, d.Regions, maxTable)
	}
	return nil
}
