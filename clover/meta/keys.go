package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// query answers where the chain of a key is. If the request names a node that the client was given,
// the answer is Done once the server has seen that node in a chain.
func (s *Server) query(cl *client, r *rpc.Request, a *rpc.Answer) {
	e := s.keys[r.Key]
	// the chain may lead into lost memory now; then the client would follow it there, and ask again
	if e != nil && s.void {
		s.follow([]*entry{e}, -1)
		e = s.keys[r.Key]
	}
	switch {
	case !r.At.IsZero() && !s.heldAs(cl.id, r.At):
		a.Status = rpc.Done // a node that its client no longer holds has been linked
	case e == nil:
		a.Status = rpc.NotFound
	case e.lost:
		a.Status = rpc.Lost
	default:
		a.N, a.Slot = 1, e.slot
		a.Locations[0] = e.at
	}
}

// openKey makes the first node of a new key known. A repeated request gets the result of the first.
// If the client still holds the node, the request is not a repetition, even if the key was opened
// long ago with an earlier use of the same node in the same version.
func (s *Server) openKey(cl *client, r *rpc.Request, a *rpc.Answer) {
	if !s.erase() {
		a.Status = rpc.Busy
		return
	}
	if len(s.slots) == 0 {
		s.advance(true) // a waiting report may be of a DELETE, which frees its key's slot
	}
	e := s.keys[r.Key]
	switch {
	case !s.heldAs(cl.id, r.At): // a node that its client no longer holds has been linked
		if a.Status = rpc.Done; e != nil && e.opened == r.At {
			a.Status, a.Slot = rpc.OK, e.slot
		}
		return
	case e != nil && !s.clear(e):
		a.Status = rpc.Exists
		if e.dead || !e.ended {
			// A memory server does not answer. So it is not known whether the key has ended, or the
			// directory cannot be written.
			a.Status = rpc.Busy
		}
		return
	case s.gone(r.At):
		a.Status = rpc.Busy // until lose has run, after which the client does not hold the node any more
		return
	case len(s.slots) == 0 && s.keys[r.Key] == nil:
		a.Status = rpc.Full
		return
	}
	s.open(r, a)
}

// gone reports whether a node was in memory that is known to be lost. The server may have learnt
// that during the present request. The client does not know that yet. A key opened with the node
// would be lost at once: for the second time, if its previous value had been found lost before.
func (s *chains) gone(l layout.Location) bool {
	p, ok := s.space.Place(l.Handle)
	return !ok || s.memory[p.Server].blank
}

// clear follows the chain of an entry and reports whether the key was deleted or lost. It removes a
// deleted key from the table.
func (s *chains) clear(e *entry) bool {
	s.follow([]*entry{e}, -1)
	return e.lost || s.keys[e.key] != e
}

// open writes a fresh key into the directory and its mirror before it answers the client, and the
// shortcut after that, because clients that knew an earlier key of the slot read the shortcut. If
// the key was lost, it stays lost until the directory is written; the new record takes the slot of
// the lost one, so that the directory never has two records of one key.
func (s *chains) open(r *rpc.Request, a *rpc.Answer) {
	e := &entry{key: r.Key, at: r.At, opened: r.At}
	old := s.keys[r.Key]
	if old != nil {
		e.slot, e.mirrored = old.slot, old.mirrored
	} else {
		nearSlot(&s.space, s.slots, r.At)
		e.slot = s.slots[len(s.slots)-1]
	}
	if s.mirror([]*entry{e}); e.mirrored {
		s.record([]*entry{e})
	}
	if !e.recorded {
		a.Status = rpc.Busy
		e.dead, e.lost, e.mirrored = old == nil, old != nil, old != nil && old.mirrored
		s.unopened = append(s.unopened, e)
		return
	}
	if old != nil {
		s.strip(old)
	} else {
		s.slots = s.slots[:len(s.slots)-1]
	}
	s.linked(r.At)
	s.keys[r.Key] = e
	a.Slot = e.slot
	s.writeShortcut(e)
}

// nearSlot looks for a free slot whose shortcut is on the server of the node at, among the last
// slotsSearched ones, and moves it to the end of the list. Clients that use the key are connected
// to that server.
func nearSlot(space *layout.Space, slots []uint32, at layout.Location) {
	last := len(slots) - 1
	p, _ := space.Place(at.Handle)
	for i := last; i >= max(0, last-slotsSearched); i-- {
		if short, ok := space.Shortcut(int(slots[i])); ok && short.Server == p.Server {
			slots[i], slots[last] = slots[last], slots[i]
			return
		}
	}
}

// slotsSearched bounds the search for a slot on a server.
const slotsSearched = 4 * layout.MaxServers

// erase removes the records of keys that could not be opened from the directory, or marks the keys
// as lost again. It reports whether none is left. The WRITE of such a record may have been
// executed, and only its acknowledgement lost: a restarted metadata server would find the key.
// Until the record is erased, no key is opened, and no node of a client that has gone is taken
// back. The mirror is erased after the record: with a record, but no mirror, it would not be
// noticed that the key is lost when the memory of the record is.
func (s *chains) erase() bool {
	left := s.unopened[:0]
	for _, e := range s.unopened {
		if s.record([]*entry{e}); e.recorded || e.lost {
			s.mirror([]*entry{e})
		}
		if !e.recorded || !e.mirrored {
			left = append(left, e)
		}
	}
	s.unopened = left
	return len(left) == 0
}

// writeShortcut makes the shortcut of a new key name its first node. If the WRITE fails, the
// shortcut names an older node, which is slower and still correct.
func (s *chains) writeShortcut(e *entry) {
	p, ok := s.space.Shortcut(int(e.slot))
	if !ok || s.reach(p.Server) != nil || s.fab.MR().Store64(wordAt, uint64(e.at.Stamped(s.epoch))) != nil {
		return
	}
	o := &s.walk.ops[0]
	s.fab.Write(o, s.memory[p.Server].target(0, p.Offset), wordAt, layout.ShortcutLen)
	deadline := s.deadline()
	s.lend()
	_ = s.fab.Do(deadline, o) // if it fails, the shortcut names an older node
	s.regain()
}

// strip retires the known nodes of a lost key, when the directory does not name its chain any more.
// lose takes back nodes in lost memory.
func (s *chains) strip(e *entry) {
	for _, l := range append(e.passed, e.at) {
		if !l.IsZero() && !s.gone(l) {
			s.retire(l)
		}
	}
	e.passed, e.at = nil, layout.Location{}
}
