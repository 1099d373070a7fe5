package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/store/slab"
)

// anywhere, in place of a server's number, stands for any memory server.
const anywhere = slab.Anywhere

// free holds the free nodes of one class, by memory server. A client asks for nodes of the server
// that has the chain to which it appends. Nodes for which no server is named come from all servers,
// in turn or by weight (balance.go), so that new keys spread over the servers.
type free struct {
	slab.Free[layout.Location]
	// front is the highest version of the nodes that are used again and again: see pace.
	front layout.Version
}

// pace returns the version for the next use of a superseded node whose next version would be v: see
// layout.Version.Pace.
func (f *free) pace(v layout.Version) (use layout.Version) {
	use, f.front = v.Pace(f.front)
	return use
}

// release puts a node into the free list of its class and its server.
func (s *pool) release(l layout.Location) {
	if p, ok := s.mem.space.Place(l.Handle); ok {
		c, _ := layout.ClassOf(p.Len)
		s.free(p.Server, c, l)
	}
}

func (s *pool) free(server int, c layout.Class, l layout.Location) {
	s.mem.stats.Freed++
	s.nodes.free[c].Push(server, l)
}

// give gives at most n free nodes of a class to client `to`, and appends them to `out`. It takes
// them from one server or from anywhere, and does not take the last `leave` nodes of the class.
func (s *pool) give(to uint32, c layout.Class, server, n, leave int, out []layout.Location) []layout.Location {
	f := &s.nodes.free[c]
	for range n {
		if f.Len(anywhere) <= leave {
			break
		}
		l, ok := layout.Location{}, false
		if server == anywhere && s.balance.weights != nil {
			l, ok = f.PopWeighed(s.balance.weights)
		}
		if !ok {
			l, ok = f.Pop(server)
		}
		if !ok {
			break
		}
		s.mem.stats.Granted++
		s.nodes.held.put(l.Handle, held{client: to, version: l.Version, given: s.clock})
		out = append(out, l)
	}
	return out
}
