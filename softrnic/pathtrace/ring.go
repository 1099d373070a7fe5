package pathtrace

import "fmt"

// Point is a place on the path of a packet.
type Point uint8

// Points. The daemon of a host records all of them, the switch Received, Sending and Sent.
const (
	// Posted: an application has entered the NIC and posted what the next send call sends.
	Posted Point = iota + 1
	// Sending: a send call begins.
	Sending
	// Sent: it has returned.
	Sent
	// Received: a receive call has returned frames.
	Received
	// Handled: the NIC has handled them. What they complete is in the completion queue.
	Handled
)

// Event is one packet, or batch of packets, at a Point.
type Event struct {
	// At is in nanoseconds of the machine's monotonic clock.
	At    int64 `json:"at"`
	Point Point `json:"point"`
	// Port is the switch's port; 0 in a host.
	Port int `json:"port,omitempty"`
}

// MaxEvents is the largest capacity of a Ring.
const MaxEvents = 1 << 17

// Ring has the events of one process. It belongs to the thread that calls Add.
type Ring struct {
	events []Event
	missed uint64
}

// NewRing returns a ring with room for n events, at most MaxEvents. When it is full, further events
// are counted and not kept: the first ones are those of the first operations.
func NewRing(n int) *Ring { return &Ring{events: make([]Event, 0, max(0, min(n, MaxEvents)))} }

// Add records an event. It does not allocate.
func (r *Ring) Add(at int64, p Point, port int) {
	if len(r.events) == cap(r.events) {
		r.missed++
		return
	}
	r.events = append(r.events, Event{at, p, port})
}

// Trace is what a process has recorded.
type Trace struct {
	Events []Event `json:"events"`
	// Missed counts the events for which there was no room.
	Missed uint64 `json:"missed"`
	// Ports are the names of the switch's ports; of a host there are none.
	Ports []string `json:"ports,omitempty"`
}

// Trace returns the events; that of a nil ring is empty. The events are the ring's own.
func (r *Ring) Trace() Trace {
	if r == nil {
		return Trace{Events: []Event{}}
	}
	return Trace{Events: r.events, Missed: r.missed}
}

// Request asks a process to record from now on.
type Request struct {
	// Events is the capacity, 1 to MaxEvents.
	Events int `json:"events"`
	// Ports are the names of the switch's ports whose packets it records; none: all of them. A host
	// ignores them.
	Ports []string `json:"ports,omitempty"`
}

// Check returns an error if the request is not allowed.
func (r *Request) Check() error {
	if r.Events < 1 || r.Events > MaxEvents {
		return fmt.Errorf("events %d: want 1 to %d", r.Events, MaxEvents)
	}
	return nil
}
