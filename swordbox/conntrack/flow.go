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
	// Last is when a packet of this direction was last seen. Since is when the flow was created.
	Last, Since clock.Time

	// Pinned keeps the table from forgetting the flow because it is silent, and from correcting its
	// PSNs by its responses. A program sets it when the PSNs of client and server differ: the flow
	// must then exist for as long as its queue pair may. When the table is nearly full, it still
	// ends a pinned flow that has been silent for Config.Idle, and refuses the flow's packets from
	// then on.
	Pinned bool
	// Checked: the table checks the ICRC of every packet of the flow, and refuses packets with a
	// wrong one (Corrupt). Otherwise it checks only packets from which it learns something.
	Checked bool
	// Ext belongs to the program that handles the flow's requests. It is nil in a new flow.
	Ext any

	entry
	origin
}

// Ends names a connection as the end sees it that sends the requests: Requester sends them to queue
// pair RespQPN of Responder. Responses go to queue pair ReqQPN of Requester; ReqQPN 0 means that it
// is not known.
type Ends struct {
	Requester, Responder netip.Addr
	ReqQPN, RespQPN      wire.QPN
}

// Route says how the packets of a flow cross the switch.
type Route struct {
	// Path holds the headers of the requests below the BTH, as the switch saw them last; it is
	// valid if HasPath. Peer.Path holds those of the responses.
	Path    transform.Path
	HasPath bool
	// Port is the ingress port of the requester's packets; -1: none was seen.
	Port int
}

// follow takes the path of the flow from the headers of a packet.
func (r *Route) follow(f *wire.Frame) { r.Path, r.HasPath = transform.PathOf(f), true }

// entry holds what the table needs to manage a flow.
type entry struct {
	key  key
	host *host // of the requester
	// noted is when a packet of the flow last updated host.last.
	noted clock.Time
	// prev and next link the flow in the list of its host's learning flows, or in the list of
	// closed flows.
	prev, next *Flow
	// until, of a Closed flow, is when the table forgets it; of another flow, when it is settled.
	until clock.Time
}

// origin says how the table learnt a connection.
type origin struct {
	learn     *learning // the evidence from packets; nil: the peer is known
	setup     *setup    // the handshake of the connection managers; nil: the table did not see it
	announced bool      // learnt from the connection manager
}

// settled reports whether the table has seen every request of the flow. Then a PSN that it has not
// seen was not sent.
func (e *entry) settled(now clock.Time) bool { return now >= e.until }

// mistrusts reports whether the table checks the ICRC of each packet in this direction.
func (fl *Flow) mistrusts() bool { return fl.Checked || fl.Peer != nil && fl.Peer.Checked }

// pinned reports whether the flow or its peer is pinned.
func (fl *Flow) pinned() bool { return fl.Pinned || fl.Peer != nil && fl.Peer.Pinned }
