// Package fault decides what happens to frames and memory copies under a plan of faults.
//
// The random choices of a rule are a function of its seed and name, the link, the direction, and
// the index of the frame among those that have reached the rule on that link and direction. They do
// not depend on a shared stream of random numbers. So the order of goroutines cannot change them,
// and the same plan and frames give the same choices in the simulator and on a rack. A verdict also
// depends on the frame's content, on earlier frames if the rule counts them, and for the field For
// and the kind Rate on the time. Package fault only decides: its callers, the switch and the
// simulator, drop, copy and delay frames and flip bits as the verdict says.
package fault

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Kind is the effect of a rule on the frames that it selects.
type Kind string

// Kinds of faults. Corrupt flips one bit behind the Ethernet header. Reorder holds a frame back for
// some time, so that later ones overtake it. Rate queues frames so that they leave at a rate, and
// drops those that find the queue full. Blackhole drops all frames of the link. Mark sets CE in the ECN
// field, whatever the sender has set. Storm sends pause frames for a priority all the time, as a port or
// NIC that is broken does; it hits no frames.
const (
	Loss      Kind = "loss"
	Duplicate Kind = "duplicate"
	Delay     Kind = "delay"
	Reorder   Kind = "reorder"
	Corrupt   Kind = "corrupt"
	Rate      Kind = "rate"
	Blackhole Kind = "blackhole"
	Mark      Kind = "ecn"
	Storm     Kind = "pause"
	Tear      Kind = "tear" // tears memory copies of a host, at 64-byte boundaries
)

// Dir is a direction on a link, seen from the host: up is from the host to the switch.
type Dir string

// Directions.
const (
	Up   Dir = "up"
	Down Dir = "down"
	Both Dir = "both"
)

// Rule is one fault on one link. Rack files, commands and tests all use this type.
type Rule struct {
	// ID names the rule; if it is empty, one is assigned.
	ID string `json:"id,omitempty" yaml:"id,omitempty"`
	// Link is the link's name, which is that of its host.
	Link string `json:"link" yaml:"link"`
	// Dir is the direction; empty means both.
	Dir  Dir  `json:"dir,omitempty" yaml:"dir,omitempty"`
	Kind Kind `json:"kind" yaml:"kind"`
	// Probability is the probability, in (0,1], that the rule hits a selected frame. 0 means 1: the
	// rule hits every selected frame.
	Probability float64 `json:"probability,omitempty" yaml:"probability,omitempty"`
	// Delay and Jitter depend on the kind. Delay: each frame waits for Delay plus a random time
	// between −Jitter and +Jitter. Reorder: Delay is how long a frame is held back; 0 means one
	// millisecond. Tear: Delay is the longest pause in a copy.
	Delay  time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	// BitsPerSecond is the rate for the kind Rate.
	BitsPerSecond int64 `json:"bitsPerSecond,omitempty" yaml:"bitsPerSecond,omitempty"`
	// Priority is, for the kind Storm, the priority that is paused, 0 to 7: with direction up the one of
	// the switch's queue towards the host, with down the one of the host's NIC.
	Priority int `json:"priority,omitempty" yaml:"priority,omitempty"`
	// Match selects frames; the zero value selects every frame.
	Match Match `json:"match,omitzero" yaml:"match,omitempty"`
	// Count ends the rule after this many hits; 0 means no limit. On the command line, "once" is 1 and
	// "next N" is N. Each direction of the link has its own count, so that its verdicts do not depend
	// on the other direction.
	Count int `json:"count,omitempty" yaml:"count,omitempty"`
	// For is the time after which the rule ends; 0 means that no time ends it.
	For time.Duration `json:"for,omitempty" yaml:"for,omitempty"`
	// Seed determines the rule's random choices; 0 means the seed of the plan.
	Seed uint64 `json:"seed,omitempty" yaml:"seed,omitempty"`
}

// Match selects RoCEv2 packets or, by its class, 1RMA messages. All fields that are set must match.
// If any field is set, frames of other protocols are never selected.
type Match struct {
	// Opcodes are the opcodes that match, spelled as wire.Opcode prints them (RC_WRITE_LAST). Empty
	// means any.
	Opcodes []wire.Opcode `json:"opcodes,omitempty" yaml:"opcodes,omitempty"`
	// Class is "" (any), request, response, ack (positive), nak, rnr, read_response, atomic, cnp or
	// roce (any RoCEv2); or, for 1RMA messages, onerma (any), onerma_request, onerma_pull,
	// onerma_data, onerma_done, onerma_refusal (NACK and AUTHFAIL), onerma_read, onerma_write or
	// onerma_rekey.
	Class string `json:"class,omitempty" yaml:"class,omitempty"`
	// QPN is the destination queue pair; nil means any.
	QPN *wire.QPN `json:"qpn,omitempty" yaml:"qpn,omitempty"`
	// PSN is an absolute packet sequence number; nil means any.
	PSN *wire.PSN `json:"psn,omitempty" yaml:"psn,omitempty"`
	// PSNOffset is the PSN relative to the first PSN of the connection: that of the first packet to
	// the destination queue pair that has crossed the link in this direction. Management datagrams (to queue
	// pair 1) have none, unless QPN names it. nil means any.
	PSNOffset *int `json:"psnOffset,omitempty" yaml:"psnOffset,omitempty"`
	// Transmission selects the n-th transmission (from 1) of a packet in this direction that the rule
	// sees. Transmissions before the rule was installed, and those that an earlier rule has dropped, do
	// not count. Packets with the same destination, QPN, PSN and opcode are transmissions of one
	// packet. 0 means any.
	Transmission int `json:"transmission,omitempty" yaml:"transmission,omitempty"`
	// SamePacket restricts the rule to the first packet that it hits and to retransmissions of it:
	// later hits must have the same destination, QPN, PSN and opcode. For example, a loss with Count n
	// loses the first n transmissions of one packet.
	SamePacket bool `json:"samePacket,omitempty" yaml:"samePacket,omitempty"`
}

// Verdict is what the fault rules do to one frame. The zero value forwards the frame unchanged.
type Verdict struct {
	Drop bool
	// Copies is the number of extra copies to send.
	Copies int
	// Delay is how long to hold the frame. A later frame with a shorter delay overtakes it.
	Delay time.Duration
	// Corrupt means that bit number Bit must be flipped (0 is the top bit of the first byte behind
	// the Ethernet header).
	Corrupt bool
	Bit     int
	// Mark means that CE must be set (wire.SetCE).
	Mark bool
	// Rules are the IDs of the rules that hit, for comments in captures; nil if none did.
	Rules []string
}

// Passes reports whether the frame is forwarded once, at once and unchanged.
func (v *Verdict) Passes() bool {
	return !v.Drop && v.Copies == 0 && v.Delay <= 0 && !v.Corrupt && !v.Mark
}
