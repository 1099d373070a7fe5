package meta

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// lending makes a server lend its tables during each wait, as with request threads: each lend needs
// one regain.
func lending(s *Server, rt verbs.Runtime) { s.mem.hand = &handoff{s: s, gate: rt.NewGate()} }

// leaves makes a client that holds seven nodes of server 1: the first one opened key 1, the second
// one was linked behind it and not reported, and the others are in no chain, whatever their headers
// say.
func leaves(t *testing.T, s *Server) (e *entry, n []layout.Location) {
	t.Helper()
	cl, n := holder(t, s, 1, 8)
	e = opened(t, s, cl, 1, n[0])
	opened(t, s, cl, 0, n[7]) // a node that was never written has the bytes of key 0
	v := n[0].Version
	if err := errors.Join(
		put(s, n[0], layout.Superseded(v, n[1]), 1), put(s, n[1], layout.Header(v), 1), put(s, n[2], layout.Header(v), 99),
		put(s, n[3], layout.Header(v)|1, 99), put(s, n[4], layout.Header(v+1), 1), put(s, n[5], layout.Header(v)|1, 1),
	); err != nil {
		t.Error(err)
	}
	return e, n
}

// A client has gone: its nodes become free, except those that it has linked. Only chains to which
// one of its nodes can belong are followed.
func TestNodesOfAClientThatHasGone(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, rt verbs.Runtime) {
		lending(s, rt)
		e, n := leaves(t, s)
		walked := s.mem.stats.Walked
		if !s.recoverClient(7, s.pool.heldBy(7)[7]) || len(s.pool.heldBy(7)[7]) != 0 || e.at != n[1] || s.mem.stats.Walked != walked+3 {
			t.Errorf("held %v, key at %v after %d headers", s.pool.heldBy(7)[7], e.at, s.mem.stats.Walked-walked)
		}
		for i, l := range n {
			if want := i != 1 && i != 7; isFree(s, l.Handle) != want {
				t.Errorf("node %d is free: %v, want %v", i, !want, want)
			}
		}
		s.pool.nodes.free[0].All(func(l layout.Location) {
			if l.Handle == n[2].Handle && l.Version <= n[2].Version {
				t.Errorf("%v is free, and was held in that version", l)
			}
		})
	})
}

// In a store whose nodes have no keys, all chains are followed before the nodes of a client are
// taken back.
func TestNodesWithoutKeysOfAClientThatHasGone(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
		e, n := leaves(t, s)
		if s.mem.format.Keyed = false; !s.recoverClient(7, s.pool.heldBy(7)[7]) || len(s.pool.heldBy(7)[7]) != 0 || e.at != n[1] || isFree(s, n[1].Handle) || !isFree(s, n[2].Handle) {
			t.Errorf("held %v, key at %v", s.pool.heldBy(7)[7], e.at)
		}
		_, more := holder(t, s, 0, 2)
		r.crash(s, 1)
		if s.recoverClient(7, s.pool.heldBy(7)[7]) || len(s.pool.heldBy(7)[7]) != len(more) {
			t.Errorf("a chain is unknown, and %d nodes are held, want %d", len(s.pool.heldBy(7)[7]), len(more))
		}
	})
}

// While a memory server does not answer, the nodes of a client that may be in a chain there stay
// held. Those in lost memory are left to the function lose.
func TestNodesOfAClientAndAServerThatIsAway(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
		cl, n1 := holder(t, s, 1, 2)
		_, n0 := holder(t, s, 0, 1)
		opened(t, s, cl, 1, n1[0])
		if err := put(s, n0[0], layout.Header(n0[0].Version), 1); err != nil {
			t.Error(err)
		}
		r.crash(s, 1)
		s.pool.nodes.held.drop(n1[1].Handle)
		if s.recoverClient(7, s.pool.heldBy(7)[7]) || !s.pool.heldAs(7, n0[0]) {
			t.Error("a node is taken back that may be in a chain on the server that is away")
		}
		s.pool.nodes.held.put(n1[1].Handle, held{client: 8, version: 1})
		if s.recoverClient(8, s.pool.heldBy(8)[8]) || !s.pool.heldAs(8, n1[1]) {
			t.Error("a node is taken back whose header is unknown")
		}
		s.mem.memory[1].blank = true
		s.pool.nodes.held.put(node(s, 0, 20, 1).Handle, held{client: 8, version: 1})
		if !s.recoverClient(8, s.pool.heldBy(8)[8]) || len(s.pool.heldBy(8)[8]) != 1 || !s.pool.heldAs(8, n1[1]) {
			t.Errorf("held %v, want the node in lost memory", s.pool.heldBy(8)[8])
		}
	})
}

