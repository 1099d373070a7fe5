package fault

import "github.com/rdmalab/rdmalab/softrnic/wire"

// Limits of what an injector keeps.
const (
	// maxConnections is the number of destination queue pairs whose first PSN is kept for a link
	// and direction; the oldest one is removed first.
	maxConnections = 4096
	// maxTracked is the largest number of packets whose transmissions a rule with
	// Match.Transmission counts.
	maxTracked = 4096
)

// A PSN that is more than restartBack behind the newest one, or more than restartAhead in front of
// it, belongs to a new connection with the same queue pair number. A retransmission goes back by at
// most the window. A request goes ahead by at most the PSNs of one READ.
const (
	restartBack  = 1 << 16
	restartAhead = 1 << 20
)

// ring is a map of at most bound keys: when it is full, a new key replaces the oldest one. It
// allocates its memory when keys are added.
type ring[K comparable, V any] struct {
	bound int
	vals  map[K]*V
	order []K
	next  int
}

// at returns the value of k. If k has no value, at adds a zero value, and fresh is true. The
// pointer is valid until the next call of at.
func (r *ring[K, V]) at(k K) (v *V, fresh bool) {
	if v, ok := r.vals[k]; ok {
		return v, false
	}
	if r.vals == nil {
		r.vals = make(map[K]*V)
	}
	if len(r.order) < r.bound {
		r.order = append(r.order, k)
		v = new(V)
	} else {
		old := r.order[r.next]
		v = r.vals[old] // reused, so that a full ring allocates nothing more
		delete(r.vals, old)
		var zero V
		*v = zero
		r.order[r.next] = k
		r.next = (r.next + 1) % r.bound
	}
	r.vals[k] = v
	return v, true
}

// connKey is a destination queue pair.
type connKey struct {
	dst [16]byte
	qpn wire.QPN
}

// connPSN has the first and the newest PSN that an injector has seen on one connection.
type connPSN struct{ first, last wire.PSN }

// connections records the first PSN of each connection.
type connections struct {
	ring ring[connKey, connPSN]
	key  connKey  // key of the last packet, so that a burst on one connection costs only one comparison
	cur  *connPSN // value of key
}

// observe records a packet and returns the first PSN of its connection.
func (c *connections) observe(v *view) wire.PSN {
	k := connKey{v.dst, v.qpn}
	if c.cur == nil || c.key != k {
		var fresh bool
		c.cur, fresh = c.ring.at(k)
		c.key = k
		if fresh {
			*c.cur = connPSN{v.psn, v.psn}
		}
	}
	switch d := wire.Diff(v.psn, c.cur.last); {
	case d < -restartBack || d > restartAhead:
		*c.cur = connPSN{v.psn, v.psn}
	case d > 0:
		c.cur.last = v.psn
	}
	return c.cur.first
}
