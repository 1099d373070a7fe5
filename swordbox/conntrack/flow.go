package conntrack

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Flow is one direction of a reliable connection: the requests of one end, and the responses to
// them. A program may read all exported fields; it changes Ext, Pinned and Checked only, and
// Expected by Advance. A *Flow means the same connection for as long as its Generation stays the
// same.
type Flow struct {
	// ID is a small number that names the flow in listings and captures; it is below
	// Table.MaxFlows.
	ID uint32
	// Generation differs for each connection that the Flow is used for; it is 0 while the Flow is
	// not in use.
	Generation uint32
	State      State
	Ends
	// Peer is the other direction of the connection; nil if it is not known.
	Peer *Flow
	Sequence
	Route
	// Last is when a packet of this direction was last seen, Since when the flow was created.
	Last, Since clock.Time

	// Pinned keeps the flow from being forgotten for silence, and from being synchronised by its
	// responses. A program sets it when the PSNs of client and server differ: the flow must then
	// exist as long as its queue pair may. The table still ends a pinned flow that has been silent
	// for Config.Idle when it is nearly full, and then refuses the flow's packets.
	Pinned bool
	// Checked requests that packets with a wrong ICRC are not used at all (Corrupt). Without it the
	// table checks the ICRC only of packets that it learns something from.
	Checked bool
	// Ext belongs to the program that handles the flow's requests. It is nil in a new flow.
	Ext any

	entry
	origin
}

// Ends is what names a connection, seen from the end that sends the requests: Requester sends them
// to queue pair RespQPN of Responder. Responses go to queue pair ReqQPN of Requester; 0: it is not
// known.
type Ends struct {
	Requester, Responder netip.Addr
	ReqQPN, RespQPN      wire.QPN
}

// Route is how the packets of a flow cross the switch.
type Route struct {
	// Path is the headers of the requests below the BTH, as last seen; valid if HasPath. Peer.Path
	// is that of the responses.
	Path    transform.Path
	HasPath bool
	// Port is the ingress port of the requester's packets; -1: none was seen.
	Port int
}

// follow takes the headers of a packet as the flow's path.
func (r *Route) follow(f *wire.Frame) { r.Path, r.HasPath = transform.PathOf(f), true }

// entry is how the table keeps a flow.
type entry struct {
	key  key
	host *host // of the requester
	// noted is when host.last was last updated by a packet of the flow.
	noted clock.Time
	// prev and next link the flow in the list of its host's learning flows, or in that of the
	// closed ones.
	prev, next *Flow
	// until is when a Closed flow is forgotten, and when a flow in another state is settled.
	until clock.Time
}

// origin is how a connection became known.
type origin struct {
	learn     *learning // the evidence from packets; nil: the peer is known
	setup     *setup    // the connection managers' handshake; nil: none was seen
	announced bool      // by the connection manager
}

// settled reports whether the table has seen every request of the flow: a PSN that it did not see
// was not sent.
func (e *entry) settled(now clock.Time) bool { return now >= e.until }

// mistrusts reports whether the ICRC of each packet in this direction is checked.
func (fl *Flow) mistrusts() bool { return fl.Checked || fl.Peer != nil && fl.Peer.Checked }

// pinned reports whether the flow or its peer is pinned.
func (fl *Flow) pinned() bool { return fl.Pinned || fl.Peer != nil && fl.Peer.Pinned }
