package rpc

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Config describes a Server.
type Config struct {
	// Context is the verbs context of the server. The caller closes it after Close.
	Context verbs.Context
	Params  rdmacm.Params
	// Threads is how many threads take requests, at least 1. New connections go to them in turn.
	Threads int
	// MaxRequest and MaxAnswer are the lengths of the longest request and answer, in bytes.
	MaxRequest, MaxAnswer int
	// Requests is how many requests of all clients may wait. Conns is the largest number of
	// connections. If another client connects when there are so many, the server ends the
	// connection that has been silent for longest, if it was silent for at least a second. This
	// makes room, because a client that crashes does not end its connection.
	Requests, Conns int
	// Slots is how many answers to a client may be written at a time: see Server.Answer.
	Slots int
}

// Server is the server's end of the calls of many clients.
type Server struct {
	cfg Config
	rt  verbs.Runtime
	pd  verbs.PD
	srq verbs.SRQ
	mr  verbs.MR // memory for requests
	// threads take the requests. Each thread takes those of its own connections.
	threads []*Thread

	mu       sync.Mutex // guards the fields below; the threads that accept connections use them, too
	listener rdmacm.Listener
	conns    map[wire.QPN]*Conn
	made     int // how many connections were made
	// leaving are connections that have ended, while some of their completions may still be in the
	// completion queue of their thread.
	leaving []*Conn
	// accepting is how many threads accept connections. ended is true if the listener is closed.
	accepting int
	ended     bool
	// quietAt is a time before which no connection has been silent for the time silence.
	quietAt clock.Time
}

// Conn is one connection of a client. If the client connects again, the new connection has another
// Conn.
type Conn struct {
	qp verbs.QP
	mr verbs.MR // memory for answers, one area for each slot
	t  *Thread  // the thread that takes the requests
	// held is how many requests of the connection wait for another thread: see Hold.
	held atomic.Int32
	// heard is when the last request has come, or when the connection was made.
	heard atomic.Int64
}

const (
	// sendID is a bit in the IDs of work requests that send answers. Work requests for receives do
	// not have it.
	sendID = 1 << 63
	// maxAnswers is how many answers to a client may be in flight. A client that has received an
	// answer may send its next request before the server has seen the acknowledgement of the
	// answer.
	maxAnswers = 16
	// acceptors is how many threads accept connections. A client that answers slowly, or not at
	// all, blocks only one of them, for acceptTimeout at most. stopPause is the period at which
	// Stop polls.
	acceptors     = 32
	acceptTimeout = time.Second
	stopPause     = time.Millisecond
	// silence is how long a connection must have been silent before it ends to make room for
	// another.
	silence = time.Second
)

