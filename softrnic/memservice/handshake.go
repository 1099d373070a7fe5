package memservice

import (
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// maxHandshakes is the largest number of threads that wait for clients to report that they are
// ready. If maxHandshakes threads wait, Serve itself waits for the next client.
const maxHandshakes = 64

// handshakes counts the connections whose clients have not yet reported that they are ready. For
// each of them a thread waits. So a client that dies while it connects delays no other connect or
// fence. The thread of Serve does all other work.
type handshakes struct {
	mu     sync.Mutex // not held while a thread waits
	open   int
	failed []uint64 // connections that must be ended
}

// begin reserves a handshake. It returns false if maxHandshakes are in use.
func (h *handshakes) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == maxHandshakes {
		return false
	}
	h.open++
	return true
}

// end frees the handshake and records a failure.
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

// accept sends the answer to a connect and waits until the client is ready.
func (s *Server) accept(in rdmacm.Request, c *Conn, a answer) error {
	return in.Accept(c.QP, rdmacm.Params{}, a.encode(), s.rt.Now().Add(acceptPatience))
}
