package perf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Names of the services.
const (
	// MemoryService hands out memory and is passive from then on: only the NIC works.
	MemoryService = "memory"
	// PerfService also receives, verifies and echoes.
	PerfService = "perf"
)

// Bounds of a Server.
const (
	maxConns       = 256
	maxPassive     = 4096 // of a passive service, for which nobody works
	defaultMemory  = 1 << 30
	acceptPatience = 5 * time.Second
)

// ServerConfig describes a service.
type ServerConfig struct {
	// Service is MemoryService or PerfService; "": PerfService.
	Service string
	// Passive refuses the modes in which the server has to work.
	Passive bool
	// Region is the size in bytes of the region that all connections without memory of their own share; 0: none.
	Region int
	// Buffer is the memory of the region, which then outlives the NIC; nil: fresh memory of Region bytes.
	Buffer []byte
	// Locks is the size in bytes of a table in the memory of the NIC that all connections share; 0: none.
	Locks int
	// Memory bounds the memory of connections together, in bytes; 0: 1 GiB.
	Memory int64
	// PD is the protection domain of all memory and queue pairs; nil: one of the service's own. All are in one, so that a
	// switch that carries requests of many clients on a connection of its own reaches what they may reach.
	PD verbs.PD
}

// Server is one service of a host. Its threads are the one that called Serve, one for each connection with a
// mode, and one for each handshake.
type Server struct {
	cfg      ServerConfig
	ctx      verbs.Context
	rt       verbs.Runtime
	listener rdmacm.Listener
	pd       verbs.PD // of everything
	region   verbs.MR
	locks    verbs.MR // in the memory of the NIC
	owners   owners
	retired  uint32 // owners up to this one are fenced
	boot     uint64
	cq       verbs.CQ // of connections without a mode: it stays empty
	conns    []*conn  // oldest first
	used     int64
	shaking  handshakes
}

// conn is one connection. One with a mode belongs to its own thread, which destroys it when the queue pair goes
// to error; others belong to the thread of Serve.
type conn struct {
	id     uint64
	qp     verbs.QP
	own    bool // has a thread
	bytes  int64
	undo   []func() error
	memory Region
	report verbs.MR
	cq     verbs.CQ
	data   verbs.MR // receive buffers
	buf    []byte
	hello  hello
	lanes  *laneServer // nil: the connection itself carries the messages
}

// NewServer registers the region and listens. Serve must follow.
func NewServer(ctx verbs.Context, m rdmacm.Manager, cfg ServerConfig) (_ *Server, err error) {
	if cfg.Service == "" {
		cfg.Service = PerfService
	}
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory
	}
	s := &Server{cfg: cfg, ctx: ctx, rt: ctx.Runtime()}
	if s.pd = cfg.PD; s.pd == nil {
		if s.pd, err = ctx.AllocPD(); err != nil {
			return nil, err
		}
	}
	if s.cq, err = ctx.CreateCQ(1); err != nil {
		return nil, err
	}
	if cfg.Buffer != nil {
		cfg.Region = len(cfg.Buffer)
	}
	if cfg.Region > 0 {
		s.region, err = s.pd.RegMR(cfg.Buffer, cfg.Region, remoteAccess)
		if err != nil {
			return nil, fmt.Errorf("service %q: register %d bytes: %w", cfg.Service, cfg.Region, err)
		}
	}
	if err := s.lockMemory(); err != nil {
		return nil, err
	}
	s.listener, err = m.Listen(cfg.Service)
	return s, err
}

// Reopen listens again after Serve has returned because of Close, and Serve must follow. The region was kept, with its
// keys.
func (s *Server) Reopen(m rdmacm.Manager) (err error) {
	s.listener, err = m.Listen(s.cfg.Service)
	return err
}

const remoteAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// PD is the protection domain of all memory and queue pairs of the service.
func (s *Server) PD() verbs.PD { return s.pd }

// Region is the shared region; nil if there is none.
func (s *Server) Region() verbs.MR { return s.region }

// Close ends Serve, and with it the connections of a service that is not passive. Those of a passive one need nothing
// but the NIC and last as long as the verbs context, or until their clients say after Reopen that they are done. It may
// be called by any thread.
func (s *Server) Close() error { return s.listener.Close() }

// Serve takes connections until Close or until the device is closed; then it returns nil.
func (s *Server) Serve() error {
	for {
		req, err := s.listener.Accept(clock.Never)
		if errors.Is(err, verbs.ErrClosed) {
			return s.shutdown()
		}
		if err != nil {
			return fmt.Errorf("service %q: %w", s.cfg.Service, err)
		}
		if err := s.handle(req); err != nil && errors.Is(err, verbs.ErrClosed) {
			return s.shutdown()
		}
	}
}

// shutdown ends the connections that somebody has to work for.
func (s *Server) shutdown() error {
	if s.cfg.Passive {
		return nil
	}
	for len(s.conns) > 0 {
		s.end(0)
	}
	return nil
}

