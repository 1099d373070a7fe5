package sherman

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/clover/kv"
)

// NodeStats is what the clients of a node have done.
type NodeStats struct {
	// Acquires are locks that were got, HandOvers those of them that came from another client of the node without a word to
	// the memory server, CAS the tries for the others.
	Acquires, HandOvers, CAS uint64
	// Recovered are locks taken over from an owner that was suspected, Fenced how often this node was the one.
	Recovered, Fenced uint64
	// Doubts are operations whose connection failed while they held a lock, and that found out what had become of them.
	Doubts uint64
	// Splits are pages split, Roots new roots, Healed separators put in for somebody else's split, Moves steps to a sibling.
	Splits, Roots, Healed, Moves uint64
	// Torn are pages read again because they were written meanwhile.
	Torn uint64
	// CacheHits are operations that knew their leaf, CacheMisses those that came from the root; CachePages and CacheBytes
	// are what the index cache holds.
	CacheHits, CacheMisses uint64
	CachePages, CacheBytes int
	// Wait is how long clients waited for locks, in nanoseconds, hand-overs included.
	Wait *hdrhistogram.Histogram
}

const (
	maxWait    = time.Minute
	waitDigits = 2
)

func newNodeStats() NodeStats {
	return NodeStats{Wait: hdrhistogram.New(1, int64(maxWait), waitDigits)}
}

// waited notes the wait for a lock.
func (s *NodeStats) waited(d time.Duration) {
	_ = s.Wait.RecordValue(int64(min(max(d, 1), maxWait))) // it is in range
}

// Stats returns a copy of the counters.
func (n *Node) Stats() NodeStats {
	n.mu.Lock()
	s := n.stats
	s.Wait = hdrhistogram.Import(n.stats.Wait.Export())
	n.mu.Unlock()
	s.CachePages, s.CacheBytes, s.CacheHits, s.CacheMisses = n.cache.size()
	return s
}

// Cost is what one operation took.
type Cost struct {
	kv.Cost
	// CAS are the tries to get locks, HandOvers the locks that came from another client of the node.
	CAS, HandOvers int
	// Wait is the time spent waiting for locks.
	Wait time.Duration
	// Bytes are those of the IP packets of all operations, there and back, when nothing is lost and each message
	// that asks for it has an answer of its own.
	Bytes int
}

// Lengths of IP packets without payload: UDP, BTH and ICRC, and what each operation adds.
const (
	ipBase   = 20 + 8 + 12 + 4
	ipRETH   = 16
	ipAETH   = 4
	ipAtomic = 28
	ipAck    = ipBase + ipAETH
)

// packets is the headers and padding of a message of n bytes in packets of at most mtu.
func packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu)*ipBase + (n+3)&^3 }
