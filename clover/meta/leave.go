package meta

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A connection ends in two steps, hangUp and bury. Some of its requests may still be in the
// completion queue, each in a receive of the shared receive queue. Destroying the queue pair at
// once would remove these completions, and their receives could not be posted again. After a few
// hundred broken clients the shared receive queue would be empty, and every request would draw RNR
// NAKs for ever.

// hangUp ends a failed connection: its queue pair flushes its work requests. The client's lease
// goes on, and the client may connect again.
func (s *Server) hangUp(qpn wire.QPN) {
	f := &s.front
	f.mu.Lock()
	c := f.conns[qpn]
	delete(f.conns, qpn)
	f.mu.Unlock()
	if c == nil {
		return
	}
	_ = c.qp.ToError() // fails if the queue pair is in ERROR already, or its NIC is closed
	f.mu.Lock()
	f.leaving = append(f.leaving, c)
	f.mu.Unlock()
}

// left returns those connections of thread t that have ended and have no request waiting for the
// main thread. They make no new completions.
func (f *front) left(t *thread) (list []*conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.leaving {
		if c.t == t && c.queued.Load() == 0 {
			list = append(list, c)
		}
	}
	return list
}

// bury destroys connections that left has returned. Between the two calls the caller has found the
// completion queue empty.
func (f *front) bury(list []*conn) {
	if len(list) == 0 {
		return
	}
	f.mu.Lock()
	f.leaving = slices.DeleteFunc(f.leaving, func(c *conn) bool { return slices.Contains(list, c) })
	f.mu.Unlock()
	for _, c := range list {
		_ = c.close() // an object that cannot be destroyed stays
	}
}