// New makes a server without connections, and its receives. After an error there is nothing to
// close.
func New(cfg Config) (_ *Server, err error) {
	s := &Server{cfg: cfg, rt: cfg.Context.Runtime(), conns: make(map[wire.QPN]*Conn)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.pd, err = cfg.Context.AllocPD(); err != nil {
		return nil, err
	}
	for range cfg.Threads {
		cq, err := cfg.Context.CreateCQ(cfg.Requests + maxAnswers*cfg.Conns)
		if err != nil {
			return nil, err
		}
		s.threads = append(s.threads, &Thread{s: s, cq: cq})
	}
	if s.srq, err = s.pd.CreateSRQ(verbs.SRQInit{MaxWR: cfg.Requests, MaxSGE: 1}); err != nil {
		return nil, err
	}
	if s.mr, err = s.pd.RegMR(nil, cfg.Requests*cfg.MaxRequest, verbs.LocalWrite); err != nil {
		return nil, err
	}
	for i := range cfg.Requests {
		if err := s.post(i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Threads returns the threads. The caller polls each of them.
func (s *Server) Threads() []*Thread { return s.threads }

func (s *Server) post(i int) error {
	return s.srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{s.mr.SGE(i*s.cfg.MaxRequest, s.cfg.MaxRequest)}})
}

// Close destroys the objects that New and Connect have made. The caller first calls Stop, and stops
// polling.
func (s *Server) Close() error {
	var errs []error
	note := func(err error) {
		if !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, c := range append(s.all(), s.leaving...) {
		note(c.close())
	}
	if s.mr != nil {
		note(s.mr.Dereg())
	}
	if s.srq != nil {
		note(s.srq.Destroy())
	}
	for _, t := range s.threads {
		note(t.cq.Destroy())
	}
	if s.pd != nil {
		note(s.pd.Dealloc())
	}
	s.conns, s.leaving, s.mr, s.srq, s.threads, s.pd = nil, nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

func (c *Conn) close() error { return errors.Join(c.qp.Destroy(), c.mr.Dereg()) }

// all returns the connections in the order of their QPNs.
func (s *Server) all() (list []*Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, qpn := range slices.Sorted(maps.Keys(s.conns)) {
		list = append(list, s.conns[qpn])
	}
	return list
}

// Accept starts threads that accept connections until Stop is called or the listener is closed.
func (s *Server) Accept(l rdmacm.Listener) {
	s.listener, s.accepting = l, acceptors
	for range acceptors {
		s.rt.Go("accept", s.accept)
	}
}

func (s *Server) accept() {
	for {
		req, err := s.listener.Accept(clock.Never)
		if errors.Is(err, verbs.ErrTimeout) {
			continue
		}
		if err != nil {
			break
		}
		_ = s.Connect(req) // an error concerns only the client, whose request Connect has rejected
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.accepting--
}

// Ended reports whether the listener is closed.
func (s *Server) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Stop closes the listener and waits until all threads that accept connections have ended.
func (s *Server) Stop() {
	_ = s.listener.Close() // it is usually closed already
	for {
		s.mu.Lock()
		n := s.accepting
		s.mu.Unlock()
		if n == 0 {
			return
		}
		s.rt.Sleep(stopPause)
	}
}

// Connect accepts or rejects one request for a connection. It enters the connection into conns
// before it accepts, because the client's first request may arrive immediately after that.
func (s *Server) Connect(req rdmacm.Request) error {
	mr, err := s.pd.RegMR(nil, s.cfg.Slots*s.cfg.MaxAnswer, verbs.LocalWrite)
	if err != nil {
		return errors.Join(err, req.Reject(err.Error()))
	}
	t := s.next()
	qp, err := s.pd.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: t.cq, RecvCQ: t.cq, SRQ: s.srq, MaxSendWR: maxAnswers, MaxSGE: 1,
	})
	if err != nil {
		return errors.Join(err, mr.Dereg(), req.Reject(err.Error()))
	}
	s.mu.Lock()
	full, leaving := len(s.conns)+len(s.leaving) >= s.cfg.Conns, len(s.leaving)
	if !full {
		c := &Conn{qp: qp, mr: mr, t: t}
		c.heard.Store(int64(s.rt.Now()))
		s.conns[qp.QPN()] = c
	}
	s.mu.Unlock()
	if full {
		if leaving == 0 { // if one is leaving, its end makes room
			s.makeRoom()
		}
		return errors.Join(qp.Destroy(), mr.Dereg(), req.Reject("too many connections"))
	}
	if err := req.Accept(qp, s.cfg.Params, nil, s.rt.Now().Add(acceptTimeout)); err != nil {
		s.hangUp(qp.QPN())
		return err
	}
	return nil
}

// makeRoom ends the connection that has been silent for longest, if it has been silent for at least
// the time silence. The client that was refused finds room when it tries again.
func (s *Server) makeRoom() {
	now := s.rt.Now()
	s.mu.Lock()
	if now < s.quietAt {
		s.mu.Unlock()
		return
	}
	oldest, found, earliest := wire.QPN(0), clock.Never, clock.Never
	for qpn, c := range s.conns {
		heard := clock.Time(c.heard.Load())
		earliest = clock.Min(earliest, heard)
		if !c.Held() && (heard < found || heard == found && qpn < oldest) {
			oldest, found = qpn, heard
		}
	}
	s.quietAt = earliest.Add(silence)
	s.mu.Unlock()
	if found != clock.Never && now >= found.Add(silence) {
		s.hangUp(oldest)
	}
}

// next returns the thread for a new connection; the threads take turns.
func (s *Server) next() *Thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return s.threads[s.made%len(s.threads)]
}

// DropDead ends the connections whose queue pairs are in ERROR: their clients have gone and have
// not ended them. No completion reports this, because the receives are in a queue that all
// connections share. So the caller calls DropDead from time to time.
func (s *Server) DropDead() {
	for _, c := range s.all() {
		if a, err := c.qp.Query(); err != nil || a.State == verbs.StateError {
			s.hangUp(c.qp.QPN())
		}
	}
}

// hangUp ends a failed connection: its queue pair flushes its work requests. The client may connect
// again.
func (s *Server) hangUp(qpn wire.QPN) {
	s.mu.Lock()
	c := s.conns[qpn]
	delete(s.conns, qpn)
	s.mu.Unlock()
	if c == nil {
		return
	}
	_ = c.qp.ToError() // fails if the queue pair is in ERROR already, or its NIC is closed
	s.mu.Lock()
	s.leaving = append(s.leaving, c)
	s.mu.Unlock()
}
