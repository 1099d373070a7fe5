package kvcs

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// How long clients avoid a replica after a failed READ, in round trips: avoidNACK after a NACK,
// avoidTimeout after any other failure. If a READ that begins after this time fails without a NACK
// again, the time doubles, up to mostAvoidTimeout.
const (
	avoidNACK        = 8
	avoidTimeout     = 200
	mostAvoidTimeout = 3200
)

// Health is what the clients of a host know of the replicas. The zero value is ready. Its methods
// may be called by several goroutines.
type Health struct {
	mu   sync.Mutex
	sick map[netip.Addr]*avoided
}

type avoided struct {
	replica Replica
	until   clock.Time
	period  time.Duration // how long it is avoided after a failure that is no NACK
	// last is the time of the last failure. noted is when a failure that is no NACK last set the
	// field `until`.
	last, noted clock.Time
}

// choose returns the replica that a client asks, or nil if there is none: the first one of `list`
// that is not avoided, or else the one whose last failure is the oldest. It begins with the replica
// at index `skip` of `list`.
func (h *Health) choose(now clock.Time, list []*Remote, skip int) (best *Remote) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	oldest := clock.Never
	for i := range list {
		r := list[(i+skip)%len(list)]
		x := h.sick[r.Addr]
		if x == nil || x.until <= now || x.replica != r.id {
			return r
		}
		if x.last < oldest {
			best, oldest = r, x.last
		}
	}
	return best
}

// well notes that a READ of replica r has succeeded: clients no longer avoid it.
func (h *Health) well(r *Remote) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.sick[r.Addr]; x != nil && x.replica == r.id {
		delete(h.sick, r.Addr)
	}
}

// failed notes that a READ of replica r, which began at the time `began`, has failed with status s.
// A READ that the client's NIC did not dispatch says nothing about the replica. If several READs
// that are in flight together fail without a NACK, only the first of these failures decides how
// long clients avoid the replica. If clients avoid all replicas, they READ the one whose last
// failure is the oldest, so failed stores the time of each failure.
func (h *Health) failed(now, began clock.Time, r *Remote, s nic.Status, rtt time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s == nic.DispatchTimeout {
		return
	}
	x := h.sick[r.Addr]
	if x == nil || x.replica != r.id {
		x = &avoided{replica: r.id}
		if h.sick == nil {
			h.sick = make(map[netip.Addr]*avoided)
		}
		h.sick[r.Addr] = x
	}
	x.last = now
	switch {
	case s == nic.NACK:
		x.until = max(x.until, now.Add(avoidNACK*rtt))
	case began >= x.noted:
		if x.period == 0 || x.until <= began {
			x.period = min(max(2*x.period, avoidTimeout*rtt), mostAvoidTimeout*rtt)
		}
		x.until, x.noted = max(x.until, now.Add(x.period)), now
	}
}
