package memservice

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Limits of a Server.
const (
	maxConns       = 256             // connections of a service with a Worker
	maxPassive     = 4096            // connections of a service without a Worker, where only the NIC works for them
	defaultMemory  = 1 << 30         // default of Config.Memory, in bytes
	acceptPatience = 5 * time.Second // for a client to report that it is ready
)

// RemoteAccess has the access rights with which the service registers its regions for clients.
const RemoteAccess = verbs.LocalWrite | verbs.RemoteRights

// Config describes a service. The zero value shares no region and no locks.
type Config struct {
	// Service is the name of the service; "" means the constant Service.
	Service string
	// Region is the size in bytes of the region that all connections without a region of their own
	// share; 0 means none.
	Region int
	// Buffer is the memory of the region. If it is set, the bytes survive a crash of the NIC; nil
	// means new memory.
	Buffer []byte
	// Owners is the table of owners that belongs to the memory. It should be set if Buffer is, and
	// then fences survive a crash of the NIC as well; nil means an empty table.
	Owners *Owners
	// Locks is the size in bytes of a table in device memory that all connections share; 0 means
	// none.
	Locks int
	// Memory is the largest amount of memory for regions and Work of all connections together, in
	// bytes; 0 means 1 GiB.
	Memory int64
	// PD is the protection domain of all memory and queue pairs; nil means that the service makes
	// one. All share one domain, because a switch's connection carries requests of several clients,
	// and must access everything that these clients can access.
	PD verbs.PD
	// Worker takes part in connections; nil means that the service is passive and refuses requests
	// with data for a worker.
	Worker Worker
}

// Server is one service of a host. Its threads are the one that calls Serve, one for each
// connection with a Work, and up to maxHandshakes that wait for clients (see handshakes).
type Server struct {
	cfg      Config
	ctx      verbs.Context
	rt       verbs.Runtime
	listener rdmacm.Listener
	pd       verbs.PD // protection domain of all objects
	region   verbs.MR
	locks    verbs.MR // lock table in device memory; nil if there is none
	owners   *Owners
	boot     uint64   // identifies this incarnation of the service
	cq       verbs.CQ // completion queue of connections whose field work is nil; always empty
	conns    []*Conn  // oldest first
	next     int      // index of the connection that bury checks next
	used     int64    // bytes of memory that connections use
	shaking  handshakes
}

// New registers the region and listens. The caller must call Serve.
func New(ctx verbs.Context, m rdmacm.Manager, cfg Config) (_ *Server, err error) {
	cfg.Service = cmp.Or(cfg.Service, Service)
	cfg.Memory = cmp.Or(cfg.Memory, defaultMemory)
	rt := ctx.Runtime()
	s := &Server{cfg: cfg, ctx: ctx, rt: rt, pd: cfg.PD, owners: cmp.Or(cfg.Owners, new(Owners)), boot: uint64(rt.Now()) + 1}
	if s.pd == nil {
		if s.pd, err = ctx.AllocPD(); err != nil {
			return nil, err
		}
	}
	if s.cq, err = ctx.CreateCQ(1); err != nil {
		return nil, err
	}
	if err := s.share(); err != nil {
		return nil, err
	}
	s.listener, err = m.Listen(cfg.Service)
	return s, err
}

// share registers the shared region and the lock table.
func (s *Server) share() (err error) {
	if s.cfg.Buffer != nil {
		s.cfg.Region = len(s.cfg.Buffer)
	}
	if n := s.cfg.Region; n > 0 {
		if s.region, err = s.pd.RegMR(s.cfg.Buffer, n, RemoteAccess); err != nil {
			return fmt.Errorf("service %q: register %d bytes: %w", s.cfg.Service, n, err)
		}
	}
	if s.cfg.Locks == 0 {
		return nil
	}
	dm, err := s.ctx.AllocDM(s.cfg.Locks)
	if err == nil {
		s.locks, err = s.pd.RegDM(dm, 0, s.cfg.Locks, RemoteAccess)
	}
	if err != nil {
		return fmt.Errorf("service %q: %d bytes of memory on the NIC: %w", s.cfg.Service, s.cfg.Locks, err)
	}
	return nil
}

// Reopen makes the service listen again after Close has ended Serve. The caller must then call
// Serve again. The region and its keys have not changed.
func (s *Server) Reopen(m rdmacm.Manager) (err error) {
	s.listener, err = m.Listen(s.cfg.Service)
	return err
}

// PD returns the protection domain of all memory and queue pairs of the service.
func (s *Server) PD() verbs.PD { return s.pd }

// Region returns the shared region; nil if there is none.
func (s *Server) Region() verbs.MR { return s.region }

// Locks returns the lock table in device memory; nil if there is none.
func (s *Server) Locks() verbs.MR { return s.locks }

// Close ends Serve. A service with a Worker then ends its connections. Connections of a passive
// service need only the NIC, and stay: they last as long as the verbs context, or until their
// clients end them after Reopen. Any thread may call Close.
func (s *Server) Close() error { return s.listener.Close() }

