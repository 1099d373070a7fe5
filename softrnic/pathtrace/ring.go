package pathtrace

import "fmt"

// Point is a point on the path of a packet.
type Point uint8

// Points. The daemon of a host records all of them; the switch records only Received, Sending and
// Sent.
const (
	// Posted: an application has posted work requests, whose packets the next send call sends.
	Posted Point = iota + 1
	// Sending: a send call begins.
	Sending
	// Sent: the send call has returned.
	Sent
	// Received: a receive call has returned frames.
	Received
	// Handled: the NIC has handled these frames. Their completions are in the completion queue.
	Handled
)

// Event is one packet or batch of packets at a Point.
type Event struct {
	// At is in nanoseconds of the machine's monotonic clock.
	At    int64 `json:"at"`
	Point Point `json:"point"`
	// Port is the switch's port; 0 in a host.
	Port int `json:"port,omitempty"`
}

// MaxEvents is the largest capacity of a Ring.
const MaxEvents = 1 << 17

// Ring has the events of one process. It has no lock: one thread at a time uses it.
type Ring struct {
	events []Event
	missed uint64
}

// NewRing returns a ring for n events, at most MaxEvents. When it is full, further events are only
// counted. So the first operations have all their events.
func NewRing(n int) *Ring { return &Ring{events: make([]Event, 0, max(0, min(n, MaxEvents)))} }

// Add records an event. It does not allocate.
func (r *Ring) Add(at int64, p Point, port int) {
	if len(r.events) == cap(r.events) {
		r.missed++
		return
	}
	r.events = append(r.events, Event{at, p, port})
}

// Trace has the events that a process has recorded.
type Trace struct {
	Events []Event `json:"events"`
	// Missed counts the events for which there was no room.
	Missed uint64 `json:"missed"`
	// Ports are the names of the switch's ports; empty for a host.
	Ports []string `json:"ports,omitempty"`
}

// Trace returns the recorded events. For a nil ring there are none. The slice is the memory of the
// ring.
func (r *Ring) Trace() Trace {
	if r == nil {
		return Trace{Events: []Event{}}
	}
	return Trace{Events: r.events, Missed: r.missed}
}

// Request asks a process to record events.
type Request struct {
	// Events is the capacity of the ring, 1 to MaxEvents.
	Events int `json:"events"`
	// Ports are the names of the switch's ports whose packets are recorded; empty means all ports.
	// Hosts ignore them.
	Ports []string `json:"ports,omitempty"`
}

// Check returns an error if the request is not allowed.
func (r *Request) Check() error {
	if r.Events < 1 || r.Events > MaxEvents {
		return fmt.Errorf("events %d: want 1 to %d", r.Events, MaxEvents)
	}
	return nil
}
