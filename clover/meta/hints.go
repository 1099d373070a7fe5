package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// Reports name nodes that clients have linked. The server collects the reports. It follows the
// chains to the reported nodes when no request waits, so that usually no client waits for these
// READs. It also does this when there are no free nodes or slots. It reads the headers of up to
// `lanes` reported nodes of all keys at once, and then moves along the chains by those headers, so
// that one round trip serves many nodes. It trusts only the headers. It ignores the predecessor
// that a report names, because a switch may have steered the append to another node.
//
// The server follows a chain only to the first node that has not been reported yet. Usually the
// client that linked this node reports it a moment later. If not, catchUp follows the chain node by
// node.

// maxHints is how many reports the server stores until it follows them. It drops further reports;
// catchUp finds their nodes.
const maxHints = 1 << 16

// maxSuccessors is how many successors of nodes, from headers that were read early, the server
// remembers. It reads any other header once more when it follows the chain to the header's node.
const maxSuccessors = 1 << 16

// catchUpRounds is the largest number of round trips that catchUp makes for each group of `lanes`
// chains. Meanwhile a server without request threads answers no client.
const catchUpRounds = 256

// hint is a reported node: a client says that it is in the chain of entry e.
type hint struct {
	e  *entry
	at layout.Location
}

// gather collects the reports of a request. An OpReports request has parts of several clients. It
// does not come over the connections of these clients, and may be a late copy. Therefore gather
// leaves out a part if the server does not know its client any more or takes its nodes back. It
// also leaves out a part if a later part of the same client has arrived: since then the client may
// have got one of the nodes again, with the same version.
func (s *Server) gather(r *rpc.Request) {
	if r.Op != rpc.OpReports {
		s.collect(r.Client, r.Records[:r.N])
		return
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		cl := s.clients[p.Client]
		if cl == nil || cl.stale || cl.ended || int32(p.Seq-cl.reported) <= 0 {
			s.stats.Refused++
			continue
		}
		cl.reported = p.Seq
		s.collect(p.Client, p.Records)
	}
}

// collect stores, as hints, the appends that a client reports.
func (s *chains) collect(client uint32, records []rpc.Record) {
	for i := range records {
		rec := &records[i]
		if !s.heldAs(client, rec.New) {
			continue // the server has seen the node in a chain already
		}
		n := s.nodes.held[rec.New.Handle]
		e := s.keys[rec.Key]
		if e == nil {
			// Another append has absorbed this one, and the key was deleted since: the node was in
			// no chain that the server has followed.
			if !n.void {
				delete(s.nodes.held, rec.New.Handle)
				s.retire(rec.New)
			}
			continue
		}
		if !n.reported {
			n.reported = true
			s.nodes.held[rec.New.Handle] = n
			e.ahead++
			e.reported = append(e.reported, rec.New)
		}
		e.closing = e.closing || rec.Deleted
		if len(s.walk.hints) == maxHints {
			s.note(e)
			continue
		}
		s.walk.hints = append(s.walk.hints, hint{e, rec.New})
	}
}

// advance follows the chains to which the reported appends belong, beginning with that of the
// oldest report. If `all` is true, it handles all reports, otherwise up to `lanes` of them.
func (s *chains) advance(all bool) {
	w := &s.walk
	for len(w.hints) > w.followed {
		n := min(len(w.hints)-w.followed, lanes)
		w.batch = append(w.batch[:0], w.hints[w.followed:w.followed+n]...)
		if w.followed += n; w.followed == len(w.hints) {
			w.hints, w.followed = w.hints[:0], 0
		}
		s.followBatch()
		if !all {
			return
		}
	}
}

func (s *chains) followBatch() {
	w := &s.walk
	w.turn++
	list := w.touched[:0]
	for _, h := range w.batch {
		if h.e.turn == w.turn || s.keys[h.e.key] != h.e {
			continue // a deleted key has no chain any more
		}
		h.e.turn = w.turn
		list = append(list, h.e)
		if _, ok := w.successors[h.e.at]; !ok && !h.e.at.IsZero() {
			w.batch = append(w.batch, hint{h.e, h.e.at})
		}
	}
	s.readHints()
	closing := w.closing[:0]
	for _, e := range list {
		s.stride(e)
		freeAbsorbed(s, e, false)
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

// readHints reads the headers of the nodes in w.batch and remembers their successors.
func (s *chains) readHints() {
	w := &s.walk
	for list := w.batch; len(list) > 0; {
		n := min(len(list), lanes)
		for i, h := range list[:n] {
			w.errs[i] = s.startHeader(i, h.at, false)
		}
		s.waitHeaders(n)
		for i, h := range list[:n] {
			if w.errs[i] != nil {
				continue // the header is read again when the chain reaches the node
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

// unpassed reports whether the server may still come to this version of the node when it follows
// the chain. Only then the node's successor is worth remembering, because a later version of the
// node has another successor.
func (s *chains) unpassed(h hint) bool {
	n, ok := s.nodes.held[h.at.Handle]
	return h.at == h.e.at || ok && n.version == h.at.Version
}

// stride moves an entry along its chain as far as the server remembers successors.
func (s *chains) stride(e *entry) {
	for !e.lost && !e.dead {
		next, ok := s.walk.successors[e.at]
		if !ok {
			return
		}
		s.pass(e, next)
	}
}

// note adds an entry to the list w.behind if the server has not reached all reported nodes of its
// chain, or could not write its record or mirror.
func (s *chains) note(e *entry) {
	if !e.waiting && s.isBehind(e) {
		e.waiting = true
		e.seen = layout.Location{}
		s.walk.behind = append(s.walk.behind, e)
	}
}

func (s *chains) isBehind(e *entry) bool {
	return s.keys[e.key] == e && (e.ahead > 0 || !e.recorded || !e.mirrored)
}

// catchUp follows the chains of the entries in w.behind that have not moved since the previous call
// of catchUp. Usually such a chain has a node that its client has not reported. With `all`, catchUp
// follows the chains of all entries in w.behind.
func (s *chains) catchUp(all bool) {
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

// forgetHints drops reports and remembered headers. It is called after a loss of memory, and when a
// change of the view (the set of servers whose copies count) begins.
func (s *chains) forgetHints() {
	clear(s.walk.successors)
	s.walk.hints, s.walk.followed = s.walk.hints[:0], 0
}
