package conntrack

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Flow is one direction of a reliable connection: the requests of one end, and the responses to
// them. A program may read all exported fields. It may change Ext, Pinned, Checked and Expected
// (see Advance). A *Flow stands for the same connection as long as its Generation stays the same.
type Flow struct {
	// ID is a small number that names the flow in listings and captures. It is below
	// Table.MaxFlows.
	ID uint32
	// Generation is different for each connection for which the table uses this Flow; 0 means that
	// the Flow is not in use.
	Generation uint32
	State      State
	Ends
	// Peer is the other direction of the connection; nil if it is not known.
	Peer *Flow
	Sequence
	Route
	// Last is when a packet of this direction was last seen. Since is when the flow was created.
	Last, Since clock.Time

	// Pinned keeps the table from forgetting the flow when it is silent, and from correcting its
	// PSNs by the responses. A program sets it when the PSNs of client and server differ: the flow
	// must then exist for as long as its queue pair may. When the table is nearly full, it still
	// ends a pinned flow that has been silent for Config.Idle, and refuses the flow's packets for
	// Config.Quarantine.
	Pinned bool
	// Checked is true if the table checks the ICRC of every packet of the flow, and refuses packets
	// with a wrong ICRC (Corrupt). If Checked is false, the table checks only packets from which it
	// learns something.
	Checked bool
	// Ext belongs to the program that handles the flow's requests. It is nil in a new flow.
	Ext any

	entry
	origin
}

// Ends names the two ends of a flow. Requester sends the requests to queue pair RespQPN of
// Responder. Responses go to queue pair ReqQPN of Requester; ReqQPN is 0 if it is not known.
type Ends struct {
	Requester, Responder netip.Addr
	ReqQPN, RespQPN      wire.QPN
}

// Route says how the packets of a flow cross the switch.
type Route struct {
	// Path holds the headers below the BTH of the requester's packets; it is valid if HasPath is
	// true. Peer.Path holds the headers of the responder's packets.
	Path    transform.Path
	HasPath bool
	// Port is the ingress port of the requester's packets; -1 means that none was seen.
	Port int
}

// follow takes the path of the flow from the headers of packet f.
func (r *Route) follow(f *wire.Frame) { r.Path, r.HasPath = transform.PathOf(f), true }

// entry holds what the table needs to manage a flow.
type entry struct {
	key  key
	host *host // host of the requester
	// noted is when a packet of the flow last updated host.last.
	noted clock.Time
	// prev and next link the flow in a list: the learning flows of its host, or the closed flows.
	prev, next *Flow
	// until is, for a Closed flow, when the table forgets it; for another flow, when it is settled
	// (see settled).
	until clock.Time
}

// origin says how the table learnt a connection.
type origin struct {
	learn     *learning // the evidence from packets; nil means that the peer is known
	setup     *setup    // the handshake of the connection managers; nil means that the table did not see it
	announced bool      // true if the connection was learnt from the connection manager
}

// settled reports whether the table has seen every request of the flow that may still be answered.
// Then a PSN that the table has not seen was not sent.
func (e *entry) settled(now clock.Time) bool { return now >= e.until }

// mistrusts reports whether the table checks the ICRC of each packet of the flow: the flow or its
// peer is Checked.
func (fl *Flow) mistrusts() bool { return fl.Checked || fl.Peer != nil && fl.Peer.Checked }

// pinned reports whether the table must not forget the flow, because the flow or its peer is
// Pinned.
func (fl *Flow) pinned() bool { return fl.Pinned || fl.Peer != nil && fl.Peer.Pinned }
