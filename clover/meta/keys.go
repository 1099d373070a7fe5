package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// query answers with a node of the key's chain. If the request names a node that the client was
// given, the answer is Done once the server has seen that node in a chain. If this metadata server
// was deposed, a client that gets a node notices it: the memory servers refuse clients of a deposed
// metadata server. After NotFound or Lost the client reads nothing and would not notice it. So
// before these two answers the server makes sure that it was not deposed; if it cannot, the answer
// is Busy.
func (s *Server) query(cl *client, r *rpc.Request, a *rpc.Answer) {
	e := s.chains.keys[r.Key]
	// The chain may lead into lost memory. Without follow, the client would go to the lost node, and
	// then ask again.
	if e != nil && s.pool.void {
		s.chains.follow([]*entry{e}, -1)
		e = s.chains.keys[r.Key]
	}
	switch {
	case !r.At.IsZero() && !s.pool.heldAs(cl.id, r.At):
		a.Status = rpc.Done // the client does not hold the node any more: it was linked
	case e.absent() && !s.mem.reigns():
		a.Status = rpc.Busy
	case e == nil:
		a.Status = rpc.NotFound
	case e.lost:
		a.Status = rpc.Lost
	default:
		a.N, a.Slot = 1, e.slot
		a.Locations[0] = e.at
	}
}

// absent reports whether the answer to a query is NotFound or Lost, because the server knows no
// node of the key. e is nil if there is no such key.
func (e *entry) absent() bool { return e == nil || e.lost }

// reigns reports whether a memory server still serves this metadata server. A metadata server that
// takes over makes all memory servers refuse this one before it changes anything. So if reigns
// returns true, this server's tables were right when reigns was called, even if this server hung
// before.
func (s *memories) reigns() bool {
	for i := range s.memory {
		m := &s.memory[i]
		if m.out || m.blank || !s.connected(i) {
			continue
		}
		if s.probe(i) == nil {
			return true
		}
	}
	return false
}

// openKey answers OpOpen: it makes the client's node the first node of a new key. A repeated
// request gets the result of the first one. If the client still holds the node, the request is no
// repetition, even if an earlier use of the same node with the same version opened the key long
// ago.
func (s *Server) openKey(cl *client, r *rpc.Request, a *rpc.Answer) {
	if !s.chains.erase() {
		a.Status = rpc.Busy
		return
	}
	if len(s.chains.slots) == 0 {
		s.chains.advance(true) // a waiting report may be of a DELETE, which frees its key's slot
	}
	e := s.chains.keys[r.Key]
	switch {
	case !s.pool.heldAs(cl.id, r.At): // a node that its client no longer holds has been linked
		if a.Status = rpc.Done; e != nil && e.opened == r.At {
			a.Status, a.Slot = rpc.OK, e.slot
		}
		return
	case e != nil && !s.chains.clear(e):
		a.Status = rpc.Exists
		if e.dead || !e.ended {
			// A memory server does not answer. So the server does not know whether the key was
			// deleted, or it cannot write the directory.
			a.Status = rpc.Busy
		}
		return
	case s.chains.gone(r.At):
		// The node is in lost memory. The client asks again until the function lose has run and has
		// taken the node from the client.
		a.Status = rpc.Busy
		return
	case len(s.chains.slots) == 0 && s.chains.keys[r.Key] == nil:
		a.Status = rpc.Full
		return
	}
	s.chains.open(r, a)
}

// gone reports whether a node is in memory that the server knows to be lost. The server may have
// learnt it during the present request, and the client does not know it yet. A key that is opened
// with such a node would be lost at once.
func (s *chains) gone(l layout.Location) bool {
	p, ok := s.mem.space.Place(l.Handle)
	return !ok || s.mem.memory[p.Server].blank && !s.mem.copied()
}

// clear follows the chain of an entry to its end. If the newest node is a tombstone, that removes
// the key from the table. clear returns true if the key was deleted or lost.
func (s *chains) clear(e *entry) bool {
	s.follow([]*entry{e}, -1)
	return e.lost || s.keys[e.key] != e
}

// open makes the node r.At the first node of a key. Before the client gets its answer, open writes
// the key's mirror, which is a second record on another server, the key's record in the directory,
// and then the shortcut. Clients that remember an earlier key with the same slot may still read the
// shortcut. A key that was lost stays lost until its new record is written. This record takes the
// slot of the lost one, so that the directory never has two records of one key.
func (s *chains) open(r *rpc.Request, a *rpc.Answer) {
	e := &entry{key: r.Key, at: r.At, opened: r.At}
	old := s.keys[r.Key]
	if old != nil {
		e.slot, e.mirrored = old.slot, old.mirrored
	} else {
		nearSlot(&s.mem.space, s.slots, r.At)
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
	s.pool.linked(r.At)
	s.pool.clock++
	e.since = s.pool.clock
	s.keys[r.Key] = e
	a.Slot = e.slot
	s.writeShortcut(e)
}

// nearSlot moves a free slot to the end of the list: one whose shortcut is on the same server as
// the node `at`. It looks at the last slotsSearched slots. Clients that use the key are connected
// to that server anyway.
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

// slotsSearched is how many free slots nearSlot looks at. Usually one of so many is on the wanted
// server.
const slotsSearched = 4 * layout.MaxServers

// erase works on keys that could not be opened: it removes their records from the directory, or
// marks the keys as lost again. It returns true if none is left. Such a record must be erased
// because its WRITE may have been executed although it was not acknowledged: a restarted metadata
// server would find the key. As long as one is left, no key is opened, and no node of a client that
// has gone is taken back. erase removes the mirror after the record. If there were a record without
// a mirror and its memory were lost, the server would not notice that the key is lost.
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

// writeShortcut makes the shortcut of a new key name the key's first node. If the WRITE fails, the
// shortcut names an older node, which costs time but does no harm.
func (s *chains) writeShortcut(e *entry) {
	p, ok := s.mem.space.Shortcut(int(e.slot))
	if !ok || s.mem.reach(p.Server) != nil || s.mem.fab.MR().Store64(wordAt, uint64(e.at.Stamped(s.pool.epoch))) != nil {
		return
	}
	o := &s.mem.walk.ops[0]
	s.mem.fab.Write(o, s.mem.memory[p.Server].target(0, p.Offset), wordAt, layout.ShortcutLen)
	_ = s.mem.doLent(o) // on failure the shortcut goes on naming an older node
}

// strip is called when the directory no longer names the chain of a lost key. It retires the
// chain's known nodes, and those that clients have reported, except those in lost memory, which the
// method lose takes back.
func (s *chains) strip(e *entry) {
	s.freeReported(e)
	for _, l := range append(e.passed, e.at) {
		if !l.IsZero() && !s.gone(l) {
			s.pool.retire(l)
		}
	}
	e.passed, e.at = nil, layout.Location{}
}
