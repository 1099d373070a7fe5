package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/lease"
)

// pool has the nodes that are in no chain, and the clients that may hold some of them.
type pool struct {
	mem      *memories
	nodes    nodes
	clock    uint64 // counts reports: see reports.go
	segments segments
	balance  balance
	clients  map[uint32]*client
	// nextID is the number of the client that was added last. endID is the first number that no
	// client of this incarnation may have. The memory servers refuse all owners with numbers up to
	// fencedTo, or will do so when the fences are complete.
	nextID, endID, fencedTo uint32
	// turnedAt is when the present epoch began.
	epoch    uint32
	turnedAt clock.Time
	// fences are the fences of clients that have ended.
	fences *lease.Fencer
	// The orphan is a client number that no client has. orphans is true if it holds nodes, and void
	// if some of these nodes are in lost memory. orphansAfter is the fence of all clients that may
	// still use these nodes, which become free when the fence is over; nil means that there are no
	// such clients. orphansAt is the earliest time of the next attempt of recoverOrphans.
	orphans, void bool
	orphansAfter  *lease.Fence
	orphansAt     clock.Time
}

// nodes has the state of every node that is in no chain. See the package comment.
type nodes struct {
	free [layout.Classes]free
	held heldNodes
	worn []worn
}

// worn is a node whose versions are used up. epoch is the epoch in which that happened.
type worn struct {
	handle layout.Handle
	epoch  uint32
}

func (s *pool) classOf(h layout.Handle) layout.Class {
	p, _ := s.mem.space.Place(h)
	c, _ := layout.ClassOf(p.Len)
	return c
}

// retire takes back a node that was superseded, or that was never linked. The node becomes free
// with its next version, or a later one (see free.pace). If its versions are used up, it becomes
// worn.
func (s *pool) retire(l layout.Location) {
	if s.mem.cfg.OneVersion {
		s.release(l)
		return
	}
	next, ok := l.Version.Next()
	if !ok {
		s.nodes.worn = append(s.nodes.worn, worn{l.Handle, s.epoch})
		return
	}
	if p, ok := s.mem.space.Place(l.Handle); ok {
		c, _ := layout.ClassOf(p.Len)
		s.free(p.Server, c, layout.Location{Handle: l.Handle, Version: s.nodes.free[c].pace(next)})
	}
}

// heldAs reports whether client `to` holds the node l with the version of l. A client may use a
// higher version than it got (layout.Version.Pace).
func (s *pool) heldAs(to uint32, l layout.Location) bool {
	h, ok := s.nodes.held.at(l.Handle)
	return ok && h.client == to && h.version <= l.Version
}

// linked is called when the server has seen a node in a chain: no client holds the node any more.
func (s *pool) linked(l layout.Location) { s.nodes.held.drop(l.Handle) }

// turn frees the worn nodes and the resting segments whose epoch every client has left. It begins a
// new epoch if nodes became worn, or segments began to rest, in the present one, and every client
// has confirmed the present one.
func (s *pool) turn() {
	if len(s.nodes.worn) == 0 && s.segments.Resting() == 0 {
		return
	}
	if s.mem.hand != nil {
		// A client confirms an epoch when its reports of earlier epochs were answered. Reports that
		// request threads have answered may still wait for the main thread.
		s.mem.hand.drain()
	}
	oldest := s.epoch
	for _, c := range s.clients {
		oldest = min(oldest, c.epoch)
	}
	kept := s.nodes.worn[:0]
	waiting := s.segments.Wake(oldest, s.epoch)
	for _, w := range s.nodes.worn {
		if w.epoch < oldest {
			s.release(layout.Location{Handle: w.handle, Version: 1})
			continue
		}
		waiting = waiting || w.epoch == s.epoch
		kept = append(kept, w)
	}
	s.nodes.worn = kept
	if waiting && oldest == s.epoch && s.mayTurn() {
		s.epoch++
		s.turnedAt = s.mem.rt.Now()
	}
}

// staleEpochs is the number of epochs after which mayTurn erases all shortcuts: half of the number
// of different stamps.
const staleEpochs = (layout.MaxStamp + 1) / 2

// mayTurn reports whether the next epoch may begin. Before the stamps of shortcuts repeat, it
// erases all shortcuts; if that fails, it returns false. After that no old stamp comes back: a
// client in the present epoch writes shortcuts only with the stamp of this epoch or of the previous
// one.
func (s *pool) mayTurn() bool {
	if (s.epoch+1)%staleEpochs != 0 {
		return true
	}
	for i := range s.mem.memory {
		if s.mem.eraseShortcuts(i) != nil {
			return false
		}
	}
	return true
}
