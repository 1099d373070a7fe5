package rpc

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Thread takes the requests of some of the connections.
type Thread struct {
	s   *Server
	cq  verbs.CQ
	wcs [64]verbs.WC
}

// Request is a request that has arrived: n bytes in a receive.
type Request struct {
	*Conn
	recv, n int
}

func (r Request) Len() int { return r.n }

// Poll takes completions, and calls handle for each request among them. When handle returns true,
// the request is done; otherwise the caller calls Done later. n is the number of completions. An
// error means that the server's NIC is gone, or that the completion queue has overflowed.
func (t *Thread) Poll(handle func(Request) bool) (n int, err error) {
	left := t.left()
	if n, err = t.cq.Poll(t.wcs[:]); n > 0 {
		now := int64(t.s.rt.Now())
		for i := range n {
			t.take(&t.wcs[i], now, handle)
		}
	}
	if err == nil && n < len(t.wcs) {
		t.bury(left)
	}
	return n, err
}

// Wait waits for a completion. It returns nil at the deadline, too.
func (t *Thread) Wait(deadline clock.Time) error {
	if err := t.cq.Wait(deadline); !errors.Is(err, verbs.ErrTimeout) {
		return err
	}
	return nil
}

func (t *Thread) take(wc *verbs.WC, now int64, handle func(Request) bool) {
	s := t.s
	c := s.find(wc.QPN)
	if wc.ID&sendID != 0 {
		if wc.Status != verbs.Success {
			s.hangUp(wc.QPN)
		}
		return
	}
	if c != nil {
		c.heard.Store(now)
	}
	r := Request{c, int(wc.ID), int(wc.ByteLen)}
	if wc.Status != verbs.Success || c == nil || handle(r) {
		s.Done(r)
	}
	if wc.Status != verbs.Success {
		s.hangUp(wc.QPN)
	}
}

// find returns the connection with queue pair number qpn, or nil.
func (s *Server) find(qpn wire.QPN) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[qpn]
}

// left returns those connections of the thread that have ended and hold no request. They make no
// new completions.
func (t *Thread) left() (list []*Conn) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for _, c := range t.s.leaving {
		if c.t == t && c.held.Load() == 0 {
			list = append(list, c)
		}
	}
	return list
}

// bury destroys the connections in list, a result of Thread.left. Between left and bury, Poll
// empties the completion queue, so it has no completion of these connections any more.
func (t *Thread) bury(list []*Conn) {
	if len(list) == 0 {
		return
	}
	t.s.mu.Lock()
	t.s.leaving = slices.DeleteFunc(t.s.leaving, func(c *Conn) bool { return slices.Contains(list, c) })
	t.s.mu.Unlock()
	for _, c := range list {
		_ = c.close() // an object that cannot be destroyed stays
	}
}

// Read copies the request into b, which has at least r.Len bytes.
func (s *Server) Read(r Request, b []byte) error {
	return s.mr.ReadAt(b[:r.n], r.recv*s.cfg.MaxRequest)
}

// Done gives the receive of a request back. It fails only when the server's NIC is gone, which the
// next Poll reports.
func (s *Server) Done(r Request) { _ = s.post(r.recv) }

// Hold counts a request of the connection that waits for another thread; Release ends that. As long
// as a connection holds requests, Held is true, and the connection is not destroyed.
func (c *Conn) Hold() { c.held.Add(1) }

// Release is called once for each Hold, after Done.
func (c *Conn) Release() { c.held.Add(-1) }

// Held reports whether requests of the connection wait for another thread.
func (c *Conn) Held() bool { return c.held.Load() > 0 }

// Buffer is a client's memory for answers: Slots areas of MaxAnswer bytes.
type Buffer struct {
	Addr uint64
	RKey uint32
}

// Answer writes an answer into a slot of the client's buffer, by a WRITE with immediate data.
// Before the call, the previous answer in this slot must have reached the client, or the client
// must have ended the connection. If the answer cannot be sent, Answer ends the connection, so that
// the client learns at once that no answer will come.
func (s *Server) Answer(c *Conn, to Buffer, slot int, imm uint32, b []byte) {
	at := slot * s.cfg.MaxAnswer
	wr := verbs.SendWR{
		ID: sendID | uint64(slot), Op: verbs.OpWriteImm, Flags: verbs.Signalled, Imm: imm,
		SGL: []verbs.SGE{c.mr.SGE(at, len(b))}, RemoteAddr: to.Addr + uint64(at), RKey: to.RKey,
	}
	// An answer that is too long would overwrite the next slot.
	if len(b) > s.cfg.MaxAnswer || c.mr.WriteAt(b, at) != nil || c.qp.PostSend(wr) != nil {
		s.hangUp(c.qp.QPN())
	}
}
