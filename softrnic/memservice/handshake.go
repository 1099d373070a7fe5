package memservice

import (
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// maxHandshakes bounds the threads that wait for clients to report that they are ready. When so
// many wait, Serve waits itself.
const maxHandshakes = 64

// handshakes counts the connections whose clients have not yet reported that they are ready. A
// thread waits for each, so that a client that dies during connection set-up delays no other
// connect or fence. All other work is done by the thread of Serve.
type handshakes struct {
	mu     sync.Mutex // not held while a thread waits
	open   int
	failed []uint64 // connections to be ended
}

// begin takes a place; false: all are taken.
func (h *handshakes) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == maxHandshakes {
		return false
	}
	h.open++
	return true
}

// end gives the place back and notes a failure.
func (h *handshakes) end(id uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	if err != nil {
		h.failed = append(h.failed, id)
	}
}

// take returns the connections that have failed since the last call.
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
func (s *Server) accept(in rdmacm.Request, c *Conn, a answer) error {
	return in.Accept(c.QP, rdmacm.Params{}, a.encode(), s.rt.Now().Add(acceptPatience))
}
