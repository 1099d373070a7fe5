package trunk

import "time"

// Refused counts datagrams that were refused, by reason. They change nothing.
type Refused struct {
	Old          uint64 `json:"old" help:"too far behind the newest datagram to know whether it is a repetition"`
	Replayed     uint64 `json:"replayed" help:"a repetition, or a hello in clear text while the trunk works"`
	BadTag       uint64 `json:"badTag" help:"changed, forged, or made with another secret"`
	UnknownEpoch uint64 `json:"unknownEpoch" help:"sealed with a key that this end does not have, or no longer has"`
	Version      uint64 `json:"version" help:"of another version of the protocol"`
	Oversized    uint64 `json:"oversized" help:"longer than any datagram or train of this protocol"`
	OtherRack    uint64 `json:"otherRack" help:"of another rack, or of one with another secret"`
	Malformed    uint64 `json:"malformed" help:"too short, or with a header or a content that no end makes"`
}

// Sum returns how many datagrams were refused.
func (r *Refused) Sum() uint64 {
	return r.Old + r.Replayed + r.BadTag + r.UnknownEpoch + r.Version + r.Oversized + r.OtherRack + r.Malformed
}

// Stats is what an end counts and measures.
type Stats struct {
	State State `json:"state"`
	// Trouble says why the trunk does not work, and what to do; "" if it works.
	Trouble string `json:"trouble,omitempty"`
	// Sent and Received count datagrams; those that were refused are not among the latter.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	// Lost counts datagrams of the peer that have not come, as the gaps of their counters show. Faults that
	// are injected into a link lose frames before they become datagrams, so they are not among these.
	Lost uint64 `json:"lost"`
	// Reordered counts datagrams that came behind a later one, Late those among them whose train had been
	// given out, so that their frames are lost.
	Reordered uint64 `json:"reordered"`
	Late      uint64 `json:"late"`
	// Incomplete counts trains of which pieces were missing.
	Incomplete uint64  `json:"incompleteTrains"`
	Refused    Refused `json:"refused"`
	// QueueDrops counts frames for which the kernel had no room, or no way.
	QueueDrops uint64 `json:"queueDrops"`
	// Keys counts the keys on which the ends have agreed.
	Keys uint64 `json:"keys"`
	// MTU is the path MTU that is used.
	MTU int `json:"mtu"`
	// RoundTrip is that of the last probe, without the time in which the peer held it, and Shortest the
	// shortest of the last ones. Ahead is how far the peer's clock is ahead of this machine's, as the
	// shortest one shows; its error is at most half of Shortest.
	RoundTrip time.Duration `json:"roundTrip"`
	Shortest  time.Duration `json:"shortestRoundTrip"`
	Ahead     time.Duration `json:"peerClockAhead"`
}
