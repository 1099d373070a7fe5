package simnet

import (
	"fmt"
	"hash/crc32"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// EventKind says what has happened to a frame.
type EventKind uint8

const (
	Sent EventKind = iota
	Delivered
	LostFault
	LostQueue
	LostDown
	NoLink
	Corrupted
	Duplicated
)

var eventNames = [...]string{"sent", "delivered", "lost-fault", "lost-queue", "lost-down", "no-link", "corrupted", "duplicated"}

func (k EventKind) String() string { return eventNames[k] }

// Event says what has happened to one frame at one time.
type Event struct {
	At   clock.Time
	Kind EventKind
	// Frame holds the bytes of the frame. They are valid only during the call of Config.Trace.
	Frame []byte
	// Rules lists the IDs of the fault rules that have hit the frame.
	Rules []string
	// Node is the name of the node that has sent the frame, if Kind is NoLink: the port has no
	// link, or the node is off. Otherwise it is "".
	Node string
	// OnTheWay is true for a frame that was lost after it had entered the link: an earlier event of kind
	// Sent is of the same frame.
	OnTheWay bool
	half     *half
}

// Link returns the name of the link on which the event happened, or of the node if there is no
// link.
func (e *Event) Link() string {
	if e.half == nil {
		return e.Node
	}
	return e.half.link.Name
}

// Dir returns the direction on the link; fault.Up if there is no link.
func (e *Event) Dir() fault.Dir {
	if e.half == nil {
		return fault.Up
	}
	return e.half.dir
}

// String returns time, link, direction, kind and length of the frame, without its bytes.
func (e *Event) String() string {
	return fmt.Sprintf("%-14v %s %-4s %-10s %4d B", e.At, e.Link(), e.Dir(), e.Kind, len(e.Frame))
}

func (n *Net) trace(e Event) {
	if n.cfg.Trace != nil {
		n.event = e // a pointer to a local variable would allocate memory for each event
		n.event.At = n.now
		n.cfg.Trace(&n.event)
	}
}

// Hash computes a digest of a trace. Two runs with equal digests have had the same events. The zero
// value is ready to use.
type Hash struct {
	sum   uint64
	count uint64
}

// hashPrime is the 64-bit FNV prime.
const hashPrime = 1099511628211

// Add adds an event with the bytes of its frame to the digest.
func (h *Hash) Add(e *Event) {
	h.count++
	h.mix(uint64(e.At))
	h.mix(uint64(e.Kind)<<32 | uint64(crc32.ChecksumIEEE(e.Frame)))
	h.mix(uint64(crc32.ChecksumIEEE([]byte(e.Link())))<<8 | uint64(len(e.Dir())))
}

func (h *Hash) mix(v uint64) {
	h.sum = (h.sum ^ v) * hashPrime
	h.sum ^= h.sum >> 29
}

// Sum returns the digest of the events so far.
func (h *Hash) Sum() uint64 { return h.sum ^ h.count }
