package meta

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// In a shared space a segment has nodes of one class, or none yet. A class that has no free node
// takes segments that have no class. When there are none, the segments whose nodes are all free
// rest: they lose their class as soon as every client has confirmed a new epoch, and so has
// forgotten all locations in them. Otherwise an append that names an old node could find its header
// in a value.
//
// A table on each memory server has the classes of its segments. It is written before a node of a
// segment is given out, so that a restarted metadata server finds every node that may be linked. To
// a restarted metadata server, resting segments have a class, and their nodes are free.

// tombstones is how many nodes of the smallest class are given out for tombstones alone: keys can be
// deleted when the store is full.
const tombstones = 64

// restPause is the time between two searches for segments that can rest.
const restPause = 20 * time.Millisecond

// segments is the state of all segments; in a fixed space there are none.
type segments struct {
	// table has the classes by server and segment, as on the memory servers.
	table   [][]byte
	resting []resting
	restAt  clock.Time // the earliest time of the next search
	// pressed is, by class, since when there has been no free node for a client; 0: there was one
	// at the last request. Until scarceUntil the answers ask all clients for the nodes that they do
	// not use: one of them keeps a whole segment in its class.
	pressed     [layout.Classes]clock.Time
	scarceUntil clock.Time
}

// resting is a segment whose former class was given up in an epoch.
type resting struct {
	server, i int
	epoch     uint32
}

// perSegment is the number of nodes of a class in a segment.
func perSegment(c layout.Class) int { return layout.SegmentLen / c.Size() }

// noSegments sets up the table of an empty store: one segment of each server is for tombstones, the
// others have no class.
func (s *pool) noSegments() {
	s.segments.table = make([][]byte, len(s.memory))
	for i := range s.segments.table {
		s.segments.table[i] = make([]byte, s.space.Segments())
		if s.space.Shared {
			s.segments.table[i][0] = 1
		}
	}
}

// readTable reads the classes of a server's segments. It takes an invalid class for none.
func (s *pool) readTable(i int) error {
	p := s.space.Table(i)
	for at := 0; at < p.Len; at += bulkLen {
		b, err := s.readBulk(i, p.Offset+at, min(bulkLen, p.Len-at))
		if err != nil {
			return err
		}
		copy(s.segments.table[i][at:], b)
	}
	for k, c := range s.segments.table[i] {
		if c > layout.Classes {
			s.segments.table[i][k] = 0
		}
	}
	return nil
}

// exists reports whether a node's segment has the node's class.
func (s *pool) exists(h layout.Handle) bool {
	if !s.space.Shared {
		return true
	}
	server, k, ok := s.space.Segment(h)
	return ok && s.segments.table[server][k] == byte(s.classOf(h))+1
}

// rests reports whether a segment rests.
func (s *pool) rests(server, k int) bool {
	return slices.ContainsFunc(s.segments.resting, func(r resting) bool { return r.server == server && r.i == k })
}

// runs calls f for the nodes that exist on a server: for each run of nodes of one class with
// consecutive handles. It stops at the first error.
func (s *pool) runs(i int, f func(c layout.Class, first layout.Handle, n int) error) error {
	if !s.space.Shared {
		for c, n := range s.space.Entries {
			if err := f(layout.Class(c), s.space.First(i, layout.Class(c)), n); err != nil {
				return err
			}
		}
		return nil
	}
	for k, v := range s.segments.table[i] {
		if v == 0 || s.rests(i, k) {
			continue
		}
		c := layout.Class(v - 1)
		if err := f(c, s.segment(i, k, c), perSegment(c)); err != nil {
			return err
		}
	}
	return nil
}

// segment returns the first node of a segment that has a class.
func (s *pool) segment(server, k int, c layout.Class) layout.Handle {
	return s.space.First(server, c) + layout.Handle(k*perSegment(c))
}

// count is the number of nodes of each class.
func (s *pool) count() (n [layout.Classes]uint64) {
	for i := range s.memory {
		_ = s.runs(i, func(c layout.Class, _ layout.Handle, k int) error {
			n[c] += uint64(k)
			return nil
		})
	}
	return n
}

// unused is how many segments have no class.
func (s *pool) unused() (n int) {
	for i := range s.segments.table {
		for _, v := range s.segments.table[i] {
			if v == 0 {
				n++
			}
		}
	}
	return n
}

