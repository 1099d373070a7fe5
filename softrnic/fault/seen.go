package fault

import "github.com/rdmalab/rdmalab/softrnic/wire"

// Bounds of what an injector remembers.
const (
	// maxConnections is how many destination queue pairs keep their first PSN on a link and
	// direction; the oldest entry is forgotten first.
	maxConnections = 4096
	// maxTracked is how many packets a rule with Match.Transmission counts at a time.
	maxTracked = 4096
)

// A jump of the PSN by more than this is a new connection on a queue pair number used before,
// because a retransmission goes back by no more than the window and a request ahead by no more than
// one READ's span.
const (
	restartBack  = 1 << 16
	restartAhead = 1 << 20
)

// ring is a bounded map that forgets its oldest key. It allocates its memory on the first add.
type ring[K comparable, V any] struct {
	bound int
	vals  map[K]*V
	order []K
	next  int
}

// at returns the value of k, adding a zero one (fresh) if it is not there. The pointer is valid
// until the next call.
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

// connPSN is the first and the newest PSN that a direction of a link saw for a destination queue
// pair.
type connPSN struct{ first, last wire.PSN }

// connections learns where each connection's PSNs start.
type connections struct {
	ring ring[connKey, connPSN]
	key  connKey  // of the last packet: bursts of one connection cost one comparison
	cur  *connPSN // its entry
}

// observe notes a packet and returns its connection's first PSN.
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