// handle answers one request. An error concerns this request alone.
func (s *Server) handle(req rdmacm.Request) error {
	s.sweep()
	h, err := parseHello(req.Private())
	if err != nil {
		return req.Reject(err.Error())
	}
	if h.Op != opOpen {
		return req.Reject(s.answer(h))
	}
	s.endID(h.ID)
	if refusal := s.admit(h, req.Peer().String()); refusal != "" {
		return req.Reject(refusal)
	}
	limit := maxConns
	if s.cfg.Passive {
		limit = maxPassive
	}
	if len(s.conns) >= limit {
		s.end(s.oldest())
	}
	c, err := s.build(h, req.Peer())
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.destroy())
		}
		return errors.Join(err, req.Reject(err.Error()))
	}
	w := welcome{ID: c.id, Memory: c.memory, Boot: s.boot}
	if s.locks != nil && c.report == nil { // a reply has no room for both
		w.Locks = Region{s.locks.Addr(), s.locks.RKey(), s.locks.Len()}
	}
	if c.report != nil {
		w.Report = Region{c.report.Addr(), c.report.RKey(), c.report.Len()}
	}
	if !c.own && s.shaking.begin() {
		s.conns = append(s.conns, c) // from now on a fence ends it
		s.used += c.bytes
		s.rt.Go(s.cfg.Service+"-accept", func() { s.shaking.end(c.id, s.accept(req, c, w)) })
		return nil
	}
	if err := s.accept(req, c, w); err != nil {
		return errors.Join(err, c.destroy())
	}
	s.conns = append(s.conns, c)
	s.used += c.bytes
	switch {
	case c.lanes != nil:
		s.rt.Go(s.cfg.Service+"-"+h.Lanes, func() { serveLanes(s.rt, c) })
	case c.own:
		s.rt.Go(s.cfg.Service+"-"+h.Mode, func() { serveMode(s.rt, c) })
	}
	return nil
}

// oldest is the connection to be ended for another one: one that is dead already, or the oldest of those whose clients
// should have said that they were done and are the likeliest to be gone. A switch that carries the requests of many is
// not among these.
func (s *Server) oldest() int {
	oldest := -1
	for i, c := range s.conns {
		if a, err := c.qp.Query(); err != nil || a.State == verbs.StateError {
			return i
		}
		if oldest < 0 && !c.hello.silent {
			oldest = i
		}
	}
	return max(oldest, 0)
}

// end ends connection i.
func (s *Server) end(i int) {
	c := s.conns[i]
	s.conns = append(s.conns[:i], s.conns[i+1:]...)
	s.used -= c.bytes
	if c.own {
		_ = c.qp.ToError() // its thread sees the flush and destroys it; already destroyed is fine
		return
	}
	_ = c.destroy() // nothing can be done about an object that will not go
}

// build makes the objects of a connection. On error what was made is in the conn.
func (s *Server) build(h hello, peer netip.Addr) (*conn, error) {
	// The numbers of a host that was started anew may repeat, and a client may ask to end what it had before.
	c := &conn{id: (s.rt.Rand().Uint64() ^ s.boot<<20) | 1, hello: h, own: h.Mode != ""}
	c.bytes = int64(h.Bytes) + int64(h.Recvs)*int64(h.slot())*int64(h.laneCount())
	switch {
	case c.own && s.cfg.Passive:
		return nil, fmt.Errorf("service %q is passive: use service %q for SEND", s.cfg.Service, PerfService)
	case s.used+c.bytes > s.cfg.Memory:
		return nil, fmt.Errorf("%d bytes of memory wanted, %d left", c.bytes, s.cfg.Memory-s.used)
	case h.Bytes == 0 && s.region == nil && !c.own:
		return nil, fmt.Errorf("service %q has no region of its own: ask for some bytes", s.cfg.Service)
	}
	if err := s.buildMemory(c); err != nil {
		return c, err
	}
	var err error
	cq, depth := s.cq, 1
	if c.own {
		depth = h.Recvs
		if cq, err = s.ctx.CreateCQ(2*h.Recvs*h.laneCount() + 1); err != nil {
			return c, err
		}
		c.cq = cq
		c.undo = append(c.undo, cq.Destroy)
	}
	c.qp, err = s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: depth, MaxRecvWR: depth, MaxSGE: 1})
	if err == nil {
		c.undo = append(c.undo, c.qp.Destroy)
	}
	if err == nil && h.Lanes != "" {
		err = s.buildLanes(c, s.pd, peer)
	}
	return c, err
}

func (s *Server) buildMemory(c *conn) error {
	reg := func(buf []byte, n int, a verbs.Access) (verbs.MR, error) {
		mr, err := s.pd.RegMR(buf, n, a)
		if err == nil {
			c.undo = append(c.undo, mr.Dereg)
		}
		return mr, err
	}
	mr := s.region
	var err error
	if c.hello.Bytes > 0 {
		if mr, err = reg(nil, c.hello.Bytes, remoteAccess); err != nil {
			return err
		}
	}
	if mr != nil && (c.hello.Bytes > 0 || !c.own) {
		c.memory = Region{mr.Addr(), mr.RKey(), mr.Len()}
	}
	if !c.own {
		return nil
	}
	if c.report, err = reg(nil, reportSize+laneBytes(c.hello.laneCount()), remoteAccess); err != nil {
		return err
	}
	var free func() error
	if c.buf, free, err = verbs.Buffer(s.ctx, c.hello.Recvs*c.hello.slot()*c.hello.laneCount()); err != nil {
		return err
	}
	c.undo = append(c.undo, free)
	c.data, err = reg(c.buf, len(c.buf), verbs.LocalWrite)
	return err
}

func (c *conn) destroy() error {
	var err error
	for i := len(c.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, c.undo[i]())
	}
	c.undo = nil
	return err
}
