package meta

import (
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/slab"
)

// In a shared space a segment has nodes of one class, or has no class yet. A class without free
// nodes takes segments that have no class. If there are none, segments whose nodes are all free
// begin to rest. They lose their class when every client has confirmed a new epoch, and so has
// forgotten all locations in these segments. Without that wait, an append that names an old node
// could find the expected header in the bytes of a value.
//
// A table on each memory server has the classes of its segments. The server writes a segment's
// class there before it gives out a node of the segment, so that a restarted metadata server finds
// every node that may be linked. After a restart, the segments that were resting have their class
// as before, and their nodes are free.

// tombstones is how many nodes of the smallest class are reserved for tombstones, so that keys can
// be deleted when the store is full. If a segment has fewer nodes, those of one segment are
// reserved.
const tombstones = 64

// restPause is the shortest time between two searches for segments that can rest.
const restPause = 20 * time.Millisecond

// segments is the state of all segments. A fixed space has none.
type segments struct {
	// Table has the class of each segment of each server, as the memory servers have it.
	slab.Table
	restAt clock.Time // the earliest time of the next search for segments that can lose their class
	// pressed is, for each class, since when clients have found no free node; 0 means that there
	// was one at the last request. Until scarceUntil the answers ask all clients to return unused
	// nodes, because a single node keeps its whole segment in its class.
	pressed     [layout.Classes]clock.Time
	scarceUntil clock.Time
}

// noSegments sets up the table of an empty store. The first segment of each server is for
// tombstones. The others have no class.
func (s *pool) noSegments() {
	s.segments.Table = slab.NewTable(len(s.mem.memory), s.mem.space.Segments())
	for i := range s.mem.memory {
		if s.mem.space.Shared {
			s.segments.Set(slab.Segment{Server: i}, 0)
		}
	}
}

// readTable reads the classes of server i's segments. An invalid class counts as none.
func (s *pool) readTable(i int) error {
	p, err := s.mem.copyOf(s.mem.space.Table(i), false)
	if err != nil {
		return err
	}
	b, err := s.mem.readBulk(p.Server, p.Offset, p.Len)
	if err != nil {
		return err
	}
	row := s.segments.Row(i)
	copy(row, b)
	for k, c := range row {
		if c > byte(s.mem.space.Largest())+1 {
			row[k] = slab.None
		}
	}
	return nil
}

// exists reports whether the segment of node h has the class of h. If not, there is no such node at
// present.
func (s *pool) exists(h layout.Handle) bool {
	if !s.mem.space.Shared {
		return true
	}
	server, k, ok := s.mem.space.Segment(h)
	return ok && s.segments.Has(slab.Segment{Server: server, N: k}, int(s.classOf(h)))
}

// runs calls f for each run of existing nodes on server i: n nodes of one class with consecutive
// handles, beginning with `first`. It leaves out segments that are about to lose their class
// (slab.Table.Rest), and stops at the first error.
func (s *pool) runs(i int, f func(c layout.Class, first layout.Handle, n int) error) error {
	if !s.mem.space.Shared {
		for c, n := range s.mem.space.Entries {
			if err := f(layout.Class(c), s.mem.space.First(i, layout.Class(c)), n); err != nil {
				return err
			}
		}
		return nil
	}
	for k, v := range s.segments.Row(i) {
		if v == slab.None || s.segments.Rests(slab.Segment{Server: i, N: k}) {
			continue
		}
		c := layout.Class(v - 1)
		if err := f(c, s.segment(i, k, c), s.mem.space.PerSegment(c)); err != nil {
			return err
		}
	}
	return nil
}

// segment returns the first node of segment k, which has class c.
func (s *pool) segment(server, k int, c layout.Class) layout.Handle {
	return s.mem.space.First(server, c) + layout.Handle(k*s.mem.space.PerSegment(c))
}

func (s *pool) count() (n [layout.Classes]uint64) {
	for i := range s.mem.memory {
		_ = s.runs(i, func(c layout.Class, _ layout.Handle, k int) error {
			n[c] += uint64(k)
			return nil
		})
	}
	return n
}

// grow gives a class one segment of each server that has an unused one and answers. It returns false
// if it gave none. While s.orphans is true, grow does nothing: a chain may lead to a node in lost
// memory, and that node may be in an unused segment.
func (s *pool) grow(c layout.Class) bool {
	if s.orphans || s.mem.space.PerSegment(c) == 0 {
		return false
	}
	var first []layout.Handle
	for i := range s.mem.memory {
		seg, found := s.segments.Find(i)
		if !found || !s.mem.copied() && s.mem.reach(i) != nil {
			// The server has no unused segment, or does not answer.
			continue
		}
		p := s.mem.space.Table(i)
		p.Offset += seg.N
		if s.mem.writeCopies(p, []byte{byte(c) + 1}) != nil {
			// The memory server may have written the class. A later call gives the segment to a
			// class again.
			continue
		}
		s.segments.Set(seg, int(c))
		first = append(first, s.segment(i, seg.N, c))
	}
	for j := range s.mem.space.PerSegment(c) {
		for _, h := range first {
			s.release(layout.Location{Handle: h + layout.Handle(j), Version: 1})
		}
	}
	return len(first) > 0
}

