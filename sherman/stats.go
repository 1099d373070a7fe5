package sherman

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/store/kv"
)

// NodeStats has the counters of a node's clients.
type NodeStats struct {
	// Acquires counts the locks that were taken. HandOvers counts those that came from another
	// client of the same node, without a request to the memory server. CAS counts the attempts to
	// take the other locks by CAS.
	Acquires, HandOvers, CAS uint64
	// Recovered counts locks taken over from an owner whose lease had ended. Fenced counts how
	// often this node was fenced.
	Recovered, Fenced uint64
	// Doubts counts operations whose connection failed while they held a lock, so that they had to
	// find out whether their WRITEs were executed.
	Doubts uint64
	// Splits counts split pages. Roots counts new roots. Healed counts separators that were missing
	// and added. Moves counts steps of searches to a sibling.
	Splits, Roots, Healed, Moves uint64
	// Merged counts pages taken out of the tree. Joined counts leaves that were closed while they
	// had records, which their siblings take over. Reused counts pages that were reused. Restarts
	// counts searches that met a page which had left the tree, and began again at the root.
	Merged, Joined, Reused, Restarts uint64
	// Torn counts pages read again because they were written while they were being read.
	Torn uint64
	// CacheHits counts operations that found their leaf in the index cache. CacheMisses counts
	// those that began at the root. CachePages and CacheBytes are the present contents of the index
	// cache.
	CacheHits, CacheMisses uint64
	CachePages, CacheBytes int
	// Wait is a histogram of the times, in nanoseconds, for which clients waited for locks,
	// including locks that were handed over.
	Wait *hdrhistogram.Histogram
}

const (
	maxWait    = time.Minute
	waitDigits = 2
)

func newNodeStats() NodeStats {
	return NodeStats{Wait: hdrhistogram.New(1, int64(maxWait), waitDigits)}
}

// waited records the wait for a lock.
func (s *NodeStats) waited(d time.Duration) {
	_ = s.Wait.RecordValue(int64(min(max(d, 1), maxWait))) // the time is in the range of the histogram
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

// Cost is the cost of one operation.
type Cost struct {
	kv.Cost
	// CAS counts the attempts to take locks. HandOvers counts the locks that came from another
	// client of the node.
	CAS, HandOvers int
	// Wait is the time spent waiting for locks.
	Wait time.Duration
	// Bytes counts the bytes of the IP packets of all operations in both directions, provided that
	// none is lost and that each message that requests an acknowledgement gets its own.
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

// packets returns the bytes of a message of n bytes in packets of at most mtu, with headers and
// padding.
func packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu)*ipBase + (n+3)&^3 }
