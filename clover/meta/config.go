package meta

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/lease"
)

// Limits of a server.
const (
	maxConns   = 4096
	maxClients = 4096
	// recvs is how many requests may wait in the receive queue. A client has at most two requests
	// in flight, a call and a report.
	recvs = 4096
)

// Defaults of Config.Lease and Config.Keys.
const (
	DefaultLease = 2 * time.Second
	DefaultKeys  = 65536
)

// Config describes a metadata server.
type Config struct {
	// Context is the device of the server. Manager listens for clients and connects to the memory
	// servers.
	Context verbs.Context
	Manager rdmacm.Manager
	Servers []netip.Addr
	// Service is the name under which the connection manager listens; "" means rpc.Service.
	Service string
	// Params are the parameters of the connections to the memory servers, and of those that clients
	// make to this server.
	Params rdmacm.Params
	Format layout.Format
	// Keys is the largest number of keys that the store can hold; 0 means 65536. Keys, Region and
	// Shares have an effect only when the server formats a store. A store that it finds in memory
	// stays as it is.
	Keys int
	// Region is the largest number of bytes that the store uses of each memory server's region; 0
	// means the size of the smallest region. The store uses equally many bytes of each server.
	Region int
	// Shares divides the memory among the classes in these proportions. If all are zero and nodes
	// have a checksum (layout.Format), no class has a fixed part: a class takes a segment of the
	// memory when it needs one. With too little or too much memory for segments (see minSegments),
	// and for nodes without a checksum, all zeros mean DefaultShares.
	Shares [layout.Classes]int
	// Lease is how long a client may use the locations that it knows, counted from when it sent its
	// last answered request; 0 means 2 s.
	Lease time.Duration
	// Grace is how long the server waits after the end of a lease, so that a slow client can still
	// renew it; 0 means 2 s. Then it makes the memory servers end the client's connections, and
	// takes the client's nodes back.
	Grace time.Duration
	// Replicas is how many copies each node has, on as many memory servers; 0 means one, or as many
	// as the store that is found in memory has.
	Replicas int
	// Balance is true if nodes are to come from the memory servers in proportion to their free room
	// and speed: see balance.go.
	Balance bool
	// Fresh is true if the server is to format the memory even if it contains a store. The
	// connections of that store's clients end.
	Fresh bool
	// OneVersion is true if nodes keep their version when they are used again. A switch with published
	// rules needs that: it rewrites the address of an append, and not the version that the append
	// expects. Only measurements use it, because a late request may then change the chain of another
	// key.
	OneVersion bool
	// Threads is how many threads receive requests beside the main thread, which runs Serve. The
	// main thread then takes the reports, writes the directory, follows chains where it must, and
	// executes the requests that need a memory server. 0 means that the main thread does everything.
	Threads int
	// Pace, if not nil, is called by each thread that receives requests, with the number of
	// completions that the thread has just handled. A simulator lets the virtual time pass that a
	// processor would need for them.
	Pace func(completions int)
}

func (c *Config) terms() lease.Terms { return lease.Terms{Length: c.Lease, Grace: c.Grace} }

// Limits of the segments of a server, if the classes share the memory. A segment has the length of
// the largest node. If there were fewer than minSegments, a segment is half as long, and so on down
// to minSegmentClass; then nodes longer than a segment do not exist. So each class that is in use
// can get a segment, and the first segment, which is for tombstones, is at most 1/minSegments of
// the memory. The counts of a superblock have no room for more than maxSegments.
const (
	minSegments     = 32
	maxSegments     = 1<<16 - 1
	minSegmentClass = layout.Class(5) // 4,096 bytes
	// segmentSlack is more bytes than minSegments segments need besides their nodes: a table of one
	// byte each, and padding, because the nodes and the copies begin at multiples of the smallest
	// node.
	segmentSlack = 4 * layout.MinSlab
)

// DefaultShares are the default proportions of a fixed space, by class. Every class gets some of
// the memory, and nodes of 1024 bytes, which fill one packet at path MTU 1024, get the most. The
// published system gives nothing to the classes from 2048 to 16384 bytes.
var DefaultShares = [layout.Classes]int{10, 10, 10, 40, 10, 5, 5, 5, 5}

func (c Config) withDefaults() Config {
	c.Service = cmp.Or(c.Service, rpc.Service)
	c.Keys = cmp.Or(c.Keys, DefaultKeys)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
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
	if most := min(layout.MaxBackups+1, len(c.Servers)); c.Replicas < 0 || c.Replicas > most {
		return fmt.Errorf("metadata server: %d copies of each node on %d memory servers; 1 to %d are possible", c.Replicas, len(c.Servers), most)
	}
	for _, n := range c.Shares {
		if n < 0 {
			return errors.New("metadata server: Shares must be 0 or more")
		}
	}
	return nil
}

// Fixed returns the reason why each class of the store's nodes has a fixed part of the memory,
// which can be full while others are not. It returns "" if the classes share the memory.
func (s *Server) Fixed() string { return whyFixed(&s.mem.space, s.mem.format) }

// whyFixed returns why each class of nodes has a fixed part of the space s, whose nodes have format
// f. It returns "" if the classes share the space.
func whyFixed(s *layout.Space, f layout.Format) string {
	of := "nodes"
	if s.Backups > 0 {
		of = "one copy of its nodes"
	}
	switch n := s.Entries.Bytes(); {
	case s.Shared:
		return ""
	case !f.Checked:
		return "without a checksum a reader cannot see that a node has another size now"
	case n < minSegments*minSegmentClass.Size()+segmentSlack:
		return "each memory server has less than 128 KiB for " + of
	case n > maxSegments*layout.UsualSegment:
		return "each memory server has 2 GiB or more for " + of
	}
	return "the store was formatted in this way"
}

// space divides region bytes of each server among the parts of the store.
func (c *Config) space(region int) (layout.Space, error) {
	s := layout.Space{Servers: len(c.Servers), Shortcuts: (c.Keys + len(c.Servers) - 1) / len(c.Servers), Backups: max(0, c.Replicas-1)}
	if c.Shares == ([layout.Classes]int{}) && c.Format.Checked {
		for largest := layout.Class(layout.Classes - 1); largest >= minSegmentClass; largest-- {
			// Each segment also takes one byte in the table of classes.
			n := (region - s.RegionLen()) / (largest.Size() + 1) / (s.Backups + 1)
			if n < minSegments || n > maxSegments {
				continue
			}
			t := s
			for t.ShareIn(n*largest.Size(), largest); t.RegionLen() > region; { // copies begin at multiples of the smallest node, which may need some more bytes
				n--
				t.ShareIn(n*largest.Size(), largest)
			}
			if n >= minSegments {
				return t, t.Validate()
			}
		}
	}
	shares, sum := c.Shares, 0
	if shares == ([layout.Classes]int{}) {
		shares = DefaultShares
	}
	for _, n := range shares {
		sum += n
	}
	left := (region - s.RegionLen()) / (s.Backups + 1)
	if left <= 0 || sum == 0 {
		return s, fmt.Errorf("metadata server: %d bytes on each memory server are not enough for %d keys", region, c.Keys)
	}
	for i, n := range shares {
		s.Entries[i] = left / sum * n / layout.Class(i).Size()
	}
	return s, s.Validate()
}
