package fusee

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Config describes one client.
type Config struct {
	Context verbs.Context
	Manager rdmacm.Dialer
	Params  rdmacm.Params
	// Servers are the memory servers, in the order in which the store was formatted.
	Servers []netip.Addr
	// Cache is the largest number of keys whose slots the client remembers; 0 means 16,384.
	// Negative: no cache.
	Cache int
	// Threshold is a share of a key's uses. If the remembered slot was wrong in more than this
	// share of them, a GET reads the slot before it reads the object. 0 means 0.1, as published.
	Threshold float64
	// Lease is how long a client waits for another client to make progress. After that it takes the
	// other client for dead, and makes the memory servers end that client's connections (see
	// Client.Recover); 0 means 500 ms. If the other client was only slow, it goes on with a new
	// number, without its blocks. For a master, Lease is how long a memory server may be silent; at
	// least MinMasterLease.
	Lease time.Duration
	// ClientLease is how long a client that owns blocks may be silent. After that the master recovers
	// the client, as Client.Recover does. 0 means 20 times Lease, but at least 10 s. Negative: the
	// master never recovers a client. A client that works shows that it is alive once in half of its
	// own Lease, which must be much shorter than ClientLease. A client that waits until the master has
	// settled a block takes the master for dead in the same way, after ClientLease.
	ClientLease time.Duration
	// Ahead is how many free objects of a length a client has left when it requests its next block.
	// It should be so large that no operation waits for the memory server's answer. 0 means 32.
	// Negative: the client requests a block when it needs one.
	Ahead int
	// Published makes the client decide as the public code does, with the holes 1 to 4 of
	// fusee/HOLES.md: for measurements, and to show these holes. All clients of a store should have
	// the same value. Such a store has no master, and its index does not grow.
	Published bool
}

// MinMasterLease is the shortest lease of a master. A memory server that is alive answers in much
// less time.
const MinMasterLease = time.Millisecond

// DefaultLease is the value of Config.Lease that 0 stands for.
const DefaultLease = 500 * time.Millisecond

const (
	clientLeases     = 20
	defaultCache     = 1 << 14
	defaultThreshold = 0.1
	// A client that requests a block when defaultAhead objects are left gets the block before it
	// has used them all: the request takes as long as about 30 round trips, and each INSERT takes
	// at least 3.
	defaultAhead = 32
	// pause is how long a client waits before it repeats an attempt that failed.
	pause = 200 * time.Microsecond
	// poll is how long a client waits before it checks again whether the winner of a slot has
	// changed the primary.
	poll = 10 * time.Microsecond
	// stuckAfter is how long an INSERT that has lost its slot waits for the winner to change the
	// primary before it chooses another slot. avoidFor is how long the client does not choose the
	// first slot again. maxStuck is the largest number of slots that the client avoids.
	stuckAfter = 5 * time.Millisecond
	avoidFor   = time.Second
	maxStuck   = 64
	// settleTimeout is how long an operation that has swapped a backup of a slot may go on after
	// its deadline. Other clients wait for the operation, so it should not give up.
	settleTimeout = time.Second
	// farewellTimeout is how long a client waits for a server to confirm the end of a connection.
	// Without a confirmation the server notices the end later.
	farewellTimeout = 100 * time.Millisecond
	// leaveTimeout is how long a closing client may take to leave its blocks to other clients. This
	// is more than the 1.07 s that it takes to notice that a connection has failed
	// (docs/explain/patience.md).
	leaveTimeout = 2 * time.Second
)

func (c Config) withDefaults() Config {
	c.Cache, c.Threshold = cmp.Or(c.Cache, defaultCache), cmp.Or(c.Threshold, defaultThreshold)
	c.Lease, c.Ahead = cmp.Or(c.Lease, DefaultLease), cmp.Or(c.Ahead, defaultAhead)
	c.ClientLease = cmp.Or(c.ClientLease, clientLeases*max(c.Lease, DefaultLease))
	return c
}

