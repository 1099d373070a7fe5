package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A store has no slot and no node left. Its metadata server says so, until another one takes over,
// which may have deleted keys: from then on the first one answers Busy, and its client finds the
// other one.
func TestDeposedServerSaysFullOfNothing(t *testing.T) {
	r := newPair(t, 0)
	full, over, done := false, false, false
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) {
		cl := &client{id: 5, owner: 5}
		s.pool.clients[5], s.chains.slots = cl, nil
		all := func() (a rpc.Answer) { // the client takes all nodes
			for a.Status == rpc.OK {
				a = rpc.Answer{}
				cl.heard = rt.Now()
				s.dispatch(cl, &rpc.Request{Op: rpc.OpAlloc, N: rpc.MaxBatch}, &a)
			}
			return a
		}
		all()
		ask := func(want rpc.Status) {
			rt.Sleep(2 * restPause) // the server looks for segments that no chain needs once in that time
			var open rpc.Answer
			for h, n := range s.pool.nodes.held.all() {
				s.dispatch(cl, &rpc.Request{Op: rpc.OpOpen, Key: 7, At: layout.Location{Handle: h, Version: n.version}}, &open)
				break
			}
			if nodes := all(); open.Status != want || nodes.Status != want {
				t.Errorf("INSERT %v, nodes %v, want %v", open.Status, nodes.Status, want)
			}
		}
		ask(rpc.Full)
		full = true
		await(rt, &over)
		ask(rpc.Busy)
		done = true
		_ = s.Close()
	})
	r.Host("md1").Go("story", false, func(ctx verbs.Context) {
		await(ctx.Runtime(), &full)
		r.begin("md1", unwrapped, func(s *Server, rt verbs.Runtime) {
			over = true
			await(rt, &done)
			_ = s.Close()
		})
	})
	r.run()
	if !done {
		t.Error("the story did not end")
	}
}
