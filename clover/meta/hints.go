package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// Reports say which nodes clients have linked. The server reads the headers of all of them at the same time, of whatever keys, and
// then moves along the chains by what it has read: one round trip for many nodes. It believes the headers alone. What a report
// says of the predecessor is not looked at, since a switch may have steered the append to another one.
//
// A chain stops at a node that nobody has reported yet. Mostly its client does so in a moment. If it does not, the chain is
// followed node by node (catchUp).

// maxSuccessors bounds the headers that are remembered. What is beyond is read again when the chain comes there.
const maxSuccessors = 1 << 16

// catchUpRounds bounds the round trips that one round of catching up takes away from clients.
const catchUpRounds = 256

// hint is a node that a client has reported to be in the chain of e.
type hint struct {
	e  *entry
	at layout.Location
}

// collect takes note of what a client reports.
func (s *Server) collect(r *rpc.Request) {
	for i := range r.N {
		rec := &r.Records[i]
		e := s.keys[rec.Key]
		if e == nil {
			continue
		}
		n, ok := s.nodes.held[rec.New.Handle]
		if !ok || n.version != rec.New.Version {
			continue // it was met already
		}
		if !n.reported {
			n.reported = true
			s.nodes.held[rec.New.Handle] = n
			e.ahead++
		}
		e.closing = e.closing || rec.Deleted
		s.walk.hints = append(s.walk.hints, hint{e, rec.New})
	}
}

// advance moves on along the chains that clients have reported appends to.
func (s *Server) advance() {
	w := &s.walk
	if len(w.hints) == 0 {
		return
	}
	w.turn++
	list := w.touched[:0]
	for _, h := range w.hints {
		if h.e.turn == w.turn || s.keys[h.e.key] != h.e {
			continue // a key that has gone since has no chain any more
		}
		h.e.turn = w.turn
		list = append(list, h.e)
		if _, ok := w.successors[h.e.at]; !ok && !h.e.at.IsZero() {
			w.hints = append(w.hints, hint{h.e, h.e.at})
		}
	}
	s.readHints()
	w.hints = w.hints[:0]
	closing := w.closing[:0]
	for _, e := range list {
		s.stride(e)
		if e.closing {
			e.closing = false
			closing = append(closing, e)
		}
	}
	s.commit(list)
	s.follow(closing, -1)
	for _, e := range list {
		s.note(e)
	}
	w.touched, w.closing = list, closing
}

// readHints reads the headers of all reported nodes, and remembers their successors.
func (s *Server) readHints() {
	w := &s.walk
	for list := w.hints; len(list) > 0; {
		n := min(len(list), lanes)
		for i, h := range list[:n] {
			w.errs[i] = s.startHeader(i, h.at)
		}
		s.waitHeaders(n)
		for i, h := range list[:n] {
			if w.errs[i] != nil {
				continue // it is read again when the chain comes there
			}
			s.stats.Walked++
			header, err := s.header(i)
			next, more := header.Next()
			if err == nil && more && header.Valid() && header.EntryVersion() == h.at.Version && s.unpassed(h) && len(w.successors) < maxSuccessors {
				w.successors[h.at] = next
			}
		}
		list = list[n:]
	}
}

// unpassed reports whether a node can still be met: what is known of its successor is worth remembering. A later life of it has
// another one.
func (s *Server) unpassed(h hint) bool {
	n, ok := s.nodes.held[h.at.Handle]
	return h.at == h.e.at || ok && n.version == h.at.Version
}

// stride moves an entry on as far as headers are known.
func (s *Server) stride(e *entry) {
	for !e.lost && !e.dead {
		next, ok := s.walk.successors[e.at]
		if !ok {
			return
		}
		s.pass(e, next)
	}
}

// note remembers an entry that has not met all nodes that were reported, or could not be written down.
func (s *Server) note(e *entry) {
	if !e.waiting && s.isBehind(e) {
		e.waiting = true
		e.seen = layout.Location{}
		s.walk.behind = append(s.walk.behind, e)
	}
}

func (s *Server) isBehind(e *entry) bool {
	return s.keys[e.key] == e && (e.ahead > 0 || !e.recorded)
}

// catchUp follows the chains that have stood still since it was called last: somebody has appended and not said so. With
// all, it follows every chain that is behind.
func (s *Server) catchUp(all bool) {
	w := &s.walk
	kept, still := w.behind[:0], w.touched[:0]
	for _, e := range w.behind {
		if !s.isBehind(e) {
			e.waiting = false
			continue
		}
		kept = append(kept, e)
		if all || e.at == e.seen {
			still = append(still, e)
		}
		e.seen = e.at
	}
	w.behind = kept
	s.follow(still, catchUpRounds)
	w.touched = still
}

// forgetHints drops what was reported and read: memory was lost.
func (s *Server) forgetHints() {
	clear(s.walk.successors)
	s.walk.hints = s.walk.hints[:0]
}
