package netcache

// State says what the switch knows about the value of a key that it keeps.
type State uint8

const (
	// Cold: nothing. GETs go to the server.
	Cold State = iota
	// Asked: a probe is with the server, which is a GET of a client under a number of the switch's own.
	Asked
	// Storing: the probe was answered, and the value is on its way to the memory.
	Storing
	// Warm: the value is in the memory, and answers GETs.
	Warm
	states // the number of states
)

var stateNames = [...]string{"cold", "asked", "storing", "warm"}

func (s State) String() string { return stateNames[s] }

// Step is what the switch does besides the change of state.
type Step uint8

const (
	// Forward: the packet goes on.
	Forward Step = iota
	// Probe: the GET goes on under a new number of the switch.
	Probe
	// Read: the GET waits for a READ of the value.
	Read
	// Hold: the GET waits until the value can be read, or is unknown again.
	Hold
	// Store: the value is written to the memory, and the answer goes on.
	Store
)

var stepNames = [...]string{"forward", "probe", "READ", "hold", "WRITE"}

func (s Step) String() string { return stepNames[s] }

type event uint8

const (
	evGet    event = iota // a GET of a client
	evAnswer              // the answer to the probe, with a value that no other answer contradicts
	evUnfit               // the answer to the probe, with nothing that can be kept
	evSame                // the answer to another GET, with the same value
	evOther               // the answer to a GET, with another value, none, or one that cannot be read
	evWrite               // a request that may change the value
	evDone                // the answer to such a request
	evStored              // the memory has the value
	evLost                // the memory has not, or not for sure
	evOld                 // the value is older than the rule allows, or the probe has no answer
	events                // the number of events
)

var eventNames = [...]string{"GET", "answer to the probe", "unfit answer", "same value", "other value", "write", "write done", "stored", "lost", "old"}

func (e event) String() string { return eventNames[e] }

// edge is one edge of the state diagram.
type edge struct {
	from State
	on   event
	to   State
	does Step
}

// edges is the state diagram of a key. In every state an answer that shows another value, and the answer
// to a write, lead to Cold before they leave the switch: that alone is what correctness needs (see the
// package comment). A write that was not answered yet leads there too, so that it shows soon although its
// answer may be lost.
var edges = [...]edge{
	{Cold, evGet, Asked, Probe},
	{Cold, evSame, Cold, Forward},
	{Cold, evOther, Cold, Forward},
	{Cold, evWrite, Cold, Forward},
	{Cold, evDone, Cold, Forward},

	{Asked, evGet, Asked, Hold},
	{Asked, evAnswer, Storing, Store},
	{Asked, evUnfit, Cold, Forward},
	{Asked, evSame, Asked, Forward},
	{Asked, evOther, Cold, Forward},
	{Asked, evWrite, Cold, Forward},
	{Asked, evDone, Cold, Forward},
	{Asked, evOld, Cold, Forward},

	{Storing, evGet, Storing, Hold},
	{Storing, evSame, Storing, Forward},
	{Storing, evOther, Cold, Forward},
	{Storing, evWrite, Cold, Forward},
	{Storing, evDone, Cold, Forward},
	{Storing, evStored, Warm, Forward},
	{Storing, evLost, Cold, Forward},

	{Warm, evGet, Warm, Read},
	{Warm, evSame, Warm, Forward},
	{Warm, evOther, Cold, Forward},
	{Warm, evWrite, Cold, Forward},
	{Warm, evDone, Cold, Forward},
	{Warm, evLost, Cold, Forward},
	{Warm, evOld, Cold, Forward},
}

type cellOf struct {
	to   State
	does Step
	ok   bool
}

// diagram holds the edges by state and event.
var diagram = func() (t [states][events]cellOf) {
	for _, e := range edges {
		t[e.from][e.on] = cellOf{e.to, e.does, true}
	}
	return t
}()
