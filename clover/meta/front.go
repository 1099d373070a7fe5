package meta

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// front is the server's end of the connections to clients: a shared receive queue for requests, and
// a queue pair for each connection.
type front struct {
	pd  verbs.PD
	srq verbs.SRQ
	mr  verbs.MR // memory for requests
	// threads take the requests. Each thread takes those of its own connections.
	threads []*thread

	mu    sync.Mutex // guards the fields below; the threads that accept connections use them, too
	conns map[wire.QPN]*conn
	made  int // how many connections were made
	// leaving are connections that have ended, while some of their completions may still be in the
	// queue.
	leaving []*conn
	// accepting is how many threads accept connections. ended: the listener is closed.
	accepting int
	ended     bool
}

// conn is one connection of a client. If the client connects again, the new connection has another
// conn.
type conn struct {
	qp verbs.QP
	mr verbs.MR // memory for answers, one area for each slot
	t  *thread  // the thread that takes the requests
	// queued is how many requests wait for the main thread, including the one that it may be
	// executing.
	queued atomic.Int32
}

// sendID is a bit in the IDs of work requests that send answers. Work requests for receives do not
// have it.
const sendID = 1 << 63

// maxAnswers is how many answers to a client may be in flight. A client that has received an answer
// may send its next request before the server has seen the acknowledgement of the answer.
const maxAnswers = 16

func (f *front) open(ctx verbs.Context, threads int) (err error) {
	f.conns = make(map[wire.QPN]*conn)
	if f.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	for range threads {
		cq, err := ctx.CreateCQ(recvs + maxAnswers*maxConns)
		if err != nil {
			return err
		}
		f.threads = append(f.threads, &thread{cq: cq})
	}
	if f.srq, err = f.pd.CreateSRQ(verbs.SRQInit{MaxWR: recvs, MaxSGE: 1}); err != nil {
		return err
	}
	if f.mr, err = f.pd.RegMR(nil, recvs*rpc.MaxRequest, verbs.LocalWrite); err != nil {
		return err
	}
	for i := range recvs {
		if err := f.post(i); err != nil {
			return err
		}
	}
	return nil
}

// post posts receive i to the shared receive queue.
func (f *front) post(i int) error {
	return f.srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{f.mr.SGE(i*rpc.MaxRequest, rpc.MaxRequest)}})
}

// close destroys what open and connect have made.
func (f *front) close() error {
	var errs []error
	note := func(err error) {
		if !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, c := range append(f.all(), f.leaving...) {
		note(c.close())
	}
	if f.mr != nil {
		note(f.mr.Dereg())
	}
	if f.srq != nil {
		note(f.srq.Destroy())
	}
	for _, t := range f.threads {
		note(t.cq.Destroy())
	}
	if f.pd != nil {
		note(f.pd.Dealloc())
	}
	f.conns, f.leaving, f.mr, f.srq, f.threads, f.pd = nil, nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

func (c *conn) close() error { return errors.Join(c.qp.Destroy(), c.mr.Dereg()) }

// find returns the connection with queue pair number qpn, or nil.
func (f *front) find(qpn wire.QPN) *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns[qpn]
}

// all returns the connections in the order of their QPNs.
func (f *front) all() (list []*conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, qpn := range slices.Sorted(maps.Keys(f.conns)) {
		list = append(list, f.conns[qpn])
	}
	return list
}

// over reports whether the listener is closed.
func (f *front) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// acceptors is how many threads accept connections. A client that answers slowly or has given up
// blocks only one of them.
const acceptors = 32

func (s *Server) startAcceptors() {
	s.front.accepting = acceptors
	for range acceptors {
		s.rt.Go("accept", s.accept)
	}
}

// accept makes connections until the listener is closed.
func (s *Server) accept() {
	f := &s.front
	for {
		req, err := s.listener.Accept(clock.Never)
		if errors.Is(err, verbs.ErrTimeout) {
			continue
		}
		if err != nil {
			break
		}
		_ = s.connect(req) // an error concerns only the client, whose request connect has rejected
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.accepting--
}

// stopAcceptors closes the listener and waits until all threads that accept connections have ended.
func (s *Server) stopAcceptors() {
	_ = s.listener.Close() // Close has usually closed it already
	for {
		s.front.mu.Lock()
		n := s.front.accepting
		s.front.mu.Unlock()
		if n == 0 {
			return
		}
		s.rt.Sleep(acceptPause)
	}
}

// connect accepts or rejects one request for a connection. It enters the queue pair into the table
// before it accepts, because the client's first request may arrive immediately after that.
func (s *Server) connect(req rdmacm.Request) error {
	f := &s.front
	mr, err := f.pd.RegMR(nil, rpc.AnswerSlots*rpc.MaxAnswer, verbs.LocalWrite)
	if err != nil {
		return errors.Join(err, req.Reject(err.Error()))
	}
	t := f.next()
	qp, err := f.pd.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: t.cq, RecvCQ: t.cq, SRQ: f.srq, MaxSendWR: maxAnswers, MaxSGE: 1,
	})
	if err != nil {
		return errors.Join(err, mr.Dereg(), req.Reject(err.Error()))
	}
	f.mu.Lock()
	full := len(f.conns)+len(f.leaving) >= maxConns
	if !full {
		f.conns[qp.QPN()] = &conn{qp: qp, mr: mr, t: t}
	}
	f.mu.Unlock()
	if full {
		return errors.Join(qp.Destroy(), mr.Dereg(), req.Reject("too many connections"))
	}
	if err := req.Accept(qp, s.cfg.Params, nil, s.rt.Now().Add(acceptTimeout)); err != nil {
		s.hangUp(qp.QPN())
		return err
	}
	return nil
}

