package paper

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// ringSize is the number of map entries of a connection (the paper's draft: 128 in flight per queue pair).
const ringSize = 128

// client is a row. As a source of requests it has the highest PSN seen; as a connection to the server it has the last PSN
// sent there and the ring of map entries, its own and those of clients that borrow it.
type client struct {
	row    *conntrack.Row
	server *server
	// The ends of the connection, also after the row is another one's.
	owner          netip.Addr
	qpn, serverQPN wire.QPN
	// closed: the row has ended. Its ring is kept: who borrowed the connection still waits (hole 4).
	closed bool

	// in is the highest PSN seen from the client, first the first one (hole 8).
	in, first wire.PSN
	// sent remembers where requests went, by the client's PSN modulo its size (hole 14).
	sent [ringSize]sent

	// out is the last PSN sent to the server on this connection.
	out     wire.PSN
	ring    [ringSize]entry // by PSN on this connection, modulo its size
	lent    bool            // another client's requests are or were on it
	path    rewrite.Path    // of requests to the server, when the row has ended
	back    rewrite.Path    // of responses to the client
	entries int             // open entries of this client, on any connection
	moved   uint64
}

// sent is where a request went.
type sent struct {
	psn wire.PSN
	via *client // nil: nothing was sent from this slot
	at  wire.PSN
}

// entry is the map entry of a request that was sent to the server.
type entry struct {
	open bool
	from *client
	// psn is the client's PSN, at the one on the connection, span how many a READ takes.
	psn, at wire.PSN
	span    int
	op      wire.Opcode // as it came
	what    what
	// value is what was written in place of an atomic, prior what it answers.
	value, prior uint64
	word         *word // that the answer of a pass-through atomic makes known
	next         uint64
	compare      uint64 // of a pass-through CMP_SWAP; next is its swap, or what a FETCH_ADD adds
	since        clock.Time
}

// what was made of a request.
type what uint8

const (
	asIs     what = iota
	replaced      // an atomic became a WRITE
)

// slot is the place of a PSN in a ring. The entry in it may be another one's (hole 12).
func (c *client) slot(at wire.PSN) *entry { return &c.ring[at%ringSize] }

// find returns the open or answered entry of a PSN on this connection; nil if its place was used again.
func (c *client) find(at wire.PSN) *entry {
	if e := c.slot(at); e.from != nil && e.at == at {
		return e
	}
	return nil
}

// covering returns the entry of a READ whose responses include a PSN, or that of the PSN itself.
func (c *client) covering(at wire.PSN) *entry {
	for back := range wire.PSN(ringSize) {
		if e := c.find(at.Add(-int(back))); e != nil && int(back) < e.span {
			return e
		}
	}
	return nil
}

// open enters a request. An entry in its place that is still open is lost (hole 12).
func (c *client) open(e entry) (lost bool) {
	s := c.slot(e.at)
	if lost = s.open; lost {
		s.from.entries--
	}
	*s = e
	s.open = true
	e.from.entries++
	e.from.sent[e.psn%ringSize] = sent{e.psn, c, e.at}
	return lost
}

// done closes an entry.
func (e *entry) done() {
	if e.open {
		e.open = false
		e.from.entries--
	}
}

// msn is the message sequence number of an answer. It is that of the PSN, which is right if every message was one packet
// (hole 8).
func (c *client) msn(psn wire.PSN) uint32 { return uint32(wire.Diff(psn, c.first) + 1) }

// toClient is the way of answers to the client.
func (c *client) toClient() *rewrite.Path {
	if c.back.DestQP == 0 {
		c.back = c.row.Path.Back(c.row.ReqQPN)
		if p := c.row.Peer; p != nil && p.HasPath {
			c.back = p.Path
		}
	}
	return &c.back
}

// toServer is the way of requests to the server on this connection.
func (c *client) toServer() *rewrite.Path {
	if c.closed {
		return &c.path
	}
	return &c.row.Path
}

// oldest is the client's PSN that it waits for longest: the smallest with an open entry on a connection.
func (c *client) oldest(via *client) (psn wire.PSN) {
	found := false
	for i := range via.ring {
		if e := &via.ring[i]; e.open && e.from == c && (!found || wire.Diff(e.psn, psn) < 0) {
			psn, found = e.psn, true
		}
	}
	return psn
}
