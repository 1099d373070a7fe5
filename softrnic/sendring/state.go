package sendring

// State says what a ring waits for.
type State uint8

// States of a ring.
const (
	Idle    State = iota // all entries up to the limit were executed
	Ready                // Run executes the next entry
	Waiting              // a WAIT has not ended
	Fenced               // an entry with a fence waits for earlier READs and atomics
	Full                 // the queue pair takes no more entries at the moment
	Failing              // an entry has failed; its completion waits for those of earlier entries
	Ended                // the queue pair is no longer in a state in which it sends
)

var stateNames = [...]string{"idle", "ready", "waiting", "fenced", "full", "failing", "ended"}

func (s State) String() string { return stateNames[s] }

// event is an event that changes the state of a ring.
type event uint8

const (
	limitMoved event = iota
	limitReached
	countMissing
	countReached
	readsInFlight
	readsDone
	queueFull
	queueRoom
	entryBad
	stopped
)

var eventNames = [...]string{
	"limit moved", "limit reached", "count missing", "count reached", "READs in flight", "READs done", "queue full", "queue has room",
	"bad entry", "stopped",
}

// moves is the transition table by state and event. The golden file testdata/states.golden is its
// printed form.
var moves = [...][len(eventNames)]State{
	Idle:    {Ready, Idle, Idle, Idle, Idle, Idle, Idle, Idle, Idle, Ended},
	Ready:   {Ready, Idle, Waiting, Ready, Fenced, Ready, Full, Ready, Failing, Ended},
	Waiting: {Waiting, Waiting, Waiting, Ready, Waiting, Waiting, Waiting, Waiting, Failing, Ended},
	Fenced:  {Fenced, Fenced, Fenced, Fenced, Fenced, Ready, Fenced, Fenced, Fenced, Ended},
	Full:    {Full, Full, Full, Full, Full, Full, Full, Ready, Full, Ended},
	Failing: {Failing, Failing, Failing, Failing, Failing, Failing, Failing, Failing, Failing, Ended},
	Ended:   {Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended},
}

func (s *State) on(e event) { *s = moves[*s][e] }
