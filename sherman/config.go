package sherman

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Config describes one client thread.
type Config struct {
	Context verbs.Context
	// Manager connects queue pairs.
	Manager rdmacm.Dialer
	// Params of the connections.
	Params rdmacm.Params
}

// NodeConfig describes a compute node and the state that its clients share.
type NodeConfig struct {
	// Servers are the memory servers, in the order in which the tree was formatted.
	Servers []netip.Addr
	// CacheBytes bounds the index cache in bytes; 0: 64 MiB. Negative: no cache.
	CacheBytes int
	// HandOver is how often in a row a lock is handed to the next local client before other nodes
	// can get it; 0: 8. Negative: never. During hand-overs other nodes see the same tag, which
	// would make them suspect this node; so a series of hand-overs also ends after a quarter of the
	// lease.
	HandOver int
	// Lease is how long this node sees the same tag in a lock word before it suspects the owner; 0:
	// 50 ms. It must be longer than an operation holds a lock. Otherwise live clients are fenced,
	// which costs time, but loses no data.
	Lease time.Duration
	// BackOff is the upper limit of the random pause after a failed CAS, which grows with each
	// failure; 0: no pause, as published.
	BackOff time.Duration
	// LostSearch keeps the search of the published code, which does not find a key while its record
	// is being written (issue 27 of that code). It is for trees of kind Published.
	LostSearch bool
	// Unqueued: clients of the node do not queue for locks and hand none over. Each of them requests the
	// word from the memory server, as in FG+ (see Steps).
	Unqueued bool
	// Uncombined: a client posts the WRITE that releases a lock when its WRITEs to the page have been
	// acknowledged, which takes one more round trip, as in FG+.
	Uncombined bool
}

const (
	defaultCache    = 64 << 20
	defaultHandOver = 8
	// DefaultLease is the default of NodeConfig.Lease.
	DefaultLease = 50 * time.Millisecond
)

func (c NodeConfig) withDefaults() NodeConfig {
	if c.CacheBytes == 0 {
		c.CacheBytes = defaultCache
	}
	if c.HandOver == 0 {
		c.HandOver = defaultHandOver
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	return c
}

// Validate returns an error for the first field that is out of bounds.
func (c *NodeConfig) Validate() error {
	switch {
	case len(c.Servers) < 1 || len(c.Servers) > layout.MaxServers:
		return fmt.Errorf("sherman: %d memory servers; want 1 to %d", len(c.Servers), layout.MaxServers)
	case c.Lease < 0 || c.BackOff < 0:
		return fmt.Errorf("sherman: Lease and BackOff must be 0 or more")
	}
	return nil
}

// FormatConfig describes a tree to be made.
type FormatConfig struct {
	// Shape is the shape of the pages; the zero value is the default.
	Shape layout.Shape
	// Locks is the number of lock words of each server; 0: 32768, or as many as the servers' lock
	// tables have.
	Locks int
	// HostLocks puts the lock words into host memory, for comparison.
	HostLocks bool
	// PageLocks puts a lock word into each page, as in FG+; Locks and HostLocks have no effect then.
	// The pages must be layout.Checksummed.
	PageLocks bool
	// Chunk bounds the memory in bytes that a node takes from a server at a time; 0: 1 MiB, less on
	// small servers.
	Chunk int
	// Generation identifies the tree; 0: a random number.
	Generation uint64
}
