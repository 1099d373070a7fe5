package meta

import (
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// client is one that has said hello.
type client struct {
	id    uint32
	epoch uint32
	heard clock.Time
	gone  bool // said bye
	// stale says that it may hold nodes whose memory was lost: it must say hello again.
	stale bool
	// ended says that its nodes are being taken back: it is nobody any more.
	ended bool
}

// request handles the message in receive i.
func (s *Server) request(c *conn, i, n int) {
	var b [rpc.MaxRequest]byte
	var r rpc.Request
	if n > len(b) || s.front.mr.ReadAt(b[:n], i*rpc.MaxRequest) != nil || r.Parse(b[:n]) != nil {
		s.stats.Refused++
		return
	}
	s.stats.Requests++
	now := s.rt.Now()
	a := rpc.Answer{Seq: r.Seq}
	cl := s.clients[r.Client]
	switch {
	case r.Op == rpc.OpHello:
		s.hello(&a, now)
	case r.Op == rpc.OpStat:
		st := s.Snapshot()
		a.Stats = &st
	case cl == nil || cl.stale || cl.ended:
		a.Status = rpc.Unknown
	default:
		cl.heard, cl.gone = now, false
		cl.epoch = max(cl.epoch, min(r.Epoch, s.epoch))
		s.dispatch(cl, &r, &a)
	}
	s.answer(c, &r, &a)
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
		s.collect(r)
	case rpc.OpReturn:
		for _, rec := range r.Records[:r.N] {
			if s.heldAs(cl.id, rec.New) {
				delete(s.nodes.held, rec.New.Handle)
				delete(s.walk.successors, rec.New)
				s.nodes.free[s.classOf(rec.New.Handle)].push(rec.New)
			}
		}
	case rpc.OpBye:
		cl.gone = true
	case rpc.OpBeat, rpc.OpHello, rpc.OpStat:
	}
}

func (s *Server) hello(a *rpc.Answer, now clock.Time) {
	if len(s.clients) >= maxClients {
		a.Status = rpc.Refused
		return
	}
	// If this is not its first hello, reports of its may have been lost, or it has found memory that is not the store's.
	s.sweepDue, s.probeDue = true, true
	for s.nextID++; s.nextID == orphan || s.clients[s.nextID] != nil; s.nextID++ {
	}
	s.clients[s.nextID] = &client{id: s.nextID, epoch: s.epoch, heard: now}
	w := &rpc.Welcome{Client: s.nextID, Lease: s.cfg.Lease, Space: s.space, Format: s.format}
	for i := range s.memory {
		w.Servers = append(w.Servers, rpc.Server{Addr: s.cfg.Servers[i], Generation: s.memory[i].generation})
	}
	a.Welcome = w
}

// alloc gives nodes. When there are none, every chain is looked at: reports may have been lost with their clients.
func (s *Server) alloc(cl *client, r *rpc.Request, a *rpc.Answer) {
	n := max(1, min(r.N, rpc.MaxBatch))
	got := s.give(cl.id, r.Class, n, a.Locations[:0])
	if len(got) == 0 {
		s.advance()
		s.catchUp(true)
		got = s.give(cl.id, r.Class, n, a.Locations[:0])
	}
	if len(got) == 0 {
		s.sweep()
		s.turn()
		got = s.give(cl.id, r.Class, n, a.Locations[:0])
	}
	if a.N = len(got); a.N > 0 {
		return
	}
	a.Status = rpc.Full
	if s.expected(r.Class) {
		a.Status = rpc.Busy
	}
}

// expected reports whether nodes of a class will be free by themselves: those of clients that have gone, and worn ones.
func (s *Server) expected(c layout.Class) bool {
	for _, w := range s.nodes.worn {
		if s.classOf(w.handle) == c {
			return true
		}
	}
	for h, n := range s.nodes.held {
		cl := s.clients[n.client]
		if (cl == nil || cl.gone || s.rt.Now() > cl.heard.Add(s.cfg.Lease)) && s.classOf(h) == c {
			return true
		}
	}
	return false
}

// keep is what time brings: leases end, epochs turn, memory servers come back.
func (s *Server) keep(now clock.Time) {
	s.dropDead()
	for _, id := range slices.Sorted(maps.Keys(s.clients)) {
		cl := s.clients[id]
		ended := now > cl.heard.Add(s.cfg.Lease+s.cfg.Grace) || cl.gone && now > cl.heard.Add(s.cfg.Grace)
		if !ended && !cl.ended {
			continue
		}
		cl.ended = true // from here on its nodes go to others, also if not all of them can be had at once
		if s.recoverClient(id) {
			delete(s.clients, id)
			s.sweepDue = true
		}
	}
	s.catchUp(false)
	if s.sweepDue && now >= s.sweepAt {
		s.sweepDue = false
		s.sweep()
	}
	s.recoverOrphans(now)
	s.turn()
	s.watchMemory(now)
}
