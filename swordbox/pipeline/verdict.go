package pipeline

// Action says what happens to a packet.
type Action uint8

// Actions. The zero value forwards.
const (
	// ActForward forwards the packet unchanged.
	ActForward Action = iota
	ActDrop
	// ActRewrite encodes Parsed.Frame with new lengths and ICRC, and sends the result in place of
	// the packet.
	ActRewrite
	// ActHold keeps a copy of the packet in the switch; see Ctx.Hold.
	ActHold
	// ActConsume sends nothing and counts no drop: the program has already handled the packet.
	ActConsume
	// ActApart splits a super-frame and calls the program for each packet.
	ActApart
)

// Reason says why a packet was dropped, for counters and captures. Programs may add reasons of
// their own.
type Reason string

// Reasons of the switch itself.
const (
	ReasonRunt      Reason = "runt"          // shorter than an Ethernet header
	ReasonBadSource Reason = "bad source"    // group address as source, or the address of the switch
	ReasonReserved  Reason = "link local"    // 01:80:c2:00:00:0x never crosses a bridge
	ReasonSamePort  Reason = "same port"     // the destination is behind the ingress port
	ReasonPartition Reason = "partition"     // a partition separates the two ports
	ReasonPortDown  Reason = "port down"     // the egress port is down
	ReasonQueueFull Reason = "queue full"    // the egress queue has no room
	ReasonNoTx      Reason = "not sent"      // the link refused the frame
	ReasonHoldFull  Reason = "hold full"     // the switch has no room to hold the packet
	ReasonMalformed Reason = "malformed"     // damaged headers, and the program refuses the frame (Guard)
	ReasonEmitLimit Reason = "emit limit"    // a program made too many packets in one step
	ReasonFault     Reason = "fault"         // an injected fault
	ReasonSelf      Reason = "to the switch" // addressed to the switch itself; its program did not handle it
	ReasonNoMember  Reason = "no member"     // no other port has joined the multicast group
	ReasonNoRoute   Reason = "no route"      // no trunk leads to the switch of the destination now
	ReasonOther     Reason = "other reasons" // all further reasons once there are maxReasons
	// ReasonBadICRC: the ICRC is wrong, in a packet that the program changes or does not let pass.
	ReasonBadICRC Reason = "bad icrc"
	// ReasonTooLong: a packet that the program holds or makes is longer than the MTU of any link.
	ReasonTooLong Reason = "too long"
)

// Verdict is a program's decision about one packet. Make one with the functions below.
type Verdict struct {
	Action Action
	// Reason is why the packet is dropped.
	Reason Reason
	// Note explains the verdict in captures; it may be empty. A program formats one only if
	// Ctx.Observed returns true.
	Note string
	// ID names the held packet.
	ID HoldID
}

// Forward forwards the packet unchanged, by its destination address.
func Forward() Verdict { return Verdict{} }

func Drop(r Reason) Verdict { return Verdict{Action: ActDrop, Reason: r} }

// Rewrite sends Parsed.Frame as the program has changed it. Its (new) destination address decides
// the port.
func Rewrite() Verdict { return Verdict{Action: ActRewrite} }

// Consume ends the packet without counting a drop. A program returns it for a packet that was
// addressed to the switch, and for a packet that it keeps or has replaced by another one.
func Consume() Verdict { return Verdict{Action: ActConsume} }

// Apart splits a super-frame: the program's method Packet is called for each of its packets, with
// Parsed.Packets 1. A packet that is not a super-frame is forwarded.
func Apart() Verdict { return Verdict{Action: ActApart} }

// With adds a note for captures.
func (v Verdict) With(note string) Verdict {
	v.Note = note
	return v
}
