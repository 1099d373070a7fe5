package flows

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// head names packets of one direction: they go from src to the queue pair qpn of dst.
type head struct {
	src, dst netip.Addr
	qpn      wire.QPN
}

// place is where an answer with a PSN can belong: requests of src to dst, seen at one tap.
type place struct {
	tap      string
	src, dst netip.Addr
	psn      wire.PSN
}

// vote counts the answers to the queue pair back that may be those of a flow.
type vote struct {
	flow int
	back wire.QPN
}

// asked is a REQ of the connection manager, for the REP.
type asked struct {
	src, dst netip.Addr
	id       mad.CommID
}

// sorter is the state of Book.Sort.
type sorter struct {
	book    *Book
	heads   map[head]*Flow // the newest flow of each
	waiting map[place][]int
	votes   map[vote]int
	reqs    map[asked]*mad.REQ
	reps    map[asked]bool
	made    map[head]connection // by the connection manager, for the next flow
	backs   map[head][]*Flow    // of answers: the flows that they can belong to
}

// connection is what the connection manager says of a flow: the requester's queue pair, the path MTU in bytes,
// and the agreement.
type connection struct {
	back   wire.QPN
	mtu    int
	agreed *Agreement
}

// manager notes which queue pairs a REP connects, and that their numbers begin a new connection.
func (s *sorter) manager(p *Packet) {
	switch m := p.Message.(type) {
	case *mad.REQ:
		s.reqs[asked{p.Src, p.Dst, m.LocalID}] = m
	case *mad.REP:
		req := s.reqs[asked{p.Dst, p.Src, m.RemoteID}]
		if again := (asked{p.Src, p.Dst, m.LocalID}); req == nil || s.reps[again] {
			return
		} else {
			s.reps[again] = true
		}
		mtu := 0
		if req.MTU >= 1 && req.MTU <= 5 {
			mtu = 128 << req.MTU
		}
		s.made[head{p.Dst, p.Src, m.Pair()}] = connection{req.QPN, mtu, &Agreement{m.PSN, int(min(req.InitiatorDepth, m.ResponderResources))}}
		s.made[head{p.Src, p.Dst, req.QPN}] = connection{m.Pair(), mtu, &Agreement{req.PSN, int(min(m.InitiatorDepth, req.ResponderResources))}}
	}
}

// request files a request under the newest flow of its direction, or begins one.
func (s *sorter) request(i int, p *Packet) {
	h := head{p.Src, p.Dst, p.Header.BTH.DestQP}
	f := s.heads[h]
	if p.Verdict == dump.BadICRC { // any of its fields can be wrong: it says nothing about flows
		if f != nil && !f.restarted(p) {
			f.Packets, p.Flow = append(f.Packets, i), f
		}
		return
	}
	c, made := s.made[h]
	if f != nil && !made {
		f = s.stray(f, p)
	}
	if f == nil || made || f.restarted(p) {
		f = &Flow{Requester: p.Src, Responder: p.Dst, QPN: h.qpn, First: p.PSN(), last: p.PSN(), Reused: f != nil, origin: p, before: f}
		f.Agreed, f.Back, f.MTU, f.number = c.agreed, c.back, c.mtu, len(s.book.Flows)
		s.heads[h] = f
		s.book.Flows = append(s.book.Flows, f)
		delete(s.made, h)
	}
	if wire.Diff(p.PSN(), f.last) > 0 {
		f.last = p.PSN()
	}
	f.Packets = append(f.Packets, i)
	p.Flow = f
	if p.Opcode().Reliable() && !p.Lost() {
		at := place{p.Tap(), p.Src, p.Dst, p.PSN()}
		if list := s.waiting[at]; len(list) == 0 || s.book.Packets[list[len(list)-1]].Flow != f {
			s.waiting[at] = append(list, i)
		}
	}
}

// stray returns the flow to which p can belong: f, or the one before it if f has begun with a far PSN, has one
// request only, and p goes on where the flow before it was.
func (s *sorter) stray(f *Flow, p *Packet) *Flow {
	if f.before == nil || len(f.Packets) != 1 || f.number != len(s.book.Flows)-1 || f.Agreed != nil {
		return f
	}
	d, back := wire.Diff(f.First, f.before.last), wire.Diff(p.PSN(), f.before.last)
	if max(d, -d) <= Far || max(back, -back) > Far {
		return f
	}
	lone := f.Packets[0]
	s.book.Flows = s.book.Flows[:f.number]
	f = f.before
	s.heads[head{p.Src, p.Dst, p.Header.BTH.DestQP}] = f
	s.book.Packets[lone].Flow, s.book.Packets[lone].Stray = f, true
	f.Packets = append(f.Packets, lone)
	return f
}

