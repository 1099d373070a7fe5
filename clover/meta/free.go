package meta

import "github.com/rdmalab/rdmalab/clover/layout"

// fifo is a queue of free nodes. The node that was retired first is reused first, so that each node
// rests as long as possible.
type fifo struct {
	list []layout.Location
	head int
}

func (q *fifo) len() int { return len(q.list) - q.head }

func (q *fifo) push(l layout.Location) {
	if q.head > 0 && q.head >= len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list = q.list[:copy(q.list, q.list[q.head:])]
		q.head = 0
	}
	q.list = append(q.list, l)
}

func (q *fifo) pop() (layout.Location, bool) {
	if q.len() == 0 {
		return layout.Location{}, false
	}
	l := q.list[q.head]
	q.head++
	return l, true
}

// remove removes the locations for which match returns true.
func (q *fifo) remove(match func(layout.Location) bool) {
	kept := q.list[:0]
	for _, l := range q.list[q.head:] {
		if !match(l) {
			kept = append(kept, l)
		}
	}
	q.list, q.head = kept, 0
}

// anywhere, in place of a server's number, stands for any memory server.
const anywhere = -1

// free holds the free nodes of one class, by memory server. A client asks for nodes of the server
// that has the chain to which it appends.
type free struct {
	on   []fifo
	turn int // the server from which pop(anywhere) takes the next node
	// credit is what each server has collected: see weighed.
	credit []int64
	// front is the highest version of the nodes in frequent use: see pace.
	front layout.Version
}

// maxLag is by how much pace may raise a node's version. A node that is further behind front has
// begun again with version 1 in an epoch.
const maxLag = 64

// pace returns the version for the next use of a superseded node whose next version would be v. If
// the node is behind front, because its key is seldom written, pace returns front. The reason: a
// switch steers a request only to a node of the same or a higher version, so later nodes of a key
// should not have lower versions.
func (f *free) pace(v layout.Version) layout.Version {
	if lag := int(f.front) - int(v); lag <= 0 || lag > maxLag {
		f.front = v
	}
	return f.front
}

// len returns the number of nodes on a server, or on all servers (anywhere).
func (f *free) len(server int) (n int) {
	for i := range f.on {
		if server == anywhere || server == i {
			n += f.on[i].len()
		}
	}
	return n
}

// pop takes a node of a server. For anywhere it takes nodes of all servers in turn, so that new
// keys spread over the servers.
func (f *free) pop(server int) (l layout.Location, ok bool) {
	if server != anywhere {
		if server < len(f.on) {
			l, ok = f.on[server].pop()
		}
		return l, ok
	}
	for range f.on {
		i := f.turn
		f.turn = (i + 1) % len(f.on)
		if l, ok = f.on[i].pop(); ok {
			break
		}
	}
	return l, ok
}

// push adds a node of a server.
func (f *free) push(server int, l layout.Location) {
	for len(f.on) <= server {
		f.on = append(f.on, fifo{})
	}
	f.on[server].push(l)
}

// all calls visit for every node.
func (f *free) all(visit func(layout.Location)) {
	for i := range f.on {
		for _, l := range f.on[i].list[f.on[i].head:] {
			visit(l)
		}
	}
}

// remove removes the nodes for which match returns true.
func (f *free) remove(match func(layout.Location) bool) {
	for i := range f.on {
		f.on[i].remove(match)
	}
}

// release puts a node into the free list of its class and its server.
func (s *pool) release(l layout.Location) {
	if p, ok := s.space.Place(l.Handle); ok {
		s.nodes.free[s.classOf(l.Handle)].push(p.Server, l)
	}
}

// give gives up to n free nodes of a class to client to, and appends them to out. It takes them
// from one server or from anywhere, and leaves at least leave nodes of the class.
func (s *pool) give(to uint32, c layout.Class, server, n, leave int, out []layout.Location) []layout.Location {
	f := &s.nodes.free[c]
	for range n {
		if f.len(anywhere) <= leave {
			break
		}
		l, ok := layout.Location{}, false
		if server == anywhere && s.balance.weights != nil {
			l, ok = f.weighed(s.balance.weights)
		}
		if !ok {
			l, ok = f.pop(server)
		}
		if !ok {
			break
		}
		s.nodes.held[l.Handle] = held{client: to, version: l.Version}
		out = append(out, l)
	}
	return out
}
