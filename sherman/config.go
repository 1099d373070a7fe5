package sherman

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Config is what one client thread brings.
type Config struct {
	Context verbs.Context
	// Manager connects queue pairs.
	Manager rdmacm.Dialer
	// Params of the connections.
	Params rdmacm.Params
}

// NodeConfig describes a compute node: what its clients share.
type NodeConfig struct {
	// Servers are the memory servers, in the order in which the tree was formatted.
	Servers []netip.Addr
	// CacheBytes bounds the index cache; 0: 64 MiB. Negative: no cache.
	CacheBytes int
	// HandOver is how often in a row a lock is handed to the next local client before other nodes get their chance; 0: 8.
	// Negative: never. Others see one tag meanwhile, so that it ends with a quarter of the lease, too.
	HandOver int
	// Lease is how long this node sees one tag in a lock word before it suspects the owner; 0: 50 ms. It must be longer than
	// an operation holds a lock at worst, or living clients are fenced (which costs time, and no data).
	Lease time.Duration
	// BackOff is the longest pause after a failed CAS, in a random and growing share; 0: none, as published.
	BackOff time.Duration
	// LostSearch keeps the published search, which reports a key as absent whose record is being written (the project's issue 27).
	// It is for trees of kind Faithful.
	LostSearch bool
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

// Validate reports the first thing that is wrong.
func (c *NodeConfig) Validate() error {
	switch {
	case len(c.Servers) < 1 || len(c.Servers) > layout.MaxServers:
		return fmt.Errorf("sherman: %d memory servers; want 1 to %d", len(c.Servers), layout.MaxServers)
	case c.Lease < 0 || c.BackOff < 0:
		return fmt.Errorf("sherman: a time is negative")
	}
	return nil
}

// FormatConfig describes a tree to be made.
type FormatConfig struct {
	// Shape of the pages; the zero value is the default.
	Shape layout.Shape
	// Locks is the number of lock words of each server; 0: 32768, or as many as the servers' lock tables have.
	Locks int
	// HostLocks puts the lock words into host memory, for comparison.
	HostLocks bool
	// Chunk is what clients take at a time, in bytes; 0: 1 MiB, less on small servers.
	Chunk int
	// Generation names the tree; 0: a random number.
	Generation uint64
}