// Serve handles requests until Close or until the device is closed; then it returns nil.
func (s *Server) Serve() error {
	for {
		in, err := s.listener.Accept(clock.Never)
		if errors.Is(err, verbs.ErrClosed) {
			return s.shutdown()
		}
		if err != nil {
			return fmt.Errorf("service %q: %w", s.cfg.Service, err)
		}
		if err := s.handle(in); err != nil && errors.Is(err, verbs.ErrClosed) {
			return s.shutdown()
		}
	}
}

// shutdown ends all connections of a service with a Worker, because threads of the host take part
// in them. The connections of a passive service stay.
func (s *Server) shutdown() error {
	if s.cfg.Worker == nil {
		return nil
	}
	for len(s.conns) > 0 {
		s.end(0)
	}
	return nil
}

// handle answers one request. Serve ignores its error, which concerns this request alone, unless it
// is ErrClosed.
func (s *Server) handle(in rdmacm.Request) error {
	s.sweep()
	s.bury()
	s.owners.forget(s.connected)
	r, err := parseRequest(in.Private())
	if err == nil && r.kind == kindConnect {
		return s.connect(in, r)
	}
	var a answer
	if err == nil {
		a, err = s.answer(r)
	}
	if err != nil {
		return refuse(in, err)
	}
	return in.Answer("", a.encode())
}

func refuse(in rdmacm.Request, why error) error {
	a := answer{kind: kindRefused, code: refusedOther}
	for code, err := range refusals {
		if errors.Is(why, err) {
			a.code = code
		}
	}
	return in.Answer(why.Error(), a.encode())
}

// answer returns the answer to a request that makes no connection.
func (s *Server) answer(r request) (a answer, err error) {
	a.kind = r.kind
	switch r.kind {
	case kindFence:
		if err = s.owners.fence(r.owner); err == nil {
			s.endIf(func(c *Conn) bool { return c.of(r.owner) })
		}
	case kindDisconnect:
		s.endIf(func(c *Conn) bool { return c.of(r.owner) })
	case kindFenceTo:
		s.owners.fenceTo(r.owner)
		s.endIf(func(c *Conn) bool {
			return slices.ContainsFunc(c.owners, func(id uint32) bool { return id <= r.owner })
		})
	case kindJoin:
		err = s.join(r)
	case kindTake:
		a.index, err = s.take(r)
	case kindWho:
		a.holder = s.holderOf(r.owner)
	case kindRetire, kindReserve:
		if a.owner = s.owners.retire(r.owner); r.kind == kindRetire {
			a.owner = max(a.owner, r.owner)
		}
		s.endIf(func(c *Conn) bool { return len(c.owners) > 0 })
	case kindDisconnectOthers:
		a.owner = s.owners.last()
		s.endIf(func(c *Conn) bool { return !c.of(r.owner) })
	default:
		s.endID(r.conn)
	}
	return a, err
}

func (s *Server) holderOf(id uint32) Holder {
	h := Holder{Peer: s.owners.known[id].peer, Fenced: s.owners.fenced(id)}
	for _, c := range s.conns {
		if c.of(id) && !c.dead() {
			h.QPs++
		}
	}
	return h
}

// connected returns the owners with connections that work.
func (s *Server) connected() map[uint32]bool {
	list := make(map[uint32]bool)
	for _, c := range s.conns {
		if len(c.owners) == 0 || c.dead() {
			continue
		}
		for _, id := range c.owners {
			list[id] = true
		}
	}
	return list
}

// maxJoined is the largest number of owners of one connection.
const maxJoined = 4096

// join adds an owner to the owners of a connection, which ends when the owner is fenced. The
// request may also remove former owners.
func (s *Server) join(r request) error {
	s.endID(r.conn)
	i := slices.IndexFunc(s.conns, func(c *Conn) bool { return c.id == r.shared })
	if i < 0 {
		return fmt.Errorf("%w: %#x", ErrGone, r.shared)
	}
	c := s.conns[i]
	switch {
	case s.owners.fenced(r.owner):
		return ErrFenced
	case len(c.owners) == maxJoined && !c.of(r.owner) && !slices.ContainsFunc(r.former, c.of):
		return fmt.Errorf("the connection has %d owners, and no further one may join; use another connection", maxJoined)
	}
	if err := s.owners.admit(r.owner, c.Peer.String()); err != nil {
		return err
	}
	c.owners = slices.DeleteFunc(c.owners, func(id uint32) bool { return id == r.owner || slices.Contains(r.former, id) })
	c.owners = append(c.owners, r.owner)
	return nil
}

