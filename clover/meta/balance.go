package meta

import (
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// With Config.Balance, nodes for which a client names no memory server come from the servers in
// proportion to their free room and to how fast they answer. These are the first nodes of keys, and
// every node for clients with clover.Config.Spread. Without Config.Balance, such nodes come from
// all servers in turn. The other nodes of a chain come from the server of the chain as long as it
// has free nodes.

type balance struct {
	// weights says how many new nodes come from each server, in proportion to the sum of all
	// weights; nil means that the servers give nodes in turn.
	weights []int64
	// took is how long each server has taken to answer a READ, as a moving average; 0 means
	// unknown.
	took []time.Duration
	at   clock.Time // when weigh next measures the servers
}

// slowest bounds the weights: a server gives at least 1/slowest of the nodes that the fastest
// server would give with the same free room.
const (
	slowest   = 64
	keepsPart = 4 // a new measurement has the weight 1/keepsPart in the moving average (field took)
)

// weigh measures the memory servers and computes their weights, once in a quarter of a lease.
func (s *pool) weigh(now clock.Time) {
	b := &s.balance
	if !s.mem.cfg.Balance || now < b.at {
		return
	}
	b.at = now.Add(s.mem.cfg.probe())
	if b.took == nil {
		b.took = make([]time.Duration, len(s.mem.memory))
	}
	for i := range s.mem.memory {
		began := s.mem.rt.Now()
		if s.mem.memory[i].out || s.mem.memory[i].blank || !s.mem.connected(i) {
			b.took[i] = 0
			continue
		}
		err := s.mem.probe(i)
		switch took := s.mem.rt.Now().Sub(began); {
		case err != nil:
			b.took[i] = 0
		case b.took[i] == 0:
			b.took[i] = took
		default:
			b.took[i] += (took - b.took[i]) / keepsPart
		}
	}
	weights := make([]int64, len(s.mem.memory))
	fast := time.Duration(0)
	for _, t := range b.took {
		if t > 0 && (fast == 0 || t < fast) {
			fast = t
		}
	}
	for i := range s.mem.memory {
		slow := time.Duration(0) // the slowest answer of the servers with copies of this server's nodes
		for _, k := range s.mem.serversOf(i) {
			slow = max(slow, b.took[k])
		}
		if slow == 0 {
			continue // a server that does not answer gives no nodes
		}
		weights[i] = int64(s.room(i)) * slowest / min(slowest, int64(slow/fast))
	}
	b.weights = weights
}

// room returns the number of bytes of the free nodes and the unused segments on server i.
func (s *pool) room(i int) (n int) {
	for c := range s.nodes.free {
		n += s.nodes.free[c].Len(i) * layout.Class(c).Size()
	}
	return n + s.segments.Unused(i)*s.mem.space.SegmentLen()
}

// shares returns, for each server, what share of the new nodes it gives, how many nodes it has, and
// how many of them are free.
func (s *pool) shares() (list []rpc.Share) {
	total := int64(0)
	for _, w := range s.balance.weights {
		total += w
	}
	for i := range s.mem.memory {
		x := rpc.Share{Permille: uint64(1000 / len(s.mem.memory))}
		if total > 0 {
			x.Permille = uint64(1000 * s.balance.weights[i] / total)
		}
		_ = s.runs(i, func(_ layout.Class, _ layout.Handle, n int) error {
			x.Nodes += uint64(n)
			return nil
		})
		for c := range s.nodes.free {
			x.Free += uint64(s.nodes.free[c].Len(i))
		}
		list = append(list, x)
	}
	return list
}
