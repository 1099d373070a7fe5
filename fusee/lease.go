package fusee

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// leases tells from values that change while their owners are alive which owners have died. It is a value
// without I/O: a master hands it what it has read.
type leases[K comparable] struct {
	lease time.Duration
	seen  map[K]sign
}

// sign is the last sign of life of an owner: its value, and when it was first read.
type sign struct {
	value uint64
	since clock.Time
}

func newLeases[K comparable](lease time.Duration) leases[K] {
	return leases[K]{lease, make(map[K]sign)}
}

// see notes the value of an owner, which the master has begun to read at the time asked. It reports whether
// the owner has died: whether its value was the same for the whole lease. The master may have been hung
// since: so the time now would prove nothing.
func (l *leases[K]) see(owner K, value uint64, asked clock.Time, now clock.Time) (dead bool) {
	was, known := l.seen[owner]
	if !known || was.value != value {
		l.seen[owner] = sign{value, now}
		return false
	}
	return asked >= was.since.Add(l.lease)
}

// forget forgets an owner.
func (l *leases[K]) forget(owner K) { delete(l.seen, owner) }