// restarted reports whether the request p cannot be one of f: its PSN is far away, or it has the first
// PSN again and another content.
func (f *Flow) restarted(p *Packet) bool {
	if d := wire.Diff(p.PSN(), f.last); max(d, -d) > Far {
		return true
	}
	return p.PSN() == f.First && f.last != f.First && len(p.Comments) == 0 && len(f.origin.Comments) == 0 &&
		p.Link == f.origin.Link && !p.SameRequest(f.origin)
}

// SameRequest reports whether two requests with one PSN can be copies of one packet. The acknowledge
// request bit may differ.
func (p *Packet) SameRequest(q *Packet) bool {
	x, y := &p.Header, &q.Header
	return x.BTH.Opcode == y.BTH.Opcode && x.XRCETH == y.XRCETH && p.Length == q.Length && x.RETH == y.RETH && x.FETH == y.FETH &&
		x.AtomicETH == y.AtomicETH && x.Masks == y.Masks && x.ImmDt == y.ImmDt && x.IETH == y.IETH
}

// answer counts the answer p for the request that has waited longest for one with its PSN.
func (s *sorter) answer(p *Packet) {
	if p.Verdict == dump.BadICRC {
		return
	}
	at := place{p.Tap(), p.Dst, p.Src, p.PSN()}
	list := s.waiting[at]
	if len(list) == 0 {
		return
	}
	f := s.book.Packets[list[0]].Flow
	s.votes[vote{f.number, p.Header.BTH.DestQP}]++
	if len(list) == 1 {
		delete(s.waiting, at)
	} else {
		s.waiting[at] = list[1:]
	}
}

// pair decides to which queue pair the answers of each flow go.
func (s *sorter) pair() {
	best := make([]int, len(s.book.Flows))
	votes := make([]vote, 0, len(s.votes))
	for v := range s.votes {
		votes = append(votes, v)
	}
	slices.SortFunc(votes, func(a, b vote) int { return cmp.Or(a.flow-b.flow, cmp.Compare(a.back, b.back)) })
	for _, v := range votes {
		f := s.book.Flows[v.flow]
		if n := s.votes[v]; n > best[v.flow] && (f.Back == 0 || best[v.flow] > 0) {
			best[v.flow], f.Back = n, v.back
		}
	}
	s.backs = map[head][]*Flow{}
	s.strays()
	for _, f := range s.book.Flows {
		if f.Back != 0 {
			h := head{f.Responder, f.Requester, f.Back}
			s.backs[h] = append(s.backs[h], f)
		}
	}
}

// strays pairs queue pairs whose answers have no PSN of a request, for example a single NAK for a lost one, with
// the flow between the two hosts that has no answers yet and the nearest PSN.
func (s *sorter) strays() {
	paired := map[head]bool{}
	alone := map[head][]*Flow{} // by the hosts
	for _, f := range s.book.Flows {
		if f.Back != 0 {
			paired[head{f.Responder, f.Requester, f.Back}] = true
		} else {
			hosts := head{f.Responder, f.Requester, 0}
			if len(alone[hosts]) < maxAlone {
				alone[hosts] = append(alone[hosts], f)
			}
		}
	}
	for i := range s.book.Packets {
		p := &s.book.Packets[i]
		h, hosts := head{p.Src, p.Dst, p.Header.BTH.DestQP}, head{p.Src, p.Dst, 0}
		if len(alone[hosts]) == 0 || p.Verdict == dump.BadICRC || !p.Ordered() || !p.IsAnswer() || paired[h] {
			continue
		}
		paired[h] = true
		var nearest *Flow
		best := int32(Far)
		for _, f := range alone[hosts] {
			if d := wire.Diff(p.PSN(), f.last); f.Back == 0 && f.origin.Number < p.Number && max(d, -d) < best {
				nearest, best = f, max(d, -d)
			}
		}
		if nearest != nil {
			nearest.Back = h.qpn
		}
	}
}

// maxBegun is how many flows with one queue pair of the requester are looked at for an answer, maxAlone how many without
// answers between two hosts.
const (
	maxBegun = 16
	maxAlone = 1024
)

// answers files each answer under the newest flow that has begun and whose PSNs are near, and puts the
// packets of all flows into the order of the capture.
func (s *sorter) answers() {
	for i := range s.book.Packets {
		p := &s.book.Packets[i]
		if !p.Ordered() || !p.IsAnswer() {
			continue
		}
		list := s.backs[head{p.Src, p.Dst, p.Header.BTH.DestQP}]
		begun, _ := slices.BinarySearchFunc(list, p.Number, func(f *Flow, n int) int { return f.origin.Number - n })
		for _, f := range slices.Backward(list[max(0, begun-maxBegun):begun]) {
			if d := wire.Diff(p.PSN(), f.last); max(d, -d) <= Far || len(list) == 1 {
				p.Flow = f
				f.Packets = append(f.Packets, i)
				break
			}
		}
	}
	for _, f := range s.book.Flows {
		slices.Sort(f.Packets)
	}
}
