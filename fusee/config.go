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
	// Manager connects queue pairs.
	Manager rdmacm.Dialer
	// Params of the connections.
	Params rdmacm.Params
	// Servers are the memory servers, in the order in which the store was formatted.
	Servers []netip.Addr
	// Cache bounds the keys whose places the client remembers; 0: 16,384. Negative: none.
	Cache int
	// Threshold is the share of a key's uses in which its remembered place may have been wrong; if it
	// was wrong more often, a GET does not read the object before it has read the slot. 0: 0.1, as
	// published.
	Threshold float64
}

const (
	defaultCache     = 1 << 14
	defaultThreshold = 0.1
	// pause is how long a client waits before it repeats an attempt that failed.
	pause = 200 * time.Microsecond
	// poll is how long a client waits before it looks again whether another one has gone on.
	poll = 10 * time.Microsecond
	// settleTimeout is how much later than its deadline an operation may end: once it has swapped a
	// backup, other clients wait for it.
	settleTimeout = time.Second
	// farewellTimeout bounds the wait for a server to confirm the end of a connection; without it the
	// server notices later.
	farewellTimeout = 100 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Cache, c.Threshold = cmp.Or(c.Cache, defaultCache), cmp.Or(c.Threshold, defaultThreshold)
	return c
}

func (c *Config) validate() error {
	if len(c.Servers) < 1 || len(c.Servers) > layout.MaxServers {
		return fmt.Errorf("fusee: %d memory servers; want 1 to %d", len(c.Servers), layout.MaxServers)
	}
	return nil
}

// FormatConfig describes a store to be made.
type FormatConfig struct {
	// Replicas is how many servers have a copy of an object, IndexReplicas how many have the index; 0:
	// 2 of objects and 1 of the index, as in the paper's measurements, or as many as there are servers.
	Replicas, IndexReplicas int
	// Depth is the depth of the directory: there are 2^Depth subtables. Groups is the number of groups
	// of three buckets of a subtable; 0: as many as fit into an eighth of a server's memory.
	Depth, Groups int
	// Block is the length of a block in bytes, a multiple of 16 KiB; 0: 256 KiB, less on small servers.
	Block int
	// Generation identifies the store; 0: a random number.
	Generation uint64
}

// Bounds and defaults of a format.
const (
	defaultBlock = 256 << 10
	minBlock     = 64 * layout.Unit
	minBlocks    = 64 // of an area, if the memory allows
	groupLen     = 3 * layout.BucketLen
	indexShare   = 8
)

// shape is the arrangement on servers with so many bytes of memory each.
func (f *FormatConfig) shape(servers int, memory uint64) (layout.Shape, error) {
	s := layout.Shape{
		Servers: servers, Replicas: cmp.Or(f.Replicas, min(2, servers)), IndexReplicas: cmp.Or(f.IndexReplicas, 1),
		Depth: f.Depth, Subtables: 1 << min(max(f.Depth, 0), layout.MaxDepth),
		Groups: f.Groups, Blocks: 1, BlockUnits: f.Block / layout.Unit,
	}
	if s.Groups == 0 {
		s.Groups = int(max(1, memory/indexShare/groupLen/uint64(s.Subtables)))
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
	each := s.AreaLen()/2*uint64(s.Replicas) + 8*uint64(s.Replicas)
	for s.Blocks = 1 + int((memory-one)/each); s.Blocks > 1 && s.Len() > memory; {
		s.Blocks--
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("fusee: %w", err)
	}
	return s, nil
}
