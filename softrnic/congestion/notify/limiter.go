// Package notify decides when a notification point sends congestion notification packets (CNPs): at
// once for the first marked packet, and then at most one for each interval and scope (A17.9.3; the NP
// of DCQCN, SIGCOMM 2015 section 3). It makes no packets.
package notify

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// MaxKeys bounds the scopes that a Limiter remembers: those that got a CNP in the last interval.
const MaxKeys = 4096

// Limiter limits the rate of CNPs. The zero value is ready. Times must not decrease.
type Limiter struct {
	sent map[key]struct{}
	// ring has the keys of sent with the times of their CNPs, oldest first, from index first on.
	ring  []cnp
	first int
}

type key struct {
	qpn  wire.QPN
	addr netip.Addr
}

type cnp struct {
	at  clock.Time
	key key
}

// Allow reports whether a CNP may be sent now for a marked packet to queue pair qpn from address
// addr, which belongs to a scope of congestion.Params. The call counts as sending it. If MaxKeys
// scopes got a CNP in the last interval, other scopes get none.
func (l *Limiter) Allow(now clock.Time, scope string, interval time.Duration, qpn wire.QPN, addr netip.Addr) bool {
	if interval <= 0 {
		return true
	}
	var k key
	switch scope {
	case congestion.ScopeQP:
		k = key{qpn, addr} // a queue pair of datagrams has many peers
	case congestion.ScopeIP:
		k.addr = addr
	}
	for len(l.ring) > l.first && now.Sub(l.ring[l.first].at) >= interval {
		delete(l.sent, l.ring[l.first].key)
		l.first++
	}
	if _, recent := l.sent[k]; recent || len(l.sent) >= MaxKeys {
		return false
	}
	if l.sent == nil {
		l.sent = make(map[key]struct{}, 64)
	}
	if l.first > 0 && len(l.ring) == cap(l.ring) {
		l.ring = l.ring[:copy(l.ring, l.ring[l.first:])]
		l.first = 0
	}
	l.sent[k] = struct{}{}
	l.ring = append(l.ring, cnp{now, k})
	return true
}

// Len returns how many scopes the Limiter remembers.
func (l *Limiter) Len() int { return len(l.sent) }
