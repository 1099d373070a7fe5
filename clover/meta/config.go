package meta

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of a server.
const (
	maxConns   = 4096
	maxClients = 4096
	// recvs is how many requests may wait in the receive queue; a client sends at most two at a
	// time.
	recvs = 4096
)

// DefaultLease is the default of Config.Lease.
const DefaultLease = 2 * time.Second

// Config describes a metadata server.
type Config struct {
	Context verbs.Context
	Manager rdmacm.Manager
	// Servers are the addresses of the memory servers.
	Servers []netip.Addr
	// Service is the name under which the connection manager listens; "": rpc.Service.
	Service string
	// Params of the connections to the memory servers.
	Params rdmacm.Params
	Format layout.Format
	// Keys is how many keys the store holds at most; 0: 65536. Keys, Region and Shares apply only
	// when the server formats a store. A store that it finds in memory stays as it is.
	Keys int
	// Region is how many bytes of each memory server's region are used at most; 0: the size of the
	// smallest region. The store uses as many bytes of each server.
	Region int
	// Shares divides the memory among the classes. If all are zero, the classes of a checked format
	// share the memory if it has minSegments segments on each server or more; otherwise
	// DefaultShares apply.
	Shares [layout.Classes]int
	// Lease is how long after its last answer a client may use the locations that it knows; 0: 2 s.
	Lease time.Duration
	// Grace is how long after the end of a lease the server waits before it makes the memory
	// servers end the client's connections and takes the client's nodes back, so that a slow client
	// can renew its lease; 0: 2 s.
	Grace time.Duration
	// Fresh formats the memory even if it holds a store. The connections of that store's clients
	// end.
	Fresh bool
	// Threads is how many threads take requests beside the one that runs Serve, which then follows
	// the chains of reports and executes what needs a memory server; 0: Serve's thread does
	// everything.
	Threads int
	// Pace, if not nil, is called by a thread with the number of completions that it has just
	// handled. A simulator lets the time pass that a processor would need for them.
	Pace func(completions int)
}

// Bounds of the number of segments where the size classes of nodes share the memory. With fewer
// than minSegments, a class in use could be left without a segment. More than maxSegments do not
// fit into the counts of a superblock.
const (
	minSegments = 64
	maxSegments = 1<<16 - 1
)

// DefaultShares is the split of a fixed space: it gives every class some of the memory, and the most
// to nodes that fill one packet at path MTU 1024. The published split gives none to the classes from 2048 to 16384 bytes.
var DefaultShares = [layout.Classes]int{10, 10, 10, 40, 10, 5, 5, 5, 5}

func (c Config) withDefaults() Config {
	if c.Service == "" {
		c.Service = rpc.Service
	}
	if c.Keys == 0 {
		c.Keys = 65536
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	return c
}

func (c *Config) validate() error {
	switch {
	case c.Context == nil || c.Manager == nil:
		return errors.New("metadata server: Context and Manager are required")
	case len(c.Servers) < 1 || len(c.Servers) > layout.MaxServers:
		return fmt.Errorf("metadata server: %d memory servers; name 1 to %d", len(c.Servers), layout.MaxServers)
	case c.Keys < 1 || c.Lease < 0 || c.Grace < 0 || c.Region < 0:
		return errors.New("metadata server: Keys must be 1 or more; Lease, Grace and Region must be 0 or more")
	}
	if c.Threads < 0 || c.Threads > MaxThreads {
		return fmt.Errorf("metadata server: %d request threads; 0 to %d are possible", c.Threads, MaxThreads)
	}
	for _, n := range c.Shares {
		if n < 0 {
			return errors.New("metadata server: Shares must be 0 or more")
		}
	}
	return nil
}

// space divides region bytes of each server.
func (c *Config) space(region int) (layout.Space, error) {
	s := layout.Space{Servers: len(c.Servers), Shortcuts: (c.Keys + len(c.Servers) - 1) / len(c.Servers)}
	if c.Shares == ([layout.Classes]int{}) && c.Format.Checked {
		// the table has a byte a segment
		if n := (region - s.RegionLen()) / (layout.SegmentLen + 1); n >= minSegments && n <= maxSegments {
			s.Share(n * layout.SegmentLen)
			return s, s.Validate()
		}
	}
	shares, sum := c.Shares, 0
	if shares == ([layout.Classes]int{}) {
		shares = DefaultShares
	}
	for _, n := range shares {
		sum += n
	}
	left := region - s.RegionLen()
	if left <= 0 || sum == 0 {
		return s, fmt.Errorf("metadata server: %d bytes on each memory server are not enough for %d keys", region, c.Keys)
	}
	for i, n := range shares {
		s.Entries[i] = left / sum * n / layout.Class(i).Size()
	}
	return s, s.Validate()
}
