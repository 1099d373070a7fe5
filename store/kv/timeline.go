package kv

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Phase is a part of the time of an operation, in which its client does, or waits for, one kind of
// thing.
type Phase uint8

// Phases. A client is in one phase at a time. So the times of an operation's phases add up to its
// latency.
const (
	// PhaseClient is the client's own work, and all time without a phase of its own.
	PhaseClient Phase = iota
	// PhaseQueue is the time between the moment at which an operation of an open loop is due and
	// its beginning.
	PhaseQueue
	// PhaseLock is the time from the first attempt at a lock until the client has the lock: the
	// wait in the queue of its compute node, and the round trips to the lock word, without
	// PhaseBackOff.
	PhaseLock
	// PhaseBackOff is the time of all pauses between attempts.
	PhaseBackOff
	// PhaseRPC is the time of requests to a metadata server, or to the memory service of a host.
	PhaseRPC
	// PhaseSwitch is the time in which requests of a round trip, or responses to them, are inside
	// the switch, also while the switch holds them. Only a runtime that is Switched knows this
	// time. With other runtimes it is a part of PhaseLock and of the phases of round trips.
	PhaseSwitch
	// PhaseTrip is the time of the first round trip to memory outside of PhaseLock, from the post
	// to the last completion, without PhaseSwitch. PhaseTrip+1 is the time of the second such round
	// trip, and so on. PhaseTrip+maxTrips-1 is the time of all further ones together.
	PhaseTrip
)

const (
	// maxTrips is the number of phases for round trips.
	maxTrips = 5
	phases   = int(PhaseTrip) + maxTrips
)

var phaseNames = [phases]string{
	"client", "queue", "lock", "back-off", "rpc", "switch", "trip 1", "trip 2", "trip 3", "trip 4", "more trips",
}

func (p Phase) String() string { return phaseNames[p] }

// trips reports whether a client waits for round trips to memory in the phase.
func (p Phase) trips() bool { return p == PhaseLock || p >= PhaseTrip }

// Phases returns all phases in the order of reports.
func Phases() (list []Phase) {
	list = append(list, PhaseQueue, PhaseLock)
	for p := PhaseTrip; int(p) < phases; p++ {
		list = append(list, p)
	}
	return append(list, PhaseSwitch, PhaseBackOff, PhaseRPC, PhaseClient)
}

// Timed is a Store that records in which phases its operations spend their time.
type Timed interface {
	Store
	// Timeline returns the client's timeline, always the same one.
	Timeline() *Timeline
}

// TimelineOf returns the timeline of a client, or nil if it has none.
func TimelineOf(s Store) *Timeline {
	if t, ok := s.(Timed); ok {
		return t.Timeline()
	}
	return nil
}

// Switched is a verbs.Runtime that knows how long requests are inside the switch. The simulator has
// one; a rack has none, because the switch is another process there.
type Switched interface {
	verbs.Runtime
	// InSwitch returns how long the switch has had at least one request of the calling thread, or a
	// response to one. Only requests posted since the thread's last call of InSwitch count.
	InSwitch() time.Duration
}

// Timeline is the runtime of a store's client, and records the phases of its operations. The client
// uses it in place of its context's runtime, so that each Sleep is PhaseBackOff. The client calls
// Enter and Leave around the other phases. Only the client's thread uses it. NewTimeline makes one;
// the zero value has no runtime and must not be used.
type Timeline struct {
	verbs.Runtime
	sw    Switched   // the runtime, if it knows PhaseSwitch; otherwise nil
	phase Phase      // the present phase
	since clock.Time // when the present phase began
	trips int        // number of round trips of the operation that are no part of PhaseLock
	parts parts      // the phases of the operation so far
	spent [phases]time.Duration
}

// NewTimeline makes a timeline over the runtime rt.
func NewTimeline(rt verbs.Runtime) *Timeline {
	sw, _ := rt.(Switched)
	return &Timeline{Runtime: rt, sw: sw}
}

// begin is called when an operation begins. If t is nil, it does nothing.
func (t *Timeline) begin(now clock.Time) {
	if t == nil {
		return
	}
	t.phase, t.since, t.trips = PhaseClient, now, 0
	t.parts.list, t.parts.more = nil, 0
	t.spent = [phases]time.Duration{}
}

// end is called when the operation ends. It returns how long the operation was in each phase, from
// begin on, so without PhaseQueue. The times are valid until the next begin. If t is nil, end
// returns nil.
func (t *Timeline) end(now clock.Time) *[phases]time.Duration {
	if t == nil {
		return nil
	}
	t.enter(PhaseClient, now)
	return &t.spent
}

// enter ends the present phase and begins phase p.
func (t *Timeline) enter(p Phase, now clock.Time) {
	took, inSwitch := now.Sub(t.since), time.Duration(0)
	if t.sw != nil {
		if in := min(t.sw.InSwitch(), took); t.phase.trips() {
			t.spent[PhaseSwitch] += in
			took -= in
			inSwitch = in
		}
	}
	t.spent[t.phase] += took
	t.parts.add(t.phase, t.since, now, inSwitch)
	t.phase, t.since = p, now
}

// Enter begins phase p inside another phase, which it returns for Leave. Each Enter of PhaseTrip
// counts as a further round trip, except inside PhaseLock, where it changes nothing, because the
// round trips to a lock belong to PhaseLock.
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

// Leave returns to the phase that Enter has returned.
func (t *Timeline) Leave(to Phase) { t.enter(to, t.Now()) }

// Sleep sleeps in PhaseBackOff.
func (t *Timeline) Sleep(d time.Duration) {
	from := t.Enter(PhaseBackOff)
	t.Runtime.Sleep(d)
	t.Leave(from)
}
