package memservice

import (
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// maxHandshakes is the largest number of threads that wait for clients to report that they are
// ready. Further connections wait for one of these threads.
const maxHandshakes = 64

// handshake is a connection that is to be accepted: in is the client's request, a the answer.
type handshake struct {
	in   rdmacm.Request
	conn *Conn
	a    answer
}

// handshakes has the connections without a Work whose clients have not yet reported that they are
// ready. Separate threads wait for these clients, and the thread of Serve does all other work. So
// one of these clients that dies during connection set-up delays no fence. It delays other
// connections only if there are maxHandshakes such clients.
type handshakes struct {
	mu      sync.Mutex // not held while a thread waits
	open    int        // number of threads that wait for clients
	waiting []handshake
	failed  []uint64 // connections that must be ended
}

// begin reports whether the caller may start a thread for a handshake. Otherwise a running thread
// takes this handshake when another one has ended.
func (h *handshakes) begin(one handshake) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == maxHandshakes {
		h.waiting = append(h.waiting, one)
		return false
	}
	h.open++
	return true
}

// end is called by a thread whose handshake of connection id has ended; an err means that it
// failed. It returns the next handshake for this thread. If there is none (more is false), the
// thread must end.
func (h *handshakes) end(id uint64, err error) (next handshake, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed = append(h.failed, id)
	}
	if len(h.waiting) == 0 {
		h.open--
		return next, false
	}
	next, h.waiting = h.waiting[0], h.waiting[1:]
	return next, true
}

// shake is a thread's work: it executes handshake h, and then further ones that wait for a thread.
func (s *Server) shake(h handshake) {
	for more := true; more; {
		h, more = s.shaking.end(h.conn.id, s.accept(h))
	}
}

// take returns the connections whose handshakes have failed since the last call.
func (h *handshakes) take() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.failed
	h.failed = nil
	return ids
}

// sweep ends the connections whose handshakes have failed.
func (s *Server) sweep() {
	for _, id := range s.shaking.take() {
		s.endID(id)
	}
}

// accept sends the answer and waits until the client is ready.
func (s *Server) accept(h handshake) error {
	var p rdmacm.Params
	if h.conn.work != nil {
		p = h.conn.work.Params()
	}
	return h.in.Accept(h.conn.QP, p, h.a.encode(), s.rt.Now().Add(acceptPatience))
}
