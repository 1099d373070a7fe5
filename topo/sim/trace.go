package sim

import (
	"fmt"
	"hash/crc32"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// EventKind is what happened to a frame.
type EventKind uint8

// Kinds of frame events.
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

// String is the word that a trace prints.
func (k EventKind) String() string { return eventNames[k] }

// Event is one thing that happened to one frame.
type Event struct {
	At   clock.Time
	Kind EventKind
	// Frame is valid during the call only.
	Frame []byte
	// Rules are the faults that hit.
	Rules []string
	// Node and Port are set for NoLink.
	Node string
	Port int
	half *half
}

// Link is the name of the link, or of the node when there is none.
func (e *Event) Link() string {
	if e.half == nil {
		return e.Node
	}
	return e.half.link.Name
}

// Dir is the direction on the link.
func (e *Event) Dir() fault.Dir {
	if e.half == nil {
		return fault.Up
	}
	return e.half.dir
}

// String prints time, link, direction and what happened, without the packet.
func (e *Event) String() string {
	return fmt.Sprintf("%-14v %s %-4s %-10s %4d B", e.At, e.Link(), e.Dir(), e.Kind, len(e.Frame))
}

func (n *Net) trace(e Event) {
	if n.cfg.Trace != nil {
		n.event = e // an escaping local would cost an allocation an event
		n.event.At = n.now
		n.cfg.Trace(&n.event)
	}
}

// Hash is a running digest of a trace: equal digests mean equal runs. The zero value is ready.
type Hash struct {
	sum   uint64
	count uint64
}

// hashPrime is the 64-bit FNV prime.
const hashPrime = 1099511628211

// Add digests an event with the bytes of its frame.
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

// Sum is the digest so far.
func (h *Hash) Sum() uint64 { return h.sum ^ h.count }
