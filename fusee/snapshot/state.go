package snapshot

type State uint8

// States.
const (
	Idle State = iota
	// Swapping: the writer swaps its value into the backups.
	Swapping
	// Looking: Rules 1 and 2 have not decided, so the writer reads the primary for Rule 3.
	Looking
	// Fixing: the writer has won, and swaps its value into the backups that have another value.
	Fixing
	// Logging: the writer has won, and writes the outcome into its log entry.
	Logging
	// Committing: the writer swaps the primary.
	Committing
	// Waiting: the writer has lost, and waits for the winner to change the primary.
	Waiting
	// Won, Lost and Failed are final. In Won and Lost the primary has changed. In Failed the
	// outcome is unknown, because an operation has failed or a word had an unexpected value.
	Won
	Lost
	Failed
	states // number of states
)

var stateNames = [...]string{"idle", "swapping", "looking", "fixing", "logging", "committing", "waiting", "won", "lost", "failed"}

func (s State) String() string { return stateNames[s] }

// Ended reports whether the state is final.
func (s State) Ended() bool { return s >= Won }

// Action is what the owner of a Writer must do next.
type Action uint8

// Actions.
const (
	// None: the writer has ended.
	None Action = iota
	// SwapBackups: execute all swaps that Swaps returns, at the same time, and call Backups with
	// the values that they have found.
	SwapBackups
	// ReadPrimary: read the primary, and call Primary with its value. Before reading it again, the
	// owner may pause.
	ReadPrimary
	// Log: write the outcome into the log entry, and call Logged.
	Log
	// SwapPrimary: swap the primary from the old value to the new one, and call Primary with the
	// value that the swap has found.
	SwapPrimary
)

var actionNames = [...]string{"-", "swap the backups", "read the primary", "write the log", "swap the primary"}

func (a Action) String() string { return actionNames[a] }

// event is what happens to a Writer: what its owner has found.
type event uint8

const (
	evBegin   event = iota // there are backups
	evAlone                // there are no backups: the primary decides
	evAll                  // Rule 1 decides for the writer
	evMost                 // Rule 2 decides for the writer
	evLost                 // Rule 1, 2 or 3 decides for another writer
	evOpen                 // neither Rule 1 nor Rule 2 decides
	evLeast                // Rule 3 decides for the writer
	evGone                 // the primary no longer has the old value
	evSame                 // the primary has the old value
	evFixed                // all backups have the new value
	evLogged               // the outcome is in the log
	evSwapped              // the swap of the primary has found the old value
	evForeign              // a word has a value that no writer of this protocol leaves there
	evDown                 // an operation has failed
	events                 // number of events
)

var eventNames = [...]string{
	"begin", "no backups", "Rule 1", "Rule 2", "lost", "open", "Rule 3", "changed", "unchanged", "fixed", "logged", "swapped", "foreign", "down",
}

func (e event) String() string { return eventNames[e] }

// edges is the state diagram of a Writer: in state `from`, the event `on` leads to state `to`, and
// the Writer's owner must do the action `does`.
var edges = [...]struct {
	from State
	on   event
	to   State
	does Action
}{
	{Idle, evBegin, Swapping, SwapBackups},
	{Idle, evAlone, Committing, SwapPrimary},

	{Swapping, evAll, Logging, Log},
	{Swapping, evMost, Fixing, SwapBackups},
	{Swapping, evLost, Waiting, ReadPrimary},
	{Swapping, evOpen, Looking, ReadPrimary},
	{Swapping, evDown, Failed, None},

	{Looking, evLeast, Fixing, SwapBackups},
	{Looking, evLost, Waiting, ReadPrimary},
	{Looking, evGone, Lost, None},
	{Looking, evDown, Failed, None},

	{Fixing, evFixed, Logging, Log},
	{Fixing, evForeign, Failed, None},
	{Fixing, evDown, Failed, None},

	{Logging, evLogged, Committing, SwapPrimary},
	{Logging, evDown, Failed, None},

	{Committing, evSwapped, Won, None},
	{Committing, evGone, Lost, None}, // only if the word has no backups: another writer has won
	{Committing, evForeign, Failed, None},
	{Committing, evDown, Failed, None},

	{Waiting, evGone, Lost, None},
	{Waiting, evSame, Waiting, ReadPrimary},
	{Waiting, evDown, Failed, None},
}

// cell is an entry of diagram: the next state and the owner's action. ok is false if the state does
// not expect the event.
type cell struct {
	to   State
	does Action
	ok   bool
}

// diagram has the edges by state and event.
var diagram = func() (t [states][events]cell) {
	for _, e := range edges {
		t[e.from][e.on] = cell{e.to, e.does, true}
	}
	return t
}()