func (c *Config) validate() error {
	if len(c.Servers) < 1 || len(c.Servers) > layout.MaxServers {
		return fmt.Errorf("fusee: %d memory servers; want 1 to %d", len(c.Servers), layout.MaxServers)
	}
	if c.Lease < 0 {
		return fmt.Errorf("fusee: a lease of %v: want a positive one, or 0 for %v", c.Lease, DefaultLease)
	}
	if !(c.Threshold >= 0 && c.Threshold <= 1) { // also if it is not a number
		return fmt.Errorf("fusee: a threshold of %v: want a share between 0 and 1, or 0 for %v", c.Threshold, defaultThreshold)
	}
	return nil
}

// FormatConfig describes a store that Format is to make.
type FormatConfig struct {
	// Replicas is how many servers have a copy of each object. IndexReplicas is how many servers
	// have the index. 0 means 2 for objects and 1 for the index, as in the paper's measurements,
	// but at most as many as there are servers.
	Replicas, IndexReplicas int
	// Depth is the depth of all subtables at first: there are 2^Depth of them. Groups is the number
	// of groups of three buckets in a subtable; 0 means as many as fit if the index takes an eighth
	// of a server's memory.
	Depth, Groups int
	// Grow is how many times each subtable can be split: the index has room for 2^(Depth+Grow)
	// subtables. 0 means that the index does not grow. An index with more than 3 replicas cannot
	// grow (see the package comment).
	Grow int
	// Block is the length of a block in bytes, a multiple of 16 KiB; 0 means 256 KiB, or less so
	// that a server has about a thousand blocks.
	Block int
	// Generation identifies the store; 0 means a random number.
	Generation uint64
}

// Limits and defaults of a FormatConfig. indexShare: the index gets one part in indexShare of the
// memory.
const (
	defaultBlock = 256 << 10
	minBlock     = 64 * layout.Unit
	// minBlocks is how many blocks an area has at least, if the memory allows it, because each
	// client takes some.
	minBlocks    = 1024
	indexShare   = 8
	growReplicas = 3 // the largest number of replicas of an index that can grow
)

// shape computes the arrangement of the memory. memory is the number of bytes of each server.
func (f *FormatConfig) shape(servers int, memory uint64) (layout.Shape, error) {
	s := layout.Shape{
		Servers: servers, Replicas: cmp.Or(f.Replicas, min(2, servers)), IndexReplicas: cmp.Or(f.IndexReplicas, 1),
		Depth: f.Depth, Subtables: 1 << min(max(f.Depth+f.Grow, 0), layout.MaxDepth),
		Groups: f.Groups, Blocks: 1, BlockUnits: f.Block / layout.Unit,
	}
	if f.Grow > 0 && s.IndexReplicas > growReplicas {
		return s, fmt.Errorf("fusee: an index that grows with %d replicas: want at most %d replicas of the index, or no growth", s.IndexReplicas, growReplicas)
	}
	if s.Groups == 0 {
		s.Groups = int(max(1, memory/indexShare/layout.GroupLen/uint64(s.Subtables)))
	}
	if s.BlockUnits == 0 {
		s.BlockUnits = defaultBlock / layout.Unit
		for s.BlockUnits > minBlock/layout.Unit && s.AreaLen()*minBlocks*uint64(max(1, s.Replicas)) > memory {
			s.BlockUnits /= 2
		}
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("fusee: %w", err)
	}
	one := s.Len()
	if s.Blocks = 2; one > memory {
		return s, fmt.Errorf("fusee: %d bytes of memory on a server; want %d at least", memory, one)
	}
	most := layout.MaxPlace / s.BlockUnits
	each := s.AreaLen()/2*uint64(s.Replicas) + 8*uint64(s.Replicas)
	for s.Blocks = min(most, 1+int((memory-one)/each)); s.Blocks > 1 && s.Len() > memory; {
		s.Blocks--
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("fusee: %w", err)
	}
	return s, nil
}
