package sherman

import (
	"cmp"
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
	Manager rdmacm.Dialer
	Params  rdmacm.Params
}

// NodeConfig describes a compute node and the state that its clients share.
type NodeConfig struct {
	// Servers are the memory servers, in the order in which the tree was formatted.
	Servers []netip.Addr
	// CacheBytes is the greatest size of the index cache in bytes; 0 means 64 MiB. A negative
	// number means that there is no cache.
	CacheBytes int
	// HandOver is how many times in a row a client may hand a lock over to the next client of this
	// node before other nodes can get it; 0 means 8. A negative number means that clients never
	// hand locks over. Other nodes see the same tag in the lock word during hand-overs, and would
	// suspect this node of being dead after a lease. Therefore a series of hand-overs ends after a
	// quarter of the lease at the latest.
	HandOver int
	// Lease is how long this node must see the same tag in a lock word before it suspects the tag's
	// owner; 0 means 50 ms. It must be longer than an operation holds a lock. If it is too short,
	// live clients are fenced, which costs time but loses no data.
	Lease time.Duration
	// BackOff is the upper limit of the random pause after a failed CAS on a lock word. The pause
	// grows with each failure. 0 means no pause, as in the published system.
	BackOff time.Duration
	// LostSearch is true if the tree is to keep an error of the published code: a search does not
	// find a key while a client writes the key's record (issue 27 of that code). It has an effect
	// only in trees of kind Published.
	LostSearch bool
	// Unqueued is true if clients of the node do not queue for locks and do not hand them over.
	// Each client swaps its tag into the lock word itself, as in FG+ (see Steps).
	Unqueued bool
	// Uncombined is true if a client waits until its WRITEs to the page are acknowledged before it
	// posts the WRITE that releases the lock. This takes one more round trip, as in FG+.
	Uncombined bool
}

const (
	defaultCache    = 64 << 20
	defaultHandOver = 8
	// DefaultLease is the default of NodeConfig.Lease.
	DefaultLease = 50 * time.Millisecond
)

func (c NodeConfig) withDefaults() NodeConfig {
	c.CacheBytes = cmp.Or(c.CacheBytes, defaultCache)
	c.HandOver = cmp.Or(c.HandOver, defaultHandOver)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	return c
}

// Validate returns an error for the first field that is out of range.
func (c *NodeConfig) Validate() error {
	switch {
	case len(c.Servers) < 1 || len(c.Servers) > layout.MaxServers:
		return fmt.Errorf("sherman: %d memory servers; want 1 to %d", len(c.Servers), layout.MaxServers)
	case c.Lease < 0 || c.BackOff < 0:
		return fmt.Errorf("sherman: Lease and BackOff must be 0 or more")
	}
	return nil
}

// FormatConfig describes a tree that Format is to make.
type FormatConfig struct {
	// Shape is the shape of the pages; the zero value is the default.
	Shape layout.Shape
	// Locks is the number of lock words of each server; 0 means 32768, or fewer if the servers have
	// less memory for locks.
	Locks int
	// HostLocks is true if the lock words are to be in the servers' host memory instead of NIC
	// memory, for comparison.
	HostLocks bool
	// PageLocks is true if each page is to have its lock word, as in FG+. Then Locks and HostLocks
	// have no effect. The pages must be layout.Checksummed.
	PageLocks bool
	// Chunk is the greatest number of bytes that a node takes from a server at a time; 0 means 1
	// MiB, or less on small servers.
	Chunk int
	// Generation identifies the tree; 0 means a random number.
	Generation uint64
}
