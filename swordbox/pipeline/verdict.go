package pipeline

// Action is what happens to a packet.
type Action uint8

// Actions. The zero value forwards.
const (
	// ActForward sends the packet on unchanged.
	ActForward Action = iota
	// ActDrop ends it.
	ActDrop
	// ActRewrite encodes Parsed.Frame anew, with lengths and ICRC, and sends that.
	ActRewrite
	// ActHold means that the switch keeps a copy; see Ctx.Hold.
	ActHold
	// ActConsume ends a packet that has reached its goal: the program took it. It is no drop.
	ActConsume
	// ActApart takes a super-frame apart and asks the program about each packet.
	ActApart
)

// Reason says why a frame was dropped, for counters and captures. Programs may use their own.
type Reason string

// Reasons of the switch itself.
const (
	ReasonRunt      Reason = "runt"          // shorter than an Ethernet header
	ReasonBadSource Reason = "bad source"    // group address as source, or the address of the switch
	ReasonReserved  Reason = "link local"    // 01:80:c2:00:00:0x never crosses a bridge
	ReasonSamePort  Reason = "same port"     // its destination is where it came from
	ReasonPartition Reason = "partition"     // the two ports are kept apart
	ReasonPortDown  Reason = "port down"     // the egress port is not there
	ReasonQueueFull Reason = "queue full"    // the egress queue has no room
	ReasonNoTx      Reason = "not sent"      // the link refused it
	ReasonHoldFull  Reason = "hold full"     // no room to hold it
	ReasonBadICRC   Reason = "bad icrc"      // a damaged packet must not be rewritten
	ReasonEmitLimit Reason = "emit limit"    // a program made too many packets in one step
	ReasonTooLong   Reason = "too long"      // a packet to be held or made is longer than any link takes
	ReasonFault     Reason = "fault"         // an injected fault
	ReasonSelf      Reason = "to the switch" // addressed to the switch itself, which had no use for it
	ReasonOther     Reason = "other reasons" // beyond maxReasons
)

// Verdict is a program's decision about one packet. Make one with the functions below.
type Verdict struct {
	Action Action
	// Reason of a drop.
	Reason Reason
	// Note explains what was done in captures; empty: nothing to say. Format one only if Ctx.Observed.
	Note string
	// ID of a hold.
	ID HoldID
	// to is the egress port plus one; 0: by destination address.
	to int
}

// Forward sends the packet on unchanged, by its destination address.
func Forward() Verdict { return Verdict{} }

// ForwardTo sends the packet on unchanged, out of a port.
func ForwardTo(port int) Verdict { return Verdict{to: port + 1} }

// Drop ends the packet.
func Drop(r Reason) Verdict { return Verdict{Action: ActDrop, Reason: r} }

// Rewrite sends Parsed.Frame, as the program changed it, by its (new) destination address.
func Rewrite() Verdict { return Verdict{Action: ActRewrite} }

// RewriteTo is Rewrite out of a port.
func RewriteTo(port int) Verdict { return Verdict{Action: ActRewrite, to: port + 1} }

// Consume ends the packet without a drop: the program took it, because it was addressed to the switch, or because
// what it stands for has been sent by other means.
func Consume() Verdict { return Verdict{Action: ActConsume} }

// Apart takes a super-frame apart: Packet is called for each of its packets, with Packets 1. A packet that is no
// super-frame is sent on.
func Apart() Verdict { return Verdict{Action: ActApart} }

// With adds a note for captures.
func (v Verdict) With(note string) Verdict {
	v.Note = note
	return v
}
