package ucma

// Object is what a program has of the connection manager.
type Object uint8

// Objects that a quota counts.
const (
	// ID is an identifier, also one that a peer's request has made.
	ID Object = iota
	// Event is an event that the program has not read.
	Event
	// Join is a membership in a multicast group.
	Join
)

// MaxIDs is how many identifiers all programs on a NIC may have together: no more than there are
// connections and ports for them.
const MaxIDs = 16384

// Quota counts what a program has. It is called in steps of the engine.
type Quota interface {
	// Take counts one object more. An error, which is that of the command: the program may not have
	// it, and it is not counted.
	Take(o Object) error
	// Add counts n objects more, or fewer, and never refuses.
	Add(o Object, n int)
}

// boundless is the Quota of a Manager without one.
type boundless struct{}

func (boundless) Take(Object) error { return nil }

func (boundless) Add(Object, int) {}

// mayTell reports whether the program may cause one more event, or a peer cause one for it. What
// happens to a connection that it has is told in any case: of each there are few.
func mayTell(q Quota) error {
	err := q.Take(Event)
	if err == nil {
		q.Add(Event, -1) // queue counts it
	}
	return err
}
