package meta

import (
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/lease"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// client is what the server knows of a client that has sent OpHello.
type client struct {
	id uint32
	// former is the client's previous number, under which it sent the OpHello that gave it the
	// number id; 0 means that it had none.
	former uint32
	// owner is the owner number under which the client connects to the memory servers.
	owner uint32
	// epoch is the newest epoch that the client has confirmed. heard is when the metadata server
	// handled the client's last request.
	epoch uint32
	heard clock.Time
	// seq is the sequence number of the client's last request.
	seq uint32
	// reported is the number of the client's last part in an OpReports request.
	reported uint32
	gone     bool // true if the client has sent OpBye, or OpHello for another number
	// quiet is true if no request of the client to a memory server is in flight, so that the client
	// needs no fence. The client has said so in OpBye or OpHello, or it has not used its new number
	// yet.
	quiet bool
	// fence makes the memory servers end the client's connections; nil means that the client is not
	// fenced.
	fence *lease.Fence
	// stale is true if the client must send OpHello again, because it may hold nodes whose memory
	// was lost, the set of servers whose copies count changes (view.go), or its number is too old.
	stale bool
	// ended is true if the server is taking the client's nodes back. The server then answers the
	// client's requests with Unknown.
	ended bool
}

func (s *Server) parse(in calls.Request) (r rpc.Request, ok bool) {
	var b [rpc.MaxRequest]byte
	n := in.Len()
	return r, n <= len(b) && s.front.Read(in, b[:]) == nil && r.Parse(b[:n]) == nil
}

func (s *Server) request(in calls.Request) {
	r, ok := s.parse(in)
	if !ok {
		s.mem.stats.Refused++
		return
	}
	if s.mem.hand != nil {
		s.mem.hand.serving = r.Client
	}
	s.mem.stats.Requests++
	s.chains.tidy.answered++
	now := s.mem.rt.Now()
	a := rpc.Answer{Seq: r.Seq}
	cl := s.pool.clients[r.Client]
	switch {
	case s.late(&r):
		s.mem.stats.Refused++
		return
	case r.Op == rpc.OpHello && s.members.change != nil:
		a.Status = rpc.Busy
	case r.Op == rpc.OpHello:
		s.renumber(&r)
		s.hello(&r, &a, now)
	case r.Op == rpc.OpStat:
		st := s.Snapshot()
		a.Stats = &st
	case r.Op == rpc.OpReports:
		s.gather(&r)
	case cl == nil || cl.stale || cl.ended:
		a.Status = rpc.Unknown
	default:
		s.hear(cl, &r)
		s.dispatch(cl, &r, &a)
	}
	s.answer(in.Conn, &r, &a)
}

// hear records what every request of a client shows: that the client lives, the sequence number of
// its last request, and the epoch that it has confirmed.
func (s *Server) hear(cl *client, r *rpc.Request) {
	cl.heard, cl.gone, cl.quiet, cl.seq = s.mem.rt.Now(), false, false, r.Seq
	cl.epoch = max(cl.epoch, min(r.Epoch, s.pool.epoch))
}

func (s *Server) dispatch(cl *client, r *rpc.Request, a *rpc.Answer) {
	switch r.Op {
	case rpc.OpAlloc:
		s.alloc(cl, r, a)
	case rpc.OpQuery:
		s.query(cl, r, a)
	case rpc.OpOpen:
		s.openKey(cl, r, a)
	case rpc.OpGC:
		s.gather(r)
		if r.Want > 0 {
			s.pool.refill(cl, r, a)
		}
	case rpc.OpReturn:
		for _, rec := range r.Records[:r.N] {
			if s.pool.heldAs(cl.id, rec.New) {
				s.pool.nodes.held.drop(rec.New.Handle)
				s.pool.release(rec.New)
			}
		}
	case rpc.OpBye:
		cl.gone, cl.quiet = true, r.Quiet
	case rpc.OpBeat, rpc.OpHello, rpc.OpStat, rpc.OpReports:
	}
	// A deposed metadata server does not know which keys its successor has deleted since. So the
	// answer Full may be wrong: the client gets Busy instead, and asks again.
	if a.Status == rpc.Full && !s.mem.reigns() {
		a.Status = rpc.Busy
	}
}

func (s *Server) hello(r *rpc.Request, a *rpc.Answer, now clock.Time) {
	if len(s.pool.clients) >= maxClients {
		a.Status = rpc.Refused
		return
	}
	id, err := s.number()
	if err != nil {
		a.Status = rpc.Busy
		return
	}
	// A client says hello again after it has lost reports, or has found that a server's memory is
	// not the store's.
	s.chains.sweepDue, s.members.probeDue = true, true
	s.pool.clients[id] = &client{id: id, former: r.Client, owner: s.ownerOf(id, r), epoch: s.pool.epoch, heard: now, seq: r.Seq, quiet: true}
	w := &rpc.Welcome{Client: id, Owner: s.pool.clients[id].owner, Incarnation: s.mem.owner, Lease: s.mem.cfg.Lease, Space: s.mem.space, Format: s.mem.format}
	_, counted := s.Generations()
	for i, g := range counted {
		w.Servers = append(w.Servers, rpc.Server{Addr: s.mem.cfg.Servers[i], Generation: g})
	}
	a.Welcome = w
}

// late reports whether a request is a late copy from an earlier connection of its client. The
// client no longer waits for the answer to it, and has sent other requests since. A late OpHello
// would end the client's present number. A late OpOpen would open a key with a node that the client
// now uses for another key.
func (s *Server) late(r *rpc.Request) bool {
	if r.Op != rpc.OpHello {
		cl := s.pool.clients[r.Client]
		return cl != nil && !rpc.After(r.Seq, cl.seq)
	}
	for id, cl := range s.pool.clients {
		if (cl.introduces(id, r) || cl.answers(r)) && !rpc.After(r.Seq, cl.seq) {
			return true
		}
	}
	return false
}

// introduces reports whether an OpHello comes from client cl, which the server knows under number
// id.
func (cl *client) introduces(id uint32, r *rpc.Request) bool {
	return id == r.Client || r.Owner != 0 && cl.owner == r.Owner
}

// answers reports whether cl got its number for an earlier copy of the same OpHello. If no answer
// has reached the client, it never learnt that number.
func (cl *client) answers(r *rpc.Request) bool { return r.Client != 0 && cl.former == r.Client }

// renumber is called when a client sends OpHello. It ends the client's earlier numbers. If r.Quiet
// is true, no request under these numbers is in flight: they need no fence, and a fence would end
// connections that the client still uses. If a fence has begun already, the client gets a new owner
// number for its connections.
func (s *Server) renumber(r *rpc.Request) {
	ended := false
	for id, cl := range s.pool.clients {
		if !cl.introduces(id, r) {
			if cl.answers(r) {
				cl.gone, cl.seq = true, r.Seq // this number needs no fence, because it was never used
			}
			continue
		}
		cl.gone, cl.quiet, cl.seq = true, r.Quiet, r.Seq
		if r.Quiet && cl.fence != nil && !s.pool.fences.Cancel(cl.fence) {
			ended = true
		}
	}
	if ended {
		r.Owner = 0
	}
}

// alloc gives a client free nodes of the memory server that the request names, or of other servers
// if that one has none. If there are too few free nodes, the class takes unused segments (growFor).
// If no server has any free nodes, alloc follows every chain to find superseded nodes, because
// reports may have been lost together with their clients.
func (s *Server) alloc(cl *client, r *rpc.Request, a *rpc.Answer) {
	near, n, leave := s.pool.wanted(r)
	few := s.pool.few(near, n)
	for _, try := range []struct {
		server, least int
		more          func()
	}{
		{near, few, func() {}},
		{near, few, func() { s.chains.advance(true); s.chains.catchUp(true) }},
		{near, 1, func() { s.pool.growFor(r.Class, near, leave+few) }},
		{anywhere, 1, func() {}},
		{anywhere, 1, func() {
			s.chains.sweep()
			s.pool.rest(r.Class)
			s.pool.turn()
			s.pool.growFor(r.Class, anywhere, leave+few)
		}},
	} {
		try.more()
		if s.pool.nodes.free[r.Class].Len(try.server) >= try.least && s.pool.allocOn(try.server, cl, r, a, n, leave) {
			return
		}
	}
	a.Status, a.Slot = rpc.Full, uint32(s.pool.segments.Unused(anywhere))
	if s.pool.press(r.Class, cl.id) || s.pool.expected(r.Class) {
		a.Status = rpc.Busy
	}
}

// wanted returns the server whose nodes the request asks for (near), how many nodes the client gets
// at most (n), and how many free nodes of the class must remain for tombstones (leave).
func (s *pool) wanted(r *rpc.Request) (near, n, leave int) {
	near = anywhere
	if r.Near > 0 && r.Near <= len(s.mem.memory) {
		near = r.Near - 1
	}
	return near, s.share(r.Class, max(1, min(r.N, rpc.MaxBatch))), s.reserved(r.Class, r.Tombstone)
}

// few returns how many free nodes of a class a memory server should have before alloc takes nodes
// from it for a request of n nodes: 1 if the server has no unused segments, otherwise n, but at
// most the constant fewest.
func (s *pool) few(server, n int) int {
	if s.segments.Unused(server) == 0 {
		return 1
	}
	return min(n, fewest)
}

// allocFree gives a client nodes only if the server named in the request has enough of them that
// are free now (few); otherwise it returns false. Unlike alloc it takes no segments, and follows no
// chains.
func (s *pool) allocFree(cl *client, r *rpc.Request, a *rpc.Answer) bool {
	near, n, leave := s.wanted(r)
	return s.nodes.free[r.Class].Len(near) >= s.few(near, n) && s.allocOn(near, cl, r, a, n, leave)
}

// refill gives a client that reports appends some of the nodes that it wants, if they are free now.
// It leaves more than as many for each client, because those who ask for nodes need them at once.
func (s *pool) refill(cl *client, r *rpc.Request, a *rpc.Answer) {
	n := min(r.Want, s.nodes.free[r.Class].Len(anywhere)/(2*max(1, len(s.clients))))
	if n > 0 {
		s.allocFree(cl, &rpc.Request{Op: rpc.OpAlloc, Class: r.Class, N: n, Near: r.Near}, a)
	}
}

func (s *pool) allocOn(server int, cl *client, r *rpc.Request, a *rpc.Answer, n, leave int) bool {
	if a.N = len(s.give(cl.id, r.Class, server, n, leave, a.Locations[:0])); a.N > 0 {
		s.segments.pressed[r.Class] = 0
	}
	return a.N > 0
}

// expected reports whether nodes of a class will become free without a further request: nodes of
// clients that have gone or whose lease has ended, worn nodes, or nodes of segments that are about
// to lose their class. It also returns true if there are unused segments that no class can take
// yet, because the orphan, a client number that no client has, holds nodes (see grow).
func (s *pool) expected(c layout.Class) bool {
	if s.segments.Resting() > 0 || s.orphans && s.segments.Unused(anywhere) > 0 {
		return true
	}
	for _, w := range s.nodes.worn {
		if s.classOf(w.handle) == c {
			return true
		}
	}
	for h, n := range s.nodes.held.all() {
		cl := s.clients[n.client]
		if (cl == nil || cl.gone || s.mem.cfg.terms().Lapsed(cl.heard, s.mem.rt.Now())) && s.classOf(h) == c {
			return true
		}
	}
	return false
}

// keep does the periodic work: it ends leases, begins epochs, and connects to memory servers again.
// It fences a client whose lease and grace have ended before it takes the client's nodes back. It
// also fences a client that has not confirmed the epoch within lease and grace. Requests of such a
// client may still be in flight at a memory server that the client cannot reach.
func (s *Server) keep(now clock.Time) {
	s.front.DropDead()
	terms := s.mem.cfg.terms()
	var ended []uint32
	for _, id := range slices.Sorted(maps.Keys(s.pool.clients)) {
		cl := s.pool.clients[id]
		slow := cl.epoch < s.pool.epoch && terms.Over(s.pool.turnedAt, now)
		if !cl.ended && !cl.gone && !slow && !terms.Over(cl.heard, now) {
			continue
		}
		// From here on the server takes the client's nodes back, even if it cannot reach all of
		// them now.
		if !cl.ended && !cl.quiet {
			cl.fence = s.pool.fences.Add(cl.owner)
		}
		cl.ended = true
		ended = append(ended, id)
	}
	s.recoverClients(ended)
	s.forgetNumbers()
	s.chains.erase()
	s.chains.catchUp(false)
	if s.chains.sweepDue && now >= s.chains.sweepAt {
		s.chains.sweepDue = false
		s.chains.sweep()
	}
	s.recoverOrphans(now)
	s.pool.turn()
	s.watchMemory(now)
	s.pool.weigh(now)
}
