package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A request thread answers a report, and the beat with which the client confirms the next epoch,
// before the main thread has collected the report. The epoch must not end before that: the node in
// the report would be given to the client again, and the old report would count for the node as it
// is then.
func TestAnEpochWaitsForQueuedReports(t *testing.T) {
	const one = 1<<16 | 5
	report := rpc.Record{Key: 1, New: layout.Location{Handle: 2, Version: 1}}
	alone := rpc.Request{Op: rpc.OpGC, Client: one, Seq: 2, Epoch: 1, N: 1}
	alone.Records[0] = report
	for name, r := range map[string]*rpc.Request{
		"of one client":        &alone,
		"of several in a part": {Op: rpc.OpReports, Parts: []rpc.Part{{Client: one, Seq: 1, Records: []rpc.Record{report}}}},
	} {
		s := newServer()
		s.mem.rt = lendRT{}
		s.mem.space = layout.Space{Servers: 1, Entries: layout.Counts{0: 16}, Shortcuts: 4}
		s.mem.memory = make([]memory, 1)
		s.chains.keys = map[uint64]*entry{1: {key: 1, at: layout.Location{Handle: 1, Version: 9}, recorded: true, mirrored: true}}
		s.pool.nodes.held = heldNodes{}
		s.pool.epoch = 2
		s.pool.nodes.worn = []worn{{2, 1}} // node 2 has used up its versions in epoch 1
		s.pool.clients = map[uint32]*client{one: {id: one, heard: 1, epoch: 1}}
		h := &handoff{s: s, gate: lendGate{}}
		s.mem.hand = h
		var a rpc.Answer
		quick := func(r *rpc.Request) {
			if _, ok := h.quick(r, &a); !ok {
				t.Fatalf("%s: %v was not answered", name, r.Op)
			}
		}
		quick(r)
		quick(&rpc.Request{Op: rpc.OpBeat, Client: one, Seq: 4, Epoch: 2})
		s.pool.turn()
		a = rpc.Answer{}
		quick(&rpc.Request{Op: rpc.OpAlloc, Client: one, Seq: 6, Epoch: 2, N: 1})
		h.drain()
		s.chains.freeReported(s.chains.keys[1])
		if _, ok := s.pool.nodes.held.at(2); !ok {
			t.Errorf("%s: the node that the client was given a moment ago is free for others", name)
		}
	}
}
