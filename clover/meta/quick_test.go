package meta

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// bell is a gate that counts how often it was opened.
type bell struct {
	verbs.Gate
	opened int
}

func (b *bell) Open() { b.opened++ }

// A request thread answers what needs no memory server. It leaves to the main thread what does, the
// requests of a client that the main thread serves, and reports for which there is no room.
func TestWhatARequestThreadAnswers(t *testing.T) {
	const known, served, old, ended = 1, 2, 3, 4
	for name, c := range map[string]struct {
		r              rpc.Request
		void, full     bool
		done, answered bool
		status         rpc.Status
		requests       uint64
		refused        uint64
	}{
		"beat":                   {r: rpc.Request{Op: rpc.OpBeat, Client: known, Seq: 9}, done: true, answered: true, requests: 1},
		"bye":                    {r: rpc.Request{Op: rpc.OpBye, Client: known, Seq: 9}, done: true, answered: true, requests: 1},
		"report":                 {r: rpc.Request{Op: rpc.OpReports, Client: known, Seq: 9}, done: true, answered: true, requests: 1},
		"report without room":    {r: rpc.Request{Op: rpc.OpReports, Client: known, Seq: 9}, full: true},
		"open":                   {r: rpc.Request{Op: rpc.OpOpen, Client: known, Seq: 9}},
		"hello":                  {r: rpc.Request{Op: rpc.OpHello, Client: known, Seq: 9}},
		"of a client in work":    {r: rpc.Request{Op: rpc.OpBeat, Client: served, Seq: 9}},
		"query of a lost memory": {r: rpc.Request{Op: rpc.OpQuery, Client: known, Seq: 9}, void: true},
		"beat, lost memory":      {r: rpc.Request{Op: rpc.OpBeat, Client: known, Seq: 9}, void: true, done: true, answered: true, requests: 1},
		"late":                   {r: rpc.Request{Op: rpc.OpBeat, Client: known, Seq: 5}, done: true, requests: 1, refused: 1},
		"of no client":           {r: rpc.Request{Op: rpc.OpBeat, Client: 99, Seq: 9}, done: true, answered: true, status: rpc.Unknown, requests: 1},
		"of a stale client":      {r: rpc.Request{Op: rpc.OpBeat, Client: old, Seq: 9}, done: true, answered: true, status: rpc.Unknown, requests: 1},
		"of an ended client":     {r: rpc.Request{Op: rpc.OpBeat, Client: ended, Seq: 9}, done: true, answered: true, status: rpc.Unknown, requests: 1},
		"alloc without a node":   {r: rpc.Request{Op: rpc.OpAlloc, Client: known, Seq: 9, N: 1}},
		"alloc of no client":     {r: rpc.Request{Op: rpc.OpAlloc, Client: 99, Seq: 9, N: 1}, done: true, answered: true, status: rpc.Unknown, requests: 1},
		"collect":                {r: rpc.Request{Op: rpc.OpGC, Client: known, Seq: 9}, done: true, answered: true, requests: 1},
		"collect without room":   {r: rpc.Request{Op: rpc.OpGC, Client: known, Seq: 9}, full: true},
	} {
		s := alone()
		g := &bell{}
		h := &handoff{s: s, gate: g, serving: served}
		s.mem.hand, s.pool.void = h, c.void
		for id := uint32(known); id <= ended; id++ {
			s.pool.clients[id] = &client{id: id, seq: 5, stale: id == old, ended: id == ended}
		}
		before := 0
		if c.full {
			h.reports = make([]rpc.Request, maxReports)
			before = maxReports
		}
		a := rpc.Answer{Seq: c.r.Seq}
		done, answered := h.quick(&c.r, &a)
		if done != c.done || answered != c.answered || a.Status != c.status || s.mem.stats.Requests != c.requests || s.mem.stats.Refused != c.refused {
			t.Errorf("%s: done %v, answered %v, %v; %d requests, %d refused", name, done, answered, a.Status, s.mem.stats.Requests, s.mem.stats.Refused)
		}
		stored := 0
		if c.done && (c.r.Op == rpc.OpReports || c.r.Op == rpc.OpGC) {
			stored = 1
		}
		if len(h.reports) != before+stored || g.opened != stored {
			t.Errorf("%s: %d reports more, the main thread is woken %d times", name, len(h.reports)-before, g.opened)
		}
		if cl := s.pool.clients[known]; c.r.Client == known && c.answered && c.r.Op != rpc.OpReports && (cl.seq != 9 || cl.gone != (c.r.Op == rpc.OpBye)) {
			t.Errorf("%s: the server has heard %+v", name, cl)
		}
	}
}

// A request thread goes on until it fails or is stopped. The main thread is told of a failure.
func TestEndOfARequestThread(t *testing.T) {
	g, failure := &bell{}, errors.New("failure")
	h := &handoff{gate: g, running: 3}
	if !h.goesOn(nil) || h.running != 3 {
		t.Errorf("it ends without a reason; %d run", h.running)
	}
	if h.goesOn(failure) || h.running != 2 || g.opened != 1 {
		t.Errorf("%d run after a failure; the main thread is woken %d times", h.running, g.opened)
	}
	if more, err := h.waiting(); more || !errors.Is(err, failure) {
		t.Errorf("the main thread learns %v, %v", more, err)
	}
	h.stopped = true
	if h.goesOn(nil) || h.running != 1 || g.opened != 1 {
		t.Errorf("%d run after the end; the main thread is woken %d times", h.running, g.opened)
	}
	h.reports = make([]rpc.Request, 1)
	if more, _ := h.waiting(); !more {
		t.Error("a report waits, and the main thread does not learn it")
	}
}
