package serialize

import (
	"math/bits"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

const (
	// ringSize is the number of map entries of a connection, which all clients that use the
	// connection share: it must be at least as many as the requests that they have in flight. It is
	// that of the authors' public code.
	ringSize = 1024
	// sentSize is how many requests of a client the switch finds when they come again. In the
	// paper's draft, a queue pair has 128 requests in flight.
	sentSize = 128
)

// client is a flow in two roles. As a source of requests it has the highest PSN that the switch has
// seen from the client. As a connection to the server it has the last PSN that the switch has sent
// there, and the ring of map entries. The entries are for its own requests, and for those of other
// clients that borrow the connection.
type client struct {
	flow   *conntrack.Flow
	port   uint16 // UDP source port of the client's packets: a part of the connection's name (hole 23)
	server *server
	// The ends of the connection. They stay valid when the flow's place in the table of flows is
	// reused.
	owner          netip.Addr
	qpn, serverQPN wire.QPN
	// closed is true if the flow has ended. The ring is kept, because clients that borrowed the
	// connection still wait for answers (hole 4).
	closed bool

	// in is the highest PSN that was seen from the client. first is the PSN of the first request
	// that was seen (hole 8).
	in, first wire.PSN
	// sent records where requests were sent. The index is the client's PSN modulo sentSize (hole
	// 14).
	sent [sentSize]sent

	// out is the last PSN sent to the server on this connection.
	out     wire.PSN
	ring    [ringSize]entry // the index is the PSN on this connection modulo ringSize
	opened  slots           // the places in ring whose requests have no answer
	lent    bool            // the switch has sent requests of other clients on this connection
	path    transform.Path  // path of requests to the server, kept when the flow ends
	back    transform.Path  // path of responses to the client, kept when the flow ends
	entries int             // number of open entries for requests of this client, on any connection
	moved   uint64
}

// sent says where a request was sent. psn is the PSN that the client gave the request. via is the
// client on whose connection the switch has sent it, and `at` is its PSN on that connection.
type sent struct {
	psn wire.PSN
	via *client // nil means that the slot is unused
	at  wire.PSN
}

// entry is the map entry of a request that was sent to the server.
type entry struct {
	from *client
	// psn is the PSN that the client gave the request. at is its PSN on the connection to the
	// server. span is the number of PSNs that it takes.
	psn, at wire.PSN
	span    int
	op      wire.Opcode // opcode of the request as the client sent it
	sentAs  sentAs
	// value is the value that the WRITE of a replaced atomic writes. prior is the original value
	// that the client gets as the answer.
	value, prior uint64
	// word is set for a pass-through atomic: one that the switch sends to the server as it is
	// (asIs), because it does not know the value of the word. The answer will show this value.
	word *word
	next uint64
	// For a pass-through atomic (sent as it is, with word set): compare is the compare value of a
	// CMP_SWAP; next is the swap value, or the addend of a FETCH_ADD.
	compare uint64
	since   clock.Time
}

// sentAs says how the switch sent a request.
type sentAs uint8

const (
	asIs     sentAs = iota
	replaced        // the switch sent an atomic as a WRITE
)

// slot returns the place of a PSN in the ring. That place may hold the entry of another PSN (hole
// 12).
func (c *client) slot(at wire.PSN) *entry { return &c.ring[at%ringSize] }

// find returns the entry of a PSN on this connection, open or answered; nil if another request has
// taken its place.
func (c *client) find(at wire.PSN) *entry {
	if e := c.slot(at); e.from != nil && e.at == at {
		return e
	}
	return nil
}

// covering returns the entry of the request with a PSN on this connection, or of the READ whose
// responses include the PSN; nil if there is none.
func (c *client) covering(at wire.PSN) *entry {
	for back := range wire.PSN(ringSize) {
		if e := c.find(at.Add(-int(back))); e != nil && int(back) < e.span {
			return e
		}
	}
	return nil
}

// open stores the entry of a request. lost is true if an open entry had the same place and is
// overwritten (hole 12).
func (c *client) open(e entry) (lost bool) {
	s := c.slot(e.at)
	if lost = c.opened.has(e.at); lost {
		c.done(s)
	}
	*s = e
	c.again(s)
	e.from.sent[e.psn%sentSize] = sent{e.psn, c, e.at}
	return lost
}

// isOpen reports whether the request of an entry of this connection has no answer yet.
func (c *client) isOpen(e *entry) bool { return c.opened.has(e.at) }

// again notes that the request of an entry of this connection has no answer yet, or none to its
// retransmission. The entry must not be open.
func (c *client) again(e *entry) {
	c.opened.add(e.at)
	e.from.entries++
}

// done closes an entry of this connection.
func (c *client) done(e *entry) {
	if c.isOpen(e) {
		c.opened.remove(e.at)
		e.from.entries--
	}
}

// msn returns the message sequence number of the answer with a PSN. It is computed from the PSN,
// which is correct only if every message was one packet (hole 8).
func (c *client) msn(psn wire.PSN) uint32 { return uint32(wire.Diff(psn, c.first) + 1) }

// toClient returns the path of answers to the client.
func (c *client) toClient() *transform.Path {
	if c.back.DestQP == 0 {
		c.back = c.flow.Path.Back(c.flow.ReqQPN)
		if p := c.flow.Peer; p != nil && p.HasPath {
			c.back = p.Path
		}
	}
	return &c.back
}

// toServer returns the path of requests to the server on this connection.
func (c *client) toServer() *transform.Path {
	if c.closed {
		return &c.path
	}
	return &c.flow.Path
}

// oldest returns the lowest PSN of client c that has an open entry on the connection via; found is
// false if c has none there.
func (c *client) oldest(via *client) (psn wire.PSN, found bool) {
	for i := via.opened.next(0); i < ringSize; i = via.opened.next(i + 1) {
		if e := &via.ring[i]; e.from == c && (!found || wire.Diff(e.psn, psn) < 0) {
			psn, found = e.psn, true
		}
	}
	return psn, found
}

const wordBits = 64

// slots is the set of the places in a ring whose requests have no answer. With it, an
// acknowledgement need not look at all entries of the ring.
type slots [ringSize / wordBits]uint64

func (s *slots) add(at wire.PSN) { s[at%ringSize/wordBits] |= 1 << (at % wordBits) }

func (s *slots) remove(at wire.PSN) { s[at%ringSize/wordBits] &^= 1 << (at % wordBits) }

func (s *slots) has(at wire.PSN) bool { return s[at%ringSize/wordBits]>>(at%wordBits)&1 != 0 }

// next returns the first place of the set that is not before i; ringSize if there is none.
func (s *slots) next(i int) int {
	for ; i < ringSize; i = i/wordBits*wordBits + wordBits {
		if w := s[i/wordBits] >> (i % wordBits); w != 0 {
			return i + bits.TrailingZeros64(w)
		}
	}
	return ringSize
}
