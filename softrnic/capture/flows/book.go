package flows

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// MaxPackets is how many packets a Book keeps.
const MaxPackets = 1 << 17

// Far is the distance of two PSNs, in packets, from which on they are taken for those of two connections.
const Far = 1 << 16

// Flow is the requests of one end of a connection, and the answers to them.
type Flow struct {
	Requester, Responder netip.Addr
	// QPN is the responder's queue pair, to which the requests go. Back is that of the requester; 0 means
	// that the capture does not show it.
	QPN, Back wire.QPN
	First     wire.PSN // of the first request in the capture
	// Packets are the places of the flow's packets in Book.Packets, in the order of the capture.
	Packets []int
	// MTU is the path MTU in bytes; 0 means that the capture does not show it.
	MTU int
	// Agreed is what the connection manager has agreed on; nil if the capture does not show it.
	Agreed *Agreement
	// Reused is true if the queue pair number had another flow before.
	Reused bool

	last   wire.PSN // newest request
	before *Flow    // of the same queue pair
	origin *Packet  // the first request
	number int      // place in Book.Flows while Sort pairs queue pairs
}

// Agreement is what the connection manager has agreed on for a flow.
type Agreement struct {
	PSN   wire.PSN // of the first request
	Depth int      // READs and atomics that may be unanswered
}

// Book has the packets of a capture and their flows. The zero value is empty.
type Book struct {
	Packets []Packet
	Flows   []*Flow // in the order of their first request
	// Left is the number of packets that were not kept, because there are more than MaxPackets.
	Left int

	records int // of packets, those that are the second of their packet counted
}

// Add adds a packet; it ignores frames that are not RoCEv2. The Book keeps a copy of what it needs of r.
func (b *Book) Add(r *dump.Record) error {
	switch {
	case r.Verdict == dump.Other:
	case len(b.Packets) == MaxPackets:
		b.Left++
	default:
		b.records++
		p := newPacket(b.records, r)
		if was := b.sent(&p); was != nil {
			was.Comments = append(was.Comments, p.Comments...)
			return nil
		}
		b.Packets = append(b.Packets, p)
	}
	return nil
}

// OnTheWay ends the comment of a frame that is in the capture twice: when it entered the link, and, with
// this comment, when it was lost on it.
const OnTheWay = "on the way"

// sent returns the packet that p is once more, if the comment of p says that it was lost on the way, and
// nil if p is another packet.
func (b *Book) sent(p *Packet) *Packet {
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.HasSuffix(c, OnTheWay) }) {
		return nil
	}
	for i := len(b.Packets) - 1; i >= max(0, len(b.Packets)-mostOnTheWay) && p.Time-b.Packets[i].Time <= longestWay; i-- {
		if q := &b.Packets[i]; q.PSN() == p.PSN() && q.Link == p.Link && q.samePacket(p) && !q.Lost() {
			return q
		}
	}
	return nil
}

// samePacket reports whether p and q can be of one packet.
func (p *Packet) samePacket(q *Packet) bool {
	x, y := &p.Header, &q.Header
	return p.Src == q.Src && p.Dst == q.Dst && p.Sum == q.Sum && x.BTH == y.BTH && x.AETH == y.AETH && x.DETH == y.DETH &&
		x.AtomicAck == y.AtomicAck && p.SameRequest(q)
}

// longestWay is how many nanoseconds a packet is on a link at most for Book.sent to find it.
const longestWay = int64(time.Second)

// mostOnTheWay is how many packets back Book.sent looks for it at most.
const mostOnTheWay = 1 << 11

// Sort finds the flows. It is called once, behind the last Add.
func (b *Book) Sort() {
	s := sorter{
		book: b, heads: map[head]*Flow{}, waiting: map[place][]int{}, votes: map[vote]int{}, reqs: map[asked]*mad.REQ{},
		reps: map[asked]bool{}, made: map[head]connection{},
	}
	for i := range b.Packets {
		p := &b.Packets[i]
		switch {
		case p.Message != nil:
			s.manager(p)
		case !p.Ordered():
		case p.IsAnswer():
			s.answer(p)
		default:
			s.request(i, p)
		}
	}
	s.pair()
	s.answers()
	b.restarts()
	for _, f := range b.Flows {
		f.mtu(b)
	}
}
