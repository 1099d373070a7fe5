package sherman

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/store/kv"
)

// NodeStats has the counters of a compute node's clients.
type NodeStats struct {
	// Acquires counts the locks that clients took. HandOvers counts those of them that another
	// client of the same node handed over, without a request to the memory server. CAS counts the
	// attempts to take the other locks by CAS.
	Acquires, HandOvers, CAS uint64
	// Recovered counts locks that were taken over from an owner whose lease had ended. Fenced
	// counts how many times this node was fenced.
	Recovered, Fenced uint64
	// Doubts counts how many times clients had to find out from a lock word whether their requests
	// were executed, because a connection failed.
	Doubts uint64
	// Splits counts pages that were split. Roots counts new roots. Healed counts missing separators
	// that were added. Moves counts steps of searches to a sibling.
	Splits, Roots, Healed, Moves uint64
	// Merged counts pages that were taken out of the tree. Joined counts leaves that were closed
	// while they still had a few records, so that their siblings can take these over. Reused counts
	// pages that were used again. Restarts counts searches that came to a page which had left the
	// tree, and began again at the root.
	Merged, Joined, Reused, Restarts uint64
	// Torn counts pages that were read again because they were written while they were being read.
	Torn uint64
	// CacheHits counts look-ups that found a leaf in the index cache. CacheMisses counts those that
	// did not: the operation began at the root. CachePages and CacheBytes are the present size of
	// the index cache.
	CacheHits, CacheMisses uint64
	CachePages, CacheBytes int
	// Wait is a histogram of the times that clients waited for locks, in nanoseconds. It includes
	// locks that were handed over.
	Wait *hdrhistogram.Histogram
}

// maxWait is the longest time that Wait can record. waitDigits is its precision in decimal digits.
const (
	maxWait    = time.Minute
	waitDigits = 2
)

func newNodeStats() NodeStats {
	return NodeStats{Wait: hdrhistogram.New(1, int64(maxWait), waitDigits)}
}

func (s *NodeStats) waited(d time.Duration) {
	_ = s.Wait.RecordValue(int64(min(max(d, 1), maxWait))) // in the range of the histogram
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
	// CAS counts the attempts to take locks by CAS. HandOvers counts the locks that another client
	// of the node handed over.
	CAS, HandOvers int
	// Wait is the time for which the operation waited for locks.
	Wait time.Duration
	// Bytes is the length of all IP packets of the operation, in both directions. It assumes that
	// no packet is lost and that each message which requests an acknowledgement gets its own.
	Bytes int
}

// Lengths in bytes. ipBase is the length of an IP packet without payload: headers of IP and UDP,
// BTH, ICRC. ipRETH, ipAETH and ipAtomic are the headers that some packets have in addition. ipAck
// is the length of a whole ACK.
const (
	ipBase   = 20 + 8 + 12 + 4
	ipRETH   = 16
	ipAETH   = 4
	ipAtomic = 28
	ipAck    = ipBase + ipAETH
)

// packets returns the length in bytes of all IP packets of a message of n bytes together, with
// headers and padding. A packet has up to mtu bytes of payload.
func packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu)*ipBase + (n+3)&^3 }
