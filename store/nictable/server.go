package nictable

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/rpc"
)

// Service is the name under which the server listens for changes, getService that for the programs
// that answer GETs.
const (
	Service    = "nictable"
	getService = "nictable-get"
)

// Operations of requests.
const (
	opHello = iota
	opPut
	opInsert
	opDelete
	opGet
)

// Layouts, with lengths in bytes. A request: operation 1, address 8 and R_Key 4 of the buffer for
// the answer, sequence number 4, key 8, value. An answer: status 1, then the fields Items, Value
// and Slots of the Shape, 4 each. The answer to a GET: status 1, length of the value 4, unused 8,
// value.
const (
	requestHead = 25
	answerLen   = 13
	maxConns    = 256
	acceptTime  = time.Second
	servePause  = 50 * time.Millisecond
)

// statuses are the errors that an answer can report. The index of an error is its status.
var statuses = []error{nil, kv.ErrNotFound, kv.ErrExists, kv.ErrFull, kv.ErrTooLarge, errServer}

var errServer = errors.New("the server has failed")

// Server is a process that changes the table of an Estate, for clients that send it requests, and
// for goroutines of the process itself, which serve memcached's protocol.
type Server struct {
	e      *Estate
	ctx    verbs.Context
	params rdmacm.Params
	rpc    *rpc.Server
	// Pace, if not nil, is called before each request is executed. A simulator waits there for as
	// long as the server's CPU would take.
	Pace   func()
	listen [2]rdmacm.Listener // the first for changes, the second for GETs
	buf    []byte             // buf has the request, and value the value that a GET returns
	value  []byte

	mu sync.Mutex // guards t; no thread waits while it holds mu
	t  *table
}

// NewServer makes a server of the estate's table, and listens. ctx is the context of the server's
// process. The caller closes ctx after Serve.
func NewServer(ctx verbs.Context, m rdmacm.Manager, params rdmacm.Params, e *Estate) (_ *Server, err error) {
	s := &Server{e: e, ctx: ctx, params: params, buf: make([]byte, requestHead+e.shape.Value)}
	if s.t, err = e.take(); err != nil {
		return nil, err
	}
	if s.rpc, err = rpc.New(rpc.Config{
		Context: ctx, Params: params, Threads: 1, MaxRequest: requestHead + e.shape.Value, MaxAnswer: answerLen + e.shape.Value,
		Requests: 2 * maxConns, Conns: maxConns, Slots: 1,
	}); err != nil {
		return nil, err
	}
	if s.listen[0], err = m.Listen(Service); err != nil {
		return nil, errors.Join(err, s.rpc.Close())
	}
	if s.listen[1], err = m.Listen(getService); err != nil {
		return nil, errors.Join(err, s.listen[0].Close(), s.rpc.Close())
	}
	s.rpc.Accept(s.listen[0])
	ctx.Runtime().Go("programs", s.accept)
	return s, nil
}

// accept makes programs for clients until the listener is closed.
func (s *Server) accept() {
	for {
		req, err := s.listen[1].Accept(clock.Never)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
		case err != nil:
			return
		default:
			// an error concerns that client alone
			_ = s.e.welcome(req, s.params, s.ctx.Runtime().Now().Add(acceptTime))
		}
	}
}

// Serve executes requests until Close is called, or the NIC is gone. Then it frees what NewServer
// has made. The Estate (the table, and the programs that answer GETs) stays.
func (s *Server) Serve() error {
	t, rt := s.rpc.Threads()[0], s.ctx.Runtime()
	var err error
	for next := rt.Now().Add(buryPause); err == nil && !s.rpc.Ended(); {
		n := 0
		if n, err = t.Poll(s.handle); n == 0 && err == nil {
			err = t.Wait(rt.Now().Add(servePause))
		}
		if now := rt.Now(); now >= next {
			s.rpc.DropDead()
			s.e.bury()
			next = now.Add(buryPause)
		}
	}
	s.Close()
	s.rpc.Stop()
	if errors.Is(err, verbs.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.rpc.Close())
}

// Close makes Serve return. Any thread may call it.
func (s *Server) Close() {
	for _, l := range s.listen {
		_ = l.Close() // it may be closed already
	}
}

func (s *Server) handle(r rpc.Request) bool {
	if r.Len() < requestHead || s.rpc.Read(r, s.buf) != nil {
		return true
	}
	b := s.buf[:r.Len()]
	to := rpc.Buffer{Addr: binary.BigEndian.Uint64(b[1:]), RKey: binary.BigEndian.Uint32(b[9:])}
	imm, key := binary.BigEndian.Uint32(b[13:]), binary.BigEndian.Uint64(b[17:])
	if s.Pace != nil {
		s.Pace()
	}
	var value []byte
	err := error(nil)
	if b[0] == opGet {
		value, err = s.get(key, s.value)
		s.value = value
	} else {
		err = s.execute(b[0], key, b[requestHead:])
	}
	status := slices.IndexFunc(statuses, func(e error) bool { return errors.Is(err, e) })
	if status < 0 {
		status = len(statuses) - 1
	}
	if b[0] == opGet {
		out := binary.BigEndian.AppendUint32([]byte{byte(status)}, uint32(len(value)))
		s.rpc.Answer(r.Conn, to, 0, imm, append(append(out, make([]byte, answerLen-len(out))...), value...))
		return true
	}
	s.rpc.Answer(r.Conn, to, 0, imm, s.e.shape.append([]byte{byte(status)}))
	return true
}

// get copies the value of a key to dst[:0] while it holds mu, because other threads overwrite the
// table's buffer when they read.
func (s *Server) get(key uint64, dst []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, _, err := s.t.get(key)
	return append(dst[:0], value...), err
}

func (s *Server) execute(op byte, key uint64, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case op == opHello:
		return nil
	case len(value) > s.e.shape.Value:
		return kv.ErrTooLarge
	case op == opPut:
		return s.t.put(key, value)
	case op == opInsert:
		return s.t.insert(key, value)
	case op == opDelete:
		return s.t.delete(key)
	}
	return errServer
}