// grow gives a class a segment of each server that has one left, and reports whether there was any.
// While a chain may lead to a node in lost memory it does nothing, because that node may be in such
// a segment.
func (s *pool) grow(c layout.Class) bool {
	if s.orphans {
		return false
	}
	var first []layout.Handle
	for i, t := range s.segments.table {
		k := slices.Index(t, 0)
		if k < 0 || s.reach(i) != nil {
			continue
		}
		if s.writeBulk(i, s.space.Table(i).Offset+k, []byte{byte(c) + 1}) != nil {
			continue // on the server the segment may have the class already: it is given to this class or another one later
		}
		t[k] = byte(c) + 1
		first = append(first, s.segment(i, k, c))
	}
	for j := range perSegment(c) {
		for _, h := range first {
			s.release(layout.Location{Handle: h + layout.Handle(j), Version: 1})
		}
	}
	return len(first) > 0
}

// rest makes those segments rest whose nodes are all free, except segments of the class that asks
// and, on each server, one for tombstones.
func (s *pool) rest(asks layout.Class) {
	if !s.space.Shared || len(s.segments.resting) > 0 || s.rt.Now() < s.segments.restAt {
		return
	}
	s.segments.restAt = s.rt.Now().Add(restPause)
	type segment struct{ server, k int }
	at := func(l layout.Location) segment {
		server, k, _ := s.space.Segment(l.Handle)
		return segment{server, k}
	}
	for c := range s.nodes.free {
		q := &s.nodes.free[c]
		if layout.Class(c) == asks || q.len(anywhere) < perSegment(layout.Class(c)) {
			continue
		}
		n := make(map[segment]int)
		q.all(func(l layout.Location) { n[at(l)]++ })
		q.remove(func(l layout.Location) bool {
			x := at(l)
			return n[x] == perSegment(layout.Class(c)) && x.k > 0
		})
		for i, t := range s.segments.table {
			for k, v := range t {
				if k > 0 && v == byte(c)+1 && n[segment{i, k}] == perSegment(layout.Class(c)) {
					s.segments.resting = append(s.segments.resting, resting{i, k, s.epoch})
				}
			}
		}
	}
}

// press records that there was no node of a class for a client, and reports whether other clients
// may give some back. The next answer to each client asks it to do so, and a client that works
// sends a request at least twice in a lease. The nodes of a client that has sent no request since
// become free when its lease ends.
func (s *pool) press(c layout.Class, to uint32) bool {
	if !s.space.Shared {
		return false
	}
	now := s.rt.Now()
	if s.segments.pressed[c] == 0 {
		s.segments.pressed[c] = now
	}
	since := s.segments.pressed[c]
	s.segments.scarceUntil = now.Add(s.cfg.Lease)
	if now < s.segments.restAt && len(s.segments.resting) == 0 && now > s.segments.restAt.Add(-restPause) {
		return true // the next search may find segments
	}
	asked := now > since.Add(s.cfg.Lease/2+2*restPause)
	for _, n := range s.nodes.held {
		if n.client == to {
			continue
		}
		if cl := s.clients[n.client]; !asked || cl == nil || cl.heard <= since {
			return true
		}
	}
	return false
}

// wake removes the class of resting segments whose epoch every client has left. It reports whether
// other segments wait for the present epoch to end.
func (s *pool) wake(oldest uint32) (waiting bool) {
	s.segments.resting = slices.DeleteFunc(s.segments.resting, func(r resting) bool {
		if r.epoch < oldest {
			s.segments.table[r.server][r.i] = 0
			return true
		}
		waiting = waiting || r.epoch == s.epoch
		return false
	})
	return waiting
}

// share returns how many of the n nodes that a client asks for it gets: at most as many as a
// segment has, and few when few are left, because other clients cannot use nodes that a client
// holds unused.
func (s *pool) share(c layout.Class, n int) int {
	if !s.space.Shared {
		return n
	}
	left := s.nodes.free[c].len(anywhere) + s.unused()*perSegment(c)
	return max(1, min(n, perSegment(c), left/(2*max(1, len(s.clients)))))
}

// reserved is the number of free nodes of a class that a request must leave.
func (s *pool) reserved(c layout.Class, tombstone bool) int {
	if !s.space.Shared || c != 0 || tombstone {
		return 0
	}
	return tombstones
}
