package ucma

// Object is a kind of objects that a quota counts.
type Object uint8

// Kinds of objects.
const (
	// ID is an identifier, including one that a peer's request has made.
	ID Object = iota
	// Event is an event that the program has not read.
	Event
	// Join is a membership in a multicast group.
	Join
)

// MaxIDs is how many identifiers all programs on a NIC may have together: not more than the
// connections and ports that are available for them.
const MaxIDs = 16384

// Quota counts the objects of a program. Its methods are called with exclusive use of the engine.
type Quota interface {
	// Take counts one more object. If the quota does not allow it, Take returns the error for the
	// command, and does not count the object.
	Take(o Object) error
	// Add counts n more objects, or fewer if n is negative. It never fails.
	Add(o Object, n int)
}

// boundless is the Quota without limits.
type boundless struct{}

func (boundless) Take(Object) error { return nil }

func (boundless) Add(Object, int) {}

// mayTell returns an error if the quota allows no further event. It is called for events that the
// program or a peer can cause repeatedly. Other events of an existing connection are always queued,
// because there are few of each.
func mayTell(q Quota) error {
	err := q.Take(Event)
	if err == nil {
		q.Add(Event, -1) // undoes Take, because Manager.queue counts the event
	}
	return err
}
