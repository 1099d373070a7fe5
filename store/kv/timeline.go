package kv

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Phase is what a client does, or waits for, at one moment of an operation.
type Phase uint8

// Phases. A client is in one phase at a time, so the times of the phases of an operation add up to
// its latency.
const (
	// PhaseClient is the client's own work, and everything that has no phase of its own.
	PhaseClient Phase = iota
	// PhaseQueue is the time from when an operation of an open loop was due until its beginning.
	PhaseQueue
	// PhaseLock is the time from the first attempt at a lock until the client has it: its place
	// in the queue of its compute node and the round trips to the lock word, without pauses
	// between them.
	PhaseLock
	// PhaseBackOff is every pause between attempts.
	PhaseBackOff
	// PhaseRPC is a request to a metadata server, or to the memory service of a host.
	PhaseRPC
	// PhaseTrip is the first round trip outside of locks, from the post to the last completion, with
	// the time in the switch. Further ones are the phases behind it; the last of them has all others.
	PhaseTrip
)

const (
	// maxTrips is how many round trips have a phase of their own.
	maxTrips = 5
	phases   = int(PhaseTrip) + maxTrips
)

var phaseNames = [phases]string{
	"client", "queue", "lock", "back-off", "rpc", "trip 1", "trip 2", "trip 3", "trip 4", "more trips",
}

// String returns the name of the phase as reports have it.
func (p Phase) String() string { return phaseNames[p] }

// Phases lists all phases in the order of reports.
func Phases() (list []Phase) {
	list = append(list, PhaseQueue, PhaseLock)
	for p := PhaseTrip; int(p) < phases; p++ {
		list = append(list, p)
	}
	return append(list, PhaseBackOff, PhaseRPC, PhaseClient)
}

// Timed is a Store that says where the time of its operations is spent.
type Timed interface {
	Store
	// Timeline returns the client's timeline, which stays the same.
	Timeline() *Timeline
}

// TimelineOf returns the timeline of a client, or nil if it has none.
func TimelineOf(s Store) *Timeline {
	if t, ok := s.(Timed); ok {
		return t.Timeline()
	}
	return nil
}

// Timeline is the runtime of a store's client that notes the phases of the operations. The client
// uses it in place of its context's runtime, so that each Sleep is PhaseBackOff, and calls Enter and
// Leave around the other phases. The thread of the client alone uses it. The zero value without a
// runtime must not be used.
type Timeline struct {
	verbs.Runtime
	phase Phase
	since clock.Time
	trips int
	spent [phases]time.Duration
}

// NewTimeline returns a timeline of a client with that runtime.
func NewTimeline(rt verbs.Runtime) *Timeline { return &Timeline{Runtime: rt} }

// begin starts an operation. Without a timeline it does nothing.
func (t *Timeline) begin(now clock.Time) {
	if t == nil {
		return
	}
	t.phase, t.since, t.trips = PhaseClient, now, 0
	t.spent = [phases]time.Duration{}
}

// end ends the operation, and returns how long it was in each phase; nil without a timeline.
func (t *Timeline) end(now clock.Time) *[phases]time.Duration {
	if t == nil {
		return nil
	}
	t.enter(PhaseClient, now)
	return &t.spent
}

// enter ends the present phase.
func (t *Timeline) enter(p Phase, now clock.Time) {
	t.spent[t.phase] += now.Sub(t.since)
	t.phase, t.since = p, now
}

// Enter begins a phase in the middle of another one, which it returns for Leave. Each PhaseTrip
// counts as one more round trip; those of PhaseLock belong to the lock.
func (t *Timeline) Enter(p Phase) (from Phase) {
	from = t.phase
	if p == PhaseTrip {
		if from == PhaseLock {
			return from
		}
		p += Phase(min(t.trips, maxTrips-1))
		t.trips++
	}
	t.enter(p, t.Now())
	return from
}

// Leave goes back to the phase that Enter has returned.
func (t *Timeline) Leave(to Phase) { t.enter(to, t.Now()) }

// Sleep waits, which is PhaseBackOff.
func (t *Timeline) Sleep(d time.Duration) {
	from := t.Enter(PhaseBackOff)
	t.Runtime.Sleep(d)
	t.Leave(from)
}
