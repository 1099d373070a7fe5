package meta

import (
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Reports name nodes that clients have linked. From the reports alone the server learns which nodes
// are superseded, without reading the headers of nodes, and without trusting the predecessor that a
// client knows: a switch may have steered the append to another node.
//
// The server's clock counts reports. Each answer carries the clock, and each report says which clock
// its client had heard before it began the append (Record.Heard). So the server knows an order:
//
//	If an append was reported at clock r, and another append of the same key began after its client
//	had heard a clock of at least r, then the second node comes after the first in the chain.
//
// The appends of one client come one after the other in any case.
//
// Proof: the first append was acknowledged before it was reported, and the second one was posted
// after that. Appends take effect one after the other, each at the end of the chain. An append that
// another one has absorbed (swordbox/cloversteer) is in no chain, but its node leads to a node that
// was linked after its append began; so the rule holds for it, too.
//
// An entry's node `at` is replaced by a reported node that certainly comes after it (adopt). The old
// one, and all reported nodes that certainly come before the new one, are superseded. They become
// free when the directory names the new one. Clients hear the clock in each answer, so at a key that
// is written again and again, nodes wait for a few reports. For the last appends to a key, and after
// reports that were lost, catchUp follows the chain by headers.

// clockBits is how many bits of the clock count reports. The others have the incarnation of the
// server, so that a clock of an earlier incarnation is lower than all of this one.
const clockBits = 48

// tidyPause is how long the server collects superseded nodes before it writes the records of their
// keys to the directory, which frees them. So a key that is written all the time costs one record in
// this time. A server without free nodes does not wait.
const tidyPause = time.Millisecond

// tidyAfter is how many requests a server without request threads answers at most before it goes on
// with records that are due, so that neither waits for the other.
const tidyAfter = 4

// scanty is how many times as many nodes should be free as wait for the directory: if there are fewer,
// the server does not pause.
const scanty = 4

// catchUpRounds is the largest number of round trips that catchUp makes for each group of `lanes`
// chains. Meanwhile a server without request threads answers no client.
const catchUpRounds = 32

// reported is a node that a client has reported, and the server's clock at that time.
type reported struct {
	at     layout.Location
	client uint32
	clock  uint64
}

// before reports whether the node certainly comes before the one that rec reports.
func (r *reported) before(client uint32, rec *rpc.Record) bool {
	return r.clock <= rec.Heard || r.client == client
}

// tidier has the entries whose records in the directory must be written.
type tidier struct {
	// due are these entries. The server has handled the first `done` of them.
	due  []*entry
	done int
	// waiting is how many nodes were superseded since the last round.
	waiting int
	// at is the earliest time of the next round. answered is how many requests the server has
	// answered since it last handled some entries.
	at       clock.Time
	answered int
}

// gather collects the reports of a request. An OpReports request has parts of several clients. It
// does not come over the connections of these clients, and may be a late copy. Therefore gather
// leaves out a part if the server does not know its client any more or takes its nodes back. It
// also leaves out a part if a later part of the same client has arrived: since then the client may
// have got one of the nodes again, with the same version.
func (s *Server) gather(r *rpc.Request) {
	if r.Op != rpc.OpReports {
		s.chains.collect(r.Client, r.Records[:r.N])
		return
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		cl := s.pool.clients[p.Client]
		if cl == nil || cl.stale || cl.ended || int32(p.Seq-cl.reported) <= 0 {
			s.mem.stats.Refused++
			continue
		}
		cl.reported = p.Seq
		s.chains.collect(p.Client, p.Records)
	}
}

// collect takes the appends that a client reports.
func (s *chains) collect(client uint32, records []rpc.Record) {
	s.pool.clock++
	for i := range records {
		rec := &records[i]
		if !s.pool.heldAs(client, rec.New) {
			continue // the server has seen the node in a chain already
		}
		n := s.pool.nodes.held.of(rec.New.Handle)
		if rec.Heard < n.given {
			continue // the append was made before the client got the node this time, in an earlier epoch
		}
		e := s.keys[rec.Key]
		switch {
		case e == nil && n.void:
		case e == nil:
			// Another append has absorbed this one, or came after it, and the key was deleted since:
			// the node is in no chain any more.
			s.pool.nodes.held.drop(rec.New.Handle)
			s.pool.retire(rec.New)
		case n.entry == nil:
			n.entry, n.version = e, rec.New.Version
			s.pool.nodes.held.put(rec.New.Handle, n)
			e.closing = e.closing || rec.Deleted
			if !s.adopt(e, client, rec) {
				e.reported = append(e.reported, reported{rec.New, client, s.pool.clock})
				s.note(e)
			}
			s.tidy.add(e)
		}
	}
}

// adopt makes a reported node the entry's newest known node if it certainly comes after the present
// one. The server does not adopt tombstones, because they end the chain, and nodes in memory that is
// or may be lost.
func (s *chains) adopt(e *entry, client uint32, rec *rpc.Record) bool {
	if rec.Heard < e.since && e.by != client || rec.Deleted || e.lost || e.dead || e.at.IsZero() || s.pool.nodes.held.of(rec.New.Handle).void ||
		!s.pool.exists(rec.New.Handle) || s.gone(rec.New) {
		return false
	}
	s.pool.linked(rec.New)
	e.passed = append(e.passed, e.at)
	s.tidy.waiting++
	e.at, e.by, e.since, e.recorded, e.ended, e.last = rec.New, client, s.pool.clock, false, false, false
	n := 0
	for ; n < len(e.reported) && e.reported[n].before(client, rec); n++ {
		s.supersede(e, e.reported[n].at)
	}
	e.reported = e.reported[n:]
	return true
}

// supersede is called when a reported node is certainly not the newest node of its key. It becomes
// free when the record of the entry is written.
func (s *chains) supersede(e *entry, l layout.Location) {
	n, ok := s.pool.nodes.held.at(l.Handle)
	if !ok || n.version != l.Version || n.entry != e || n.void {
		return // the server has met the node in the chain, or its memory was lost
	}
	s.pool.nodes.held.drop(l.Handle)
	e.passed = append(e.passed, l)
	s.tidy.waiting++
}

// add adds an entry to those whose records the server will write, if its record is out of date.
func (t *tidier) add(e *entry) {
	if !e.due && (!e.recorded || e.closing) {
		e.due = true
		t.due = append(t.due, e)
	}
}

// take returns the entries that are due for longest, at most n. They are valid until the next call of
// add or take. If others are left, the list begins with those when half of it has been handled.
func (t *tidier) take(n int) []*entry {
	if t.done > len(t.due)/2 {
		left := copy(t.due, t.due[t.done:])
		clear(t.due[left:])
		t.due, t.done = t.due[:left], 0
	}
	list := t.due[t.done:min(t.done+n, len(t.due))]
	if t.done += len(list); t.done == len(t.due) {
		t.due, t.done = t.due[:0], 0
	}
	return list
}

// tidyDue reports whether the server must handle entries now: the pause is over, or clients may soon
// need the nodes, and the server has no request or has answered enough.
func (s *chains) tidyDue(now clock.Time) bool {
	t := &s.tidy
	if len(t.due) == 0 || t.answered > 0 && t.answered < tidyAfter {
		return false
	}
	if now >= t.at {
		return true
	}
	free := 0
	for c := range s.pool.nodes.free {
		free += s.pool.nodes.free[c].Len(anywhere)
	}
	return scanty*t.waiting > free
}

// advance writes the records of entries that are due, and frees their superseded nodes, beginning
// with the entry that is due for longest. If `all` is true, it handles all entries, otherwise up to
// `lanes` of them.
func (s *chains) advance(all bool) {
	t := &s.tidy
	t.answered = 0
	for len(t.due) > t.done {
		batch := append(s.mem.walk.touched[:0], t.take(lanes)...)
		if len(t.due) == 0 {
			t.waiting, t.at = 0, s.mem.rt.Now().Add(tidyPause)
		}
		closing := s.mem.walk.closing[:0]
		for _, e := range batch {
			e.due = false
			if e.closing && s.keys[e.key] == e {
				closing = append(closing, e)
			}
			e.closing = false
		}
		s.commit(batch)
		s.follow(closing, -1)
		for _, e := range batch {
			s.note(e)
		}
		s.mem.walk.touched, s.mem.walk.closing = batch, closing
		if !all {
			return
		}
	}
}

// note adds an entry to the list w.behind if there are reported nodes that the server has not found
// superseded yet, or if it could not write the entry's record or mirror.
func (s *chains) note(e *entry) {
	if !e.waiting && s.isBehind(e) {
		e.waiting = true
		e.seen = layout.Location{}
		s.mem.walk.behind = append(s.mem.walk.behind, e)
	}
}

func (s *chains) isBehind(e *entry) bool {
	return s.keys[e.key] == e && (len(e.reported) > 0 || !e.recorded || !e.mirrored)
}

// catchUp follows the chains of the entries in w.behind that have not moved since the previous call
// of catchUp: those were not written since. With `all`, catchUp follows the chains of all entries in
// w.behind.
func (s *chains) catchUp(all bool) {
	w := &s.mem.walk
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

// freeReported frees the reported nodes of entry e after the server has followed its chain to the
// end. A node that it has not met is not in the chain any more, or never was: it comes before the
// node where the server began, or another append has absorbed it. If the chain is lost, the server
// frees them when the directory does not name the chain any more.
func (s *chains) freeReported(e *entry) {
	for _, r := range e.reported {
		s.supersede(e, r.at)
	}
	e.reported = nil
}
