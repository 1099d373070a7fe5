// Package fault decides what happens to frames and memory copies under a plan of faults.
//
// A verdict is a function of (seed and name of a rule, link, direction, frame index on that link
// and direction) and of the frame's content, never a draw from a shared stream: goroutine order
// cannot change it, and the same plan gives the same faults in the simulator and on veth. Package
// fault only decides: its callers, the port wrappers of the switch and of the simulator, drop, copy
// and delay frames and flip bits as the verdict says.
package fault

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Kind is the effect of a rule on the frames that it selects.
type Kind string

// Kinds of faults. Corrupt flips one bit behind the Ethernet header; Reorder holds a frame back
// until later ones have overtaken it; Rate is a token bucket; Blackhole drops all frames, not only
// RoCEv2.
const (
	Loss      Kind = "loss"
	Duplicate Kind = "duplicate"
	Delay     Kind = "delay"
	Reorder   Kind = "reorder"
	Corrupt   Kind = "corrupt"
	Rate      Kind = "rate"
	Blackhole Kind = "blackhole"
	Tear      Kind = "tear" // memory copies of a host, at 64-byte boundaries
)

// Dir is a direction on a link, seen from the host: up is from the host to the switch.
type Dir string

// Directions.
const (
	Up   Dir = "up"
	Down Dir = "down"
	Both Dir = "both"
)

// Rule is one fault on one link. It is declared in rack files, by command and in tests by this same
// type.
type Rule struct {
	// ID names the rule; assigned by the plan's holder when empty.
	ID string `json:"id,omitempty" yaml:"id,omitempty"`
	// Link is the host whose link it is on.
	Link string `json:"link" yaml:"link"`
	// Dir defaults to both.
	Dir  Dir  `json:"dir,omitempty" yaml:"dir,omitempty"`
	Kind Kind `json:"kind" yaml:"kind"`
	// Probability of each selected frame being hit, in (0,1]. 0 means 1, which exact events want.
	Probability float64 `json:"probability,omitempty" yaml:"probability,omitempty"`
	// Delay and Jitter: each frame waits Delay plus a uniform share of ±Jitter (kind delay); for
	// kind reorder, Delay is how long a frame is held back (0: one millisecond); for kind tear, the
	// longest pause in a copy.
	Delay  time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	// BitsPerSecond is the rate of kind rate.
	BitsPerSecond int64 `json:"bitsPerSecond,omitempty" yaml:"bitsPerSecond,omitempty"`
	// Match selects frames; the zero value selects every frame.
	Match Match `json:"match,omitzero" yaml:"match,omitempty"`
	// Count ends the rule after that many hits; 0 is no limit. "once" is 1, "next N" is N. Each
	// direction of the link counts for itself, so that a verdict depends on nothing else.
	Count int `json:"count,omitempty" yaml:"count,omitempty"`
	// For ends the rule that long after it was installed; 0 is until healed.
	For time.Duration `json:"for,omitempty" yaml:"for,omitempty"`
	// Seed makes the random part of the rule; 0 takes the plan's seed.
	Seed uint64 `json:"seed,omitempty" yaml:"seed,omitempty"`
}

// Match selects RoCEv2 packets. All set fields must hold. A match with any field set never selects
// other traffic.
type Match struct {
	// Opcodes: any of these (spelled as wire.Opcode prints them in rules, e.g. RC_WRITE_LAST).
	// Empty: any.
	Opcodes []wire.Opcode `json:"opcodes,omitempty" yaml:"opcodes,omitempty"`
	// Class: "", request, response, ack (positive), nak, rnr, read_response, atomic, cnp, roce (any
	// RoCEv2).
	Class string `json:"class,omitempty" yaml:"class,omitempty"`
	// QPN is the destination queue pair; nil: any.
	QPN *wire.QPN `json:"qpn,omitempty" yaml:"qpn,omitempty"`
	// PSN is an absolute packet sequence number; nil: any.
	PSN *wire.PSN `json:"psn,omitempty" yaml:"psn,omitempty"`
	// PSNOffset counts from the first PSN that the link saw for that destination queue pair; nil:
	// any.
	PSNOffset *int `json:"psnOffset,omitempty" yaml:"psnOffset,omitempty"`
	// Transmission selects the n-th time (from 1) that this packet (destination, QPN, PSN, opcode)
	// crosses the link in this direction; 0: any.
	Transmission int `json:"transmission,omitempty" yaml:"transmission,omitempty"`
	// SamePacket pins the rule to the first packet that it hits: later hits must have its
	// destination, QPN, PSN and opcode. With Count n it loses the first n transmissions of one
	// packet.
	SamePacket bool `json:"samePacket,omitempty" yaml:"samePacket,omitempty"`
}

// Verdict is the decision about one frame. The zero value passes the frame on unchanged.
type Verdict struct {
	Drop bool
	// Copies is the number of extra copies to send.
	Copies int
	// Delay is how long to hold the frame. Frames behind it are not held, so they overtake it.
	Delay time.Duration
	// Corrupt says to flip bit Bit (0 is the top bit of the first byte behind the Ethernet header).
	Corrupt bool
	Bit     int
	// Rules are the IDs of the rules that hit, for comments in captures; nil if none.
	Rules []string
}

// Passes reports whether the frame is passed on at once, once and unchanged.
func (v *Verdict) Passes() bool { return !v.Drop && v.Copies == 0 && v.Delay <= 0 && !v.Corrupt }