// growFor gives a class segments until it has n free nodes on the server (or on all servers
// together, if server is `anywhere`), no segment there is unused, or grow fails.
func (s *pool) growFor(c layout.Class, server, n int) {
	for s.segments.Unused(server) > 0 && s.grow(c) && s.nodes.free[c].Len(server) < n {
	}
}

// rest makes segments rest whose nodes are all free: they lose their class when every client has
// confirmed a new epoch. It spares segments of class `asks` and, on each server, the segment for
// tombstones.
func (s *pool) rest(asks layout.Class) {
	if !s.mem.space.Shared || s.segments.Resting() > 0 || s.mem.rt.Now() < s.segments.restAt {
		return
	}
	s.segments.restAt = s.mem.rt.Now().Add(restPause)
	at := func(l layout.Location) (x slab.Segment) {
		x.Server, x.N, _ = s.mem.space.Segment(l.Handle)
		return x
	}
	for c := range s.nodes.free {
		q := &s.nodes.free[c]
		if layout.Class(c) == asks || q.Len(anywhere) < s.mem.space.PerSegment(layout.Class(c)) {
			continue
		}
		n := make(map[slab.Segment]int)
		q.All(func(l layout.Location) { n[at(l)]++ })
		whole := func(x slab.Segment) bool { return x.N > 0 && n[x] == s.mem.space.PerSegment(layout.Class(c)) }
		q.Remove(func(l layout.Location) bool { return whole(at(l)) })
		for i := range s.mem.memory {
			for k := range s.segments.Row(i) {
				if x := (slab.Segment{Server: i, N: k}); whole(x) && s.segments.Has(x, c) {
					s.segments.Rest(x, s.epoch)
				}
			}
		}
	}
}

// press is called when there was no free node of a class for client `to`. From then on, the answers
// to all clients ask them to return unused nodes and to report their appends, and a client that works
// sends at least two requests in a lease. press returns true if nodes may still become free: another client was
// perhaps not asked yet; or the nodes of a client that has sent no request since the class ran out
// become free when the client's lease ends; or the next search may find segments that can lose
// their class.
func (s *pool) press(c layout.Class, to uint32) bool {
	now := s.mem.rt.Now()
	if s.segments.pressed[c] == 0 {
		s.segments.pressed[c] = now
	}
	since := s.segments.pressed[c]
	s.segments.scarceUntil = now.Add(s.mem.cfg.Lease)
	if s.mem.space.Shared && now < s.segments.restAt && s.segments.Resting() == 0 && now > s.segments.restAt.Add(-restPause) {
		return true // the next search, at restAt, may find segments that can lose their class
	}
	asked := now > since.Add(s.mem.cfg.Lease/2+2*restPause)
	for _, n := range s.nodes.held.all() {
		if n.client == to {
			continue
		}
		if cl := s.clients[n.client]; !asked || cl == nil || cl.heard <= since {
			return true
		}
	}
	return false
}

// fewest is how many nodes a client may get at once even if a segment has fewer. The class then
// takes as many unused segments as are needed. With fewer nodes at once, a client of a small store
// would have to call the metadata server for every node: the only free node would always be the one
// that the client has just superseded.
const fewest = 4

// share returns how many nodes a client gets when it asks for n. In a shared space it gets at most
// as many as a segment has, or `fewest` if a segment has fewer. It gets fewer if few nodes are
// free, because other clients cannot use the nodes that it holds, or has linked and not reported:
// with a quarter of an equal share, a client can have some of each of two servers, and as many on
// the way back.
func (s *pool) share(c layout.Class, n int) int {
	left := s.nodes.free[c].Len(anywhere)
	if s.mem.space.Shared {
		left += s.segments.Unused(anywhere) * s.mem.space.PerSegment(c)
		n = min(n, max(fewest, s.mem.space.PerSegment(c)))
	}
	return max(1, min(n, left/(4*max(1, len(s.clients)))))
}

// reserved returns how many free nodes of a class are reserved for tombstones. A request for other
// nodes must leave them.
func (s *pool) reserved(c layout.Class, tombstone bool) int {
	if !s.mem.space.Shared || c != 0 || tombstone {
		return 0
	}
	return min(tombstones, s.mem.space.PerSegment(0))
}
