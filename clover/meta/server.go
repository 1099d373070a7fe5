package meta

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/lease"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// Periods and time limits of the metadata server.
const (
	// keepEvery is the period at which the main loop calls Server.keep, which ends leases, begins
	// epochs and connects to memory servers again.
	keepEvery = 10 * time.Millisecond
	// waitPause is the pause between two looks at a condition for which a thread waits by polling.
	waitPause = time.Millisecond
	// memoryTimeout is the longest time limit of an operation on a memory server. reachTimeout is
	// the longest time limit of an attempt to connect to one, except in identify and lose, which
	// allow up to memoryTimeout.
	memoryTimeout = time.Second
	reachTimeout  = 200 * time.Millisecond
)

// Server is a metadata server. One thread calls New, then Serve, and may call Snapshot. Any thread
// may call Close.
//
// It consists of parts: a part knows those before it, and calls none after it, with one exception:
// memories.lend, which gives the tables to other threads during a wait, first executes requests that
// wait. Server itself has the handlers of requests.
type Server struct {
	mem      memories // the memory of the servers, and operations on it
	pool     pool     // nodes that are in no chain, and the clients that have them
	chains   chains   // keys, and the nodes of each
	front    *calls.Server
	listener rdmacm.Listener
	keepAt   clock.Time
	members  membership // which copies count
}

// newServer returns a server whose parts know each other.
func newServer() *Server {
	s := new(Server)
	s.pool.mem = &s.mem
	s.chains.mem, s.chains.pool = &s.mem, &s.pool
	s.members.mem, s.members.pool, s.members.chains = &s.mem, &s.pool, &s.chains
	return s
}

// New connects to the memory servers, finds the store in their memory or formats one, and listens.
// After that the caller must call Serve, which frees all resources at its end.
func New(cfg Config) (_ *Server, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := newServer()
	s.mem.cfg, s.mem.rt, s.mem.format = cfg, cfg.Context.Runtime(), cfg.Format
	s.mem.starting = true
	s.pool.epoch, s.pool.clients = 1, make(map[uint32]*client)
	s.pool.fences = lease.NewFencer(lease.Config{
		Context: cfg.Context, Dialer: cfg.Manager, Servers: cfg.Servers, Timeout: memoryTimeout, Pause: downPause,
	})
	s.chains.keys = make(map[uint64]*entry)
	s.mem.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: bufferLen})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.mem.fab.Close())
		}
	}()
	if err := s.mem.reachMemory(); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	if s.mem.copied() {
		s.members.watched = make([]watched, len(s.mem.memory))
	}
	if s.front, err = cfg.newFront(); err != nil {
		return nil, err
	}
	if s.listener, err = cfg.Manager.Listen(cfg.Service); err != nil {
		return nil, errors.Join(err, s.front.Close())
	}
	s.mem.starting = false
	return s, nil
}

// Close ends Serve. Any thread may call it.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers clients until Close is called or the device is closed; then it returns nil. If
// another metadata server has taken over the memory servers, Serve returns an error.
func (s *Server) Serve() error {
	s.front.Accept(s.listener)
	serve := s.serve
	if s.mem.cfg.Threads > 0 {
		serve = s.serveThreads
	}
	err := serve()
	s.front.Stop()
	s.pool.fences.Close()
	s.pool.fences.Wait()
	s.members.wait()
	if errors.Is(err, verbs.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.front.Close(), s.mem.fab.Close())
}

// serve is the loop of the main thread if there are no request threads.
func (s *Server) serve() error {
	t := s.front.Threads()[0]
	request := func(r calls.Request) bool { s.request(r); return true }
	for {
		n, err := t.Poll(request)
		if err != nil {
			return err
		}
		if n > 0 && s.mem.cfg.Pace != nil {
			s.mem.cfg.Pace(n)
		}
		if n == 0 {
			s.chains.tidy.answered = 0
		}
		due := s.chains.tidyDue(s.mem.rt.Now())
		if due {
			s.chains.advance(false)
		}
		if err := s.keepIfDue(); err != nil {
			return err
		}
		if n > 0 || due {
			continue
		}
		if err := t.Wait(s.wakeAt()); err != nil {
			return err
		}
	}
}

// wakeAt returns when the main loop has work although no request comes.
func (s *Server) wakeAt() clock.Time {
	if len(s.chains.tidy.due) > 0 {
		return min(s.keepAt, s.chains.tidy.at)
	}
	return s.keepAt
}

// keepIfDue calls keep if keepEvery has passed since the last call. It returns an error if the main
// loop must end.
func (s *Server) keepIfDue() error {
	now := s.mem.rt.Now()
	switch {
	case s.front.Ended():
		return verbs.ErrClosed
	case s.mem.deposed:
		return errDeposed
	case now >= s.keepAt:
		s.keepAt = now.Add(keepEvery)
		if s.mem.hand != nil {
			s.mem.hand.drain()
		}
		s.keep(now)
	}
	return nil
}

// Snapshot returns the counters. The thread of Serve may call it while that thread owns the tables
// (threads.go). After Serve has returned, any one thread may call it.
func (s *Server) Snapshot() rpc.Stats {
	st := s.mem.stats
	st.Epoch, st.Clients, st.Keys, st.Slots = uint64(s.pool.epoch), uint64(len(s.pool.clients)), uint64(len(s.chains.keys)), uint64(s.mem.space.Slots())
	st.ClassNodes = s.pool.count()
	for _, n := range st.ClassNodes {
		st.Nodes += n
	}
	st.Segments, st.Unused, st.Resting = uint64(s.mem.space.Segments()*s.mem.space.Servers), uint64(s.pool.segments.Unused(anywhere)), uint64(s.pool.segments.Resting())
	for _, e := range s.chains.keys {
		if e.lost {
			st.LostKeys++
		}
	}
	for i := range s.pool.nodes.free {
		st.ClassFree[i] = uint64(s.pool.nodes.free[i].Len(anywhere))
		st.Free += st.ClassFree[i]
	}
	st.Servers = s.pool.shares()
	st.Copies = uint64(s.mem.space.Backups + 1)
	for i := range s.mem.memory {
		if s.mem.memory[i].out || s.mem.copied() && s.mem.memory[i].blank {
			st.Away++
		}
	}
	st.Held, st.Worn = uint64(s.pool.nodes.held.len()), uint64(len(s.pool.nodes.worn))
	st.Linked = st.Nodes - st.Free - st.Held - st.Worn
	return st
}
