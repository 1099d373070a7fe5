package meta

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A connection ends in two steps. Requests of it may wait in the completion queue, each with a receive of the shared queue;
// to destroy its queue pair would take them away, and nobody could give the receives back. After a few hundred clients that
// broke off there would be none left, and every request would be asked to come again, for ever.

// hangUp ends a connection that has failed: the queue pair flushes what it has. Its client's lease runs on: it may connect again.
func (s *Server) hangUp(qpn wire.QPN) {
	f := &s.front
	f.mu.Lock()
	c := f.conns[qpn]
	delete(f.conns, qpn)
	f.mu.Unlock()
	if c == nil {
		return
	}
	_ = c.qp.ToError() // in ERROR already, or dead with its NIC
	f.mu.Lock()
	f.leaving = append(f.leaving, c)
	f.mu.Unlock()
}

// left are the connections that make no new completions.
func (f *front) left() []*conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.leaving)
}

// bury destroys connections after the completion queue has been empty.
func (f *front) bury(list []*conn) {
	if len(list) == 0 {
		return
	}
	f.mu.Lock()
	f.leaving = slices.DeleteFunc(f.leaving, func(c *conn) bool { return slices.Contains(list, c) })
	f.mu.Unlock()
	for _, c := range list {
		_ = c.close() // nothing can be done about an object that will not go
	}
}