// next returns the thread for a new connection; the threads take turns.
func (f *front) next() *thread {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	return f.threads[f.made%len(f.threads)]
}

// take handles one completion. If it is of a request of n bytes in receive i, take calls request.
// When request returns true, take posts the receive again.
func (s *Server) take(wc *verbs.WC, request func(c *conn, i, n int) bool) {
	c := s.front.find(wc.QPN)
	if wc.ID&sendID != 0 {
		if wc.Status != verbs.Success {
			s.hangUp(wc.QPN)
		}
		return
	}
	if wc.Status != verbs.Success || c == nil || request(c, int(wc.ID), int(wc.ByteLen)) {
		// if this fails, the server's NIC is gone, and the next poll returns the error
		_ = s.front.post(int(wc.ID))
	}
	if wc.Status != verbs.Success {
		s.hangUp(wc.QPN)
	}
}

// dropDead ends the connections whose queue pairs are in ERROR. Their clients have gone without
// OpBye.
func (s *Server) dropDead() {
	for _, c := range s.front.all() {
		if a, err := c.qp.Query(); err != nil || a.State == verbs.StateError {
			s.hangUp(c.qp.QPN())
		}
	}
}

// answer sends the answer to a request.
func (s *Server) answer(c *conn, r *rpc.Request, a *rpc.Answer) {
	s.stamp(a)
	s.send(c, r, a)
}

// stamp sets the fields that every answer has.
func (s *Server) stamp(a *rpc.Answer) {
	a.Epoch, a.Scarce = s.epoch, s.rt.Now() < s.segments.scarceUntil
}

// send writes an answer into the client's buffer, by a WRITE with immediate.
func (s *Server) send(c *conn, r *rpc.Request, a *rpc.Answer) {
	slot := int(a.Seq & 1)
	b := a.AppendTo(nil)
	if err := c.mr.WriteAt(b, slot*rpc.MaxAnswer); err != nil {
		return
	}
	err := c.qp.PostSend(verbs.SendWR{
		ID: sendID | uint64(slot), Op: verbs.OpWriteImm, Flags: verbs.Signalled, Imm: a.Seq,
		SGL: []verbs.SGE{c.mr.SGE(slot*rpc.MaxAnswer, len(b))}, RemoteAddr: r.BufAddr + uint64(slot*rpc.MaxAnswer), RKey: r.BufRKey,
	})
	if err != nil {
		s.hangUp(c.qp.QPN()) // so that the client learns at once that no answer will come
	}
}
