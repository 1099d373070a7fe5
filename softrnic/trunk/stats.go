package trunk

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

// Refused counts datagrams that were refused, by reason. They change nothing.
type Refused struct {
	Old          uint64 `json:"old" name:"refused_old" help:"too far behind the newest datagram to know whether it is a repetition"`
	Replayed     uint64 `json:"replayed" name:"refused_replayed" help:"a repetition, or a hello in clear text while the trunk works"`
	BadTag       uint64 `json:"badTag" name:"refused_bad_tag" help:"changed, forged, or made with another secret"`
	UnknownEpoch uint64 `json:"unknownEpoch" name:"refused_unknown_epoch" help:"sealed with a key that this end does not have, or no longer has"`
	Version      uint64 `json:"version" name:"refused_version" help:"of another version of the protocol"`
	Oversized    uint64 `json:"oversized" name:"refused_oversized" help:"longer than any datagram or train of this protocol"`
	OtherRack    uint64 `json:"otherRack" name:"refused_other_rack" help:"of another rack, or of one with another secret"`
	Malformed    uint64 `json:"malformed" name:"refused_malformed" help:"too short, or with a header or a content that no end makes"`
}

// Sum returns how many datagrams were refused.
func (r *Refused) Sum() uint64 {
	return r.Old + r.Replayed + r.BadTag + r.UnknownEpoch + r.Version + r.Oversized + r.OtherRack + r.Malformed
}

// Stats is what an end counts and measures.
type Stats struct {
	State State `json:"state"`
	// Started is the Unix time in nanoseconds when the end was made, from which it counts.
	Started int64 `json:"started"`
	// Trouble says why the trunk does not work, and what to do; "" if it works.
	Trouble  string `json:"trouble,omitempty"`
	Sent     uint64 `json:"sent" name:"sent" help:"datagrams sent"`
	Received uint64 `json:"received" name:"received" help:"datagrams received, without those refused"`
	// Faults that are injected into a link lose frames before they become datagrams, so they are not among
	// those lost.
	Lost       uint64  `json:"lost" name:"lost" help:"datagrams lost in the network, as the gaps of the peer's counter show, without padded probes and what the peer's own kernel has refused"`
	Reordered  uint64  `json:"reordered" name:"reordered" help:"datagrams that came behind a later one"`
	Late       uint64  `json:"late" name:"late" help:"of these, datagrams whose train had been given out, so that their frames are lost"`
	Incomplete uint64  `json:"incompleteTrains" name:"incomplete_trains" help:"trains of which pieces were missing"`
	Silences   uint64  `json:"silences" name:"silences" help:"times that nothing was heard for 500 ms from a peer which had not cut the trunk: its switch has ended, or the network is cut"`
	Refused    Refused `json:"refused"`
	QueueDrops uint64  `json:"queueDrops" name:"queue_drops" help:"frames for which the kernel had no room, or that came while the trunk was down"`
	Keys       uint64  `json:"keys" name:"keys" help:"keys on which the ends have agreed"`
	Fallbacks  uint64  `json:"fallbacks" name:"fallbacks" help:"features of the kernel or the device that were refused, each once, so that datagrams take more system calls"`
	// Slow names these features; "" if there are none.
	Slow string `json:"slow,omitempty"`
	// MTU is the path MTU that is used.
	MTU int `json:"mtu"`
	// RoundTrip is that of the last probe, without the time in which the peer held it, and Shortest the
	// shortest of the last ones. Ahead is how far the peer's clock is ahead of this machine's, as the
	// shortest one shows; its error is at most half of Shortest.
	RoundTrip time.Duration `json:"roundTrip"`
	Shortest  time.Duration `json:"shortestRoundTrip"`
	Ahead     time.Duration `json:"peerClockAhead"`
}

// Missed returns how many datagrams were lost in the network, or came so late that their frames were.
func (s *Stats) Missed() uint64 { return s.Lost + s.Late }

// Samples returns the counters with their names and help texts.
func (s *Stats) Samples() []metrics.Sample {
	return slices.Concat(metrics.Samples(s), metrics.Samples(&s.Refused))
}
