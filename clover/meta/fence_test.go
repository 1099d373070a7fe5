package meta

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A client whose lease has ended says hello again. It keeps the number of its connections if no
// server has begun to end them. If a server has begun, connections under this number may end at any
// time, and requests on them may never be answered; so the client gets a new number.
func TestLateFence(t *testing.T) {
	const had = 5
	for _, begun := range []bool{false, true} {
		s, _ := lossy()
		if !begun {
			s.pool.fences.Add(4) // the servers execute this one first
		}
		x := s.pool.fences.Add(had)
		s.pool.clients = map[uint32]*client{had: {id: had, owner: had, ended: true, fence: x}}
		s.pool.nextID, s.pool.endID = had, 1000
		r := rpc.Request{Op: rpc.OpHello, Seq: 4, Client: had, Owner: had, Quiet: true}
		s.renumber(&r)
		if keeps := s.ownerOf(had+1, &r) == had; keeps == begun {
			t.Errorf("the fence has begun: %v; the client keeps its number: %v", begun, keeps)
		}
	}
}

// The answer to a client's hello is lost, and the client says hello again. The number that it never
// learnt ends at once: it would hold the epochs back until a lease has passed. No fence is needed
// for it, and a late copy of the first hello makes no third number.
func TestNumberThatItsClientNeverLearnt(t *testing.T) {
	const had = 5
	for _, quiet := range []bool{false, true} {
		s, _ := lossy()
		s.mem.cfg.Servers, s.pool.nextID, s.pool.endID = make([]netip.Addr, 2), had, 1000
		s.pool.clients = map[uint32]*client{had: {id: had, owner: had, seq: 2}}
		hello := func(seq uint32) {
			r := rpc.Request{Op: rpc.OpHello, Seq: seq, Client: had, Owner: had, Quiet: quiet}
			if quiet {
				r.Owner = 0 // the client was told that its number is fenced
			}
			var a rpc.Answer
			s.renumber(&r)
			s.hello(&r, &a, 0)
			if a.Status != rpc.OK {
				t.Fatal(a.Status)
			}
		}
		hello(4)
		hello(6)
		if ghost := s.pool.clients[had+1]; !ghost.gone || !ghost.quiet {
			t.Errorf("quiet %v: the number that was never learnt: %+v", quiet, ghost)
		}
		if last := s.pool.clients[had+2]; last.gone {
			t.Errorf("quiet %v: the client's number: %+v", quiet, last)
		}
		delete(s.pool.clients, had)
		delete(s.pool.clients, had+1)
		if late := (rpc.Request{Op: rpc.OpHello, Seq: 4, Client: had, Owner: had}); !s.late(&late) {
			t.Errorf("quiet %v: a late copy of the first hello is taken for a new one", quiet)
		}
	}
}