func (s *Server) connect(in rdmacm.Request, r request) error {
	c := &Conn{Context: s.ctx, PD: s.pd, Peer: in.Peer(), req: r, bytes: int64(r.bytes)}
	if err := s.parseWork(c); err != nil {
		return refuse(in, err)
	}
	s.endID(r.conn)
	if err := s.owners.admit(r.owner, c.Peer.String()); err != nil {
		return refuse(in, err)
	}
	if r.owner != 0 {
		c.owners = []uint32{r.owner}
	}
	limit := maxConns
	if s.cfg.Worker == nil {
		limit = maxPassive
	}
	if len(s.conns) >= limit {
		s.end(s.oldest())
	}
	// XOR with boot makes IDs of different incarnations of the service differ, even if the random
	// numbers are equal. A client may ask the new incarnation to end a connection of the old one.
	c.id = (s.rt.Rand().Uint64() ^ s.boot<<20) | 1
	if err := s.roomFor(c); err != nil {
		return errors.Join(err, refuse(in, err))
	}
	data, err := s.build(c)
	if len(data) > maxWork {
		err = errors.Join(err, fmt.Errorf("the worker's answer has %d bytes; at most %d fit", len(data), maxWork))
	}
	if err != nil {
		err = errors.Join(err, c.Destroy())
		return errors.Join(err, refuse(in, err))
	}
	a := answer{kind: kindConnect, memory: Memory{memgrant.Grant{Region: c.memory, Conn: c.id, Boot: s.boot}, data}}
	if s.locks != nil {
		a.memory.Locks = RegionOf(s.locks)
	}
	return s.welcome(in, c, a)
}

// parseWork makes the Work of connection c: it passes to the Worker the data that the connection
// request has for it. It does nothing if there are no such data, and fails if there are such data
// but no Worker.
func (s *Server) parseWork(c *Conn) (err error) {
	if len(c.req.work) == 0 {
		return nil
	}
	if s.cfg.Worker == nil {
		return fmt.Errorf("service %q is passive: no thread of the host works for its connections", s.cfg.Service)
	}
	if c.work, err = s.cfg.Worker.Parse(c.req.work); err == nil {
		c.bytes += c.work.Bytes()
	}
	return err
}

// roomFor checks that there is memory for a connection, and makes room if necessary.
func (s *Server) roomFor(c *Conn) error {
	if over := s.used + c.bytes - s.cfg.Memory; over > 0 {
		s.makeRoom(over)
	}
	switch {
	case s.used+c.bytes > s.cfg.Memory:
		return fmt.Errorf("%d bytes of memory wanted, %d left", c.bytes, s.cfg.Memory-s.used)
	case c.req.bytes == 0 && s.region == nil && c.work == nil:
		return fmt.Errorf("service %q has no shared region: ask for some bytes", s.cfg.Service)
	}
	return nil
}

// welcome accepts a connection that has a Work, and starts a thread for the Work. Any other
// connection is accepted by another thread, perhaps later; a fence that arrives before or during
// this handshake ends the connection.
func (s *Server) welcome(in rdmacm.Request, c *Conn, a answer) error {
	h := handshake{in, c, a}
	if c.work == nil {
		s.conns = append(s.conns, c)
		s.used += c.bytes
		if s.shaking.begin(h) {
			s.rt.Go(s.cfg.Service+"-accept", func() { s.shake(h) })
		}
		return nil
	}
	if err := s.accept(h); err != nil {
		return errors.Join(err, c.Destroy())
	}
	s.conns = append(s.conns, c)
	s.used += c.bytes
	s.rt.Go(s.cfg.Service+"-"+c.work.Name(), c.work.Serve)
	return nil
}

// candidates bounds how many queue pairs the method oldest queries. A service that has no room for
// more connections calls oldest for each new one.
const candidates = 16

// oldest returns the index of the connection to end when there is no room for another one. It
// considers the `candidates` oldest connections whose requests had private data, and chooses the
// first one that has failed, or the oldest if none has failed. A connection whose request had no
// private data (request.silent) may carry requests of several clients. If there are only
// connections of this kind, oldest chooses the oldest.
func (s *Server) oldest() int {
	oldest, asked := 0, 0
	for i, c := range s.conns {
		if c.req.silent {
			continue
		}
		if c.dead() {
			return i
		}
		if asked++; asked == 1 {
			oldest = i
		}
		if asked == candidates {
			break
		}
	}
	return oldest
}

// endIf ends the connections that the function `which` selects, the youngest first.
func (s *Server) endIf(which func(*Conn) bool) {
	for i := len(s.conns) - 1; i >= 0; i-- {
		if which(s.conns[i]) {
			s.end(i)
		}
	}
}

// endID ends the connection with that ID, if there is one.
func (s *Server) endID(id uint64) { s.endIf(func(c *Conn) bool { return c.id == id }) }

// end ends the connection with index i in s.conns, and removes it from the list.
func (s *Server) end(i int) {
	c := s.conns[i]
	s.conns = append(s.conns[:i], s.conns[i+1:]...)
	s.used -= c.bytes
	if c.work != nil {
		_ = c.QP.ToError() // the thread of c.work then gets the flushed completions and destroys c; fails if c is already destroyed
		return
	}
	_ = c.Destroy() // an object that cannot be destroyed stays; the service can do nothing about it
}

// RegionOf returns the values that a client needs to access a region.
func RegionOf(mr verbs.MR) Region { return Region{Addr: mr.Addr(), RKey: mr.RKey(), Len: mr.Len()} }
