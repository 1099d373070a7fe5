package perf

import (
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// maxHandshakes bounds the threads that wait for clients to say that they are ready. When so many wait, Serve waits itself.
const maxHandshakes = 64

// handshakes are the connections whose clients have not said yet that they are ready. Each has a thread, so that one client that dies
// in the middle keeps nobody from connecting, or from a fence. All else is up to the thread of Serve.
type handshakes struct {
	mu     sync.Mutex // never held over a wait
	open   int
	failed []uint64 // connections to be ended
}

// begin makes room for another one.
func (h *handshakes) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == maxHandshakes {
		return false
	}
	h.open++
	return true
}

// end notes what became of one.
func (h *handshakes) end(id uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	if err != nil {
		h.failed = append(h.failed, id)
	}
}

// take returns the connections that have failed since the last time.
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

// accept tells a client of its connection and waits until it is ready.
func (s *Server) accept(req rdmacm.Request, c *conn, w welcome) error {
	return req.Accept(c.qp, rdmacm.Params{}, w.encode(), s.rt.Now().Add(acceptPatience))
}
