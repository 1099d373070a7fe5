package conntrack

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// State is how far a row is in its life.
type State uint8

// States of a row.
const (
	// Learning: packets were seen, the other half of the connection is not known for sure.
	Learning State = iota + 1
	// Connecting: the connection manager's REP named both queue pairs; neither RTU nor data were seen.
	Connecting
	// Open: both halves are known.
	Open
	// Closing: a DREQ, or a NAK that ends the connection, was seen. Packets may still come.
	Closing
	// Closed: the connection has ended. Its key is in quarantine: what still comes under it is of the past.
	Closed
)

var stateNames = [...]string{"", "learning", "connecting", "open", "closing", "closed"}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// MarshalText is String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String prints.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i <= 0 {
		return fmt.Errorf("%.20q is no state of a row", b)
	}
	*s = State(i)
	return nil
}

// Row is the requests of one end of a connection, and their responses. A program may read all of it; it changes Ext,
// Pinned and Checked, and Expected by Advance. A *Row means the same connection for as long as its Generation stays the
// same.
type Row struct {
	// ID is a small number that names the row in listings and captures; it is below Table.MaxRows.
	ID uint32
	// Generation is another one for each connection that the row is used for; never 0 for a row in use.
	Generation uint32
	State      State

	// Requester sends the requests, to queue pair RespQPN of Responder. Responses go to queue pair ReqQPN of Requester; 0: it
	// is not known.
	Requester, Responder netip.Addr
	ReqQPN, RespQPN      wire.QPN

	// Peer is the other half of the connection; nil if it is not known.
	Peer *Row

	// Expected is the PSN of the next new request, as the responder counts if nothing gets lost between it and the
	// switch. It means something if Synced.
	Expected wire.PSN
	// Synced says that Expected is known: by the connection manager, or because the responder answered. A READ of unknown
	// span unsyncs a row until its first response: who must know better (a pinned row) holds or drops what comes next.
	Synced bool
	// Acked is the highest PSN that responses cover; valid if HasAcked. Both are kept up for rows that are not pinned only:
	// the responder of a pinned one counts in other numbers.
	Acked    wire.PSN
	HasAcked bool

	// Middle says that requests may have been sent before the table looked: at its start, or while there was no room.
	Middle bool

	// MTU is the path MTU in bytes; 0: not known.
	MTU int

	// Path is the way of the requests, as last seen; valid if HasPath. That of the responses is Peer.Path.
	Path    rewrite.Path
	HasPath bool
	// Port is the ingress port of the requester's packets; -1: none was seen.
	Port int

	// Last is when a packet of this direction was last seen, Since when the row was made.
	Last, Since clock.Time

	// Pinned keeps the row from being forgotten by time and from being synced again by what its responder says: set it
	// when the PSNs of the two ends differ, for then the row must live as long as its queue pair may. It is ended all the
	// same if it has been silent for Config.Idle and the table is nearly full; then its packets are refused.
	Pinned bool
	// Checked asks that a packet whose ICRC is wrong is not used for anything (Corrupt). Without it the ICRC is looked at
	// only where something is learnt.
	Checked bool
	// Ext belongs to the machine that serialises the row's requests. It is nil in a new row and after a change of Generation.
	Ext any

	key   key
	host  *host      // of the requester
	noted clock.Time // when the host was last told that the row is alive
	// prev and next link the row in the list of its host's learning rows, or in that of closed ones.
	prev, next *Row
	learn      *learning // nil: the peer is known
	setup      *setup    // nil: the connection manager has no name for the connection
	announced  bool      // by the connection manager
	// from is the first request seen, high the PSN after the highest; valid if asked. more says that others were seen.
	from, high  wire.PSN
	asked, more bool
	// loose is the length of a READ of unknown span at loosePSN behind which high is; 0: high is exact.
	loose    uint32
	loosePSN wire.PSN
	// atLeast is a bound of the MTU from below, by a message of one packet.
	atLeast int
	// readPSN and readLen are the last new READ of unknown span; openRead: it was sent on, and Expected is still its PSN.
	readPSN  wire.PSN
	readLen  uint32
	openRead bool
	// until is when a closed row is forgotten, or an open one is settled.
	until clock.Time
}

// quiet reports that every request seen has been answered.
func (r *Row) quiet() bool {
	switch {
	case !r.Synced:
		return false
	case !r.asked:
		return true // the connection manager said where it starts
	}
	return r.HasAcked && r.Acked.Next() == r.Expected && r.high == r.Expected
}

// First reports that nothing but the request at hand was ever seen on the row, nor sent before the table looked.
func (r *Row) First() bool { return !r.HasAcked && !r.Middle && !r.more }

// Advance moves Expected over a New request that was sent on or taken, by the Span of what Packet said about it. A span
// of 0, a READ whose responses cannot be counted, leaves Expected where it is until they have come.
func (r *Row) Advance(span int) {
	if span == 0 {
		r.openRead, r.Synced = true, false
		return
	}
	r.Expected = r.Expected.Add(span)
}

// SpanOf is how many PSNs a READ of n bytes takes; 0: the MTU is not known well enough.
func (r *Row) SpanOf(n uint32) int {
	switch {
	case n <= uint32(max(r.atLeast, minMTU, r.MTU)):
		return 1
	case r.MTU != 0:
		return int((uint64(n) + uint64(r.MTU) - 1) / uint64(r.MTU))
	}
	return 0
}

// The path MTUs that there are (IBTA 9.3.1) are the powers of two from minMTU to maxMTU.
const (
	minMTU = 256
	maxMTU = 4096
)

// isMTU reports whether n bytes can be a path MTU.
func isMTU(n int) bool { return n >= minMTU && n <= maxMTU && n&(n-1) == 0 }