// When the lease of a client has ended, or the client has gone, or does not confirm the epoch, the
// server takes its nodes back, after a fence if requests of it may be in flight.
func TestClientsThatEnd(t *testing.T) {
	const lease, grace = 10, 5
	at := clock.Time(1000)
	for name, c := range map[string]struct {
		cl             client
		turned         clock.Time
		fenced, stays  bool // the fence lasts until the servers have executed it
		ended, removed bool
	}{
		"works":                            {cl: client{heard: at, epoch: 3}, stays: true},
		"last moment":                      {cl: client{heard: at - lease - grace, epoch: 3}, stays: true},
		"lease over":                       {cl: client{heard: at - lease - grace - 1, epoch: 3}, fenced: true, ended: true},
		"gone":                             {cl: client{heard: at, epoch: 3, gone: true}, fenced: true, ended: true},
		"gone, quiet":                      {cl: client{heard: at, epoch: 3, gone: true, quiet: true}, removed: true},
		"ended before":                     {cl: client{heard: at, epoch: 3, ended: true}, removed: true},
		"epoch not confirmed":              {cl: client{heard: at, epoch: 2}, turned: at - lease - grace - 1, fenced: true, ended: true},
		"epoch not confirmed, still time":  {cl: client{heard: at, epoch: 2}, turned: at - lease - grace, stays: true},
		"epoch confirmed, began long ago":  {cl: client{heard: at, epoch: 3}, turned: 1, stays: true},
		"epoch not confirmed, quiet":       {cl: client{heard: at, epoch: 2, quiet: true}, turned: 1, removed: true},
		"lease over, quiet, was not ended": {cl: client{heard: 1, epoch: 3, quiet: true}, removed: true},
	} {
		s, now := alone(), at
		s.pool.nodes.held = heldNodes{}
		s.mem.rt, s.mem.memory[0].blank, s.front = ticking{now: &now}, false, new(calls.Server)
		s.mem.cfg.Lease, s.mem.cfg.Grace, s.pool.turnedAt = lease, grace, c.turned
		s.chains.sweepAt = now + 1
		s.pool.fencedTo = s.pool.nextID // no fence of old numbers
		cl := c.cl
		cl.id, cl.owner = 5, 6
		s.pool.clients[5] = &cl
		s.keep(now)
		if has := s.pool.clients[5] != nil; (cl.fence != nil) != c.fenced || has == c.removed || cl.ended != (c.ended || c.removed) || s.chains.sweepDue != c.removed {
			t.Errorf("%s: fenced %v, ended %v, known %v, sweep due %v", name, cl.fence != nil, cl.ended, has, s.chains.sweepDue)
		}
		if c.stays || c.removed {
			continue
		}
		fence := cl.fence
		if s.keep(now); cl.fence == nil || s.pool.clients[5] == nil {
			t.Errorf("%s: fence %v, known %v before the servers have executed the fence", name, cl.fence, s.pool.clients[5] != nil)
		}
		s.pool.fences.Leave([]bool{true, true})
		if s.keep(now); s.pool.clients[5] != nil || !s.chains.sweepDue || fence == nil {
			t.Errorf("%s: known %v after the fence", name, s.pool.clients[5] != nil)
		}
	}
}

// A client whose nodes cannot be taken back stays until they can. The periodic work also erases the
// keys that could not be opened, follows the chains that are behind, and probes the memory servers.
func TestPeriodicWork(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, rt verbs.Runtime) {
		cl, n := holder(t, s, 1, 3)
		cl.owner = s.pool.nextID
		e := opened(t, s, cl, 1, n[0])
		if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1), put(s, n[1], layout.Header(n[1].Version), 1)); err != nil {
			t.Error(err)
		}
		s.chains.unopened = []*entry{{key: 5, slot: s.chains.slots[0], dead: true}}
		e.reported = []reported{{at: n[1]}}
		s.chains.note(e)
		e.seen = e.at
		s.chains.sweepAt, s.members.probeDue = rt.Now().Add(time.Hour), true
		if s.keep(rt.Now()); len(s.chains.unopened) != 0 || e.at != n[1] || s.members.probeDue || s.pool.clients[7] == nil {
			t.Errorf("%d keys to erase, key at %v, probe due %v", len(s.chains.unopened), e.at, s.members.probeDue)
		}
		// now the record of an unopened key cannot be erased
		s.mem.memory[0].blank = true
		s.chains.unopened = []*entry{{key: 5, slot: 0, dead: true}}
		if cl.gone, cl.quiet, cl.ended = true, true, false; s.recoverClient(7, s.pool.heldBy(7)[7]) || len(s.pool.heldBy(7)[7]) != 1 {
			t.Errorf("held %v", s.pool.heldBy(7)[7])
		}
		s.mem.memory[0].blank = false
		s.pool.orphans, s.pool.orphansAt = true, rt.Now().Add(time.Hour)
		s.mem.cfg.Balance = true
		if s.keep(rt.Now()); s.pool.clients[7] != nil || s.pool.balance.weights == nil || !s.pool.orphans {
			t.Errorf("known %v, weights %v, orphans %v", s.pool.clients[7] != nil, s.pool.balance.weights, s.pool.orphans)
		}
		s.pool.orphansAt = 0
		if s.keep(rt.Now()); s.pool.orphans {
			t.Error("the orphan's nodes are not freed")
		}
	})
}
