package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

type lendRT struct{ verbs.Runtime }

func (lendRT) Now() clock.Time { return 1 }

type lendGate struct{ verbs.Gate }

func (lendGate) Open() {}

type lendMR struct {
	verbs.MR
	b []byte
}

func (m *lendMR) ReadAt(b []byte, at int) error { copy(b, m.b[at:]); return nil }
func (m *lendMR) WriteAt([]byte, int) error     { return nil }
func (m *lendMR) SGE(int, int) verbs.SGE        { return verbs.SGE{} }

type lendSRQ struct{ verbs.SRQ }

func (lendSRQ) PostRecv(...verbs.RecvWR) error { return nil }

type lendQP struct {
	verbs.QP
	sent func()
}

func (q *lendQP) PostSend(...verbs.SendWR) error { q.sent(); return nil }

// Clients send their next request as soon as they have an answer: lend answers those that wait, and
// then lends the tables.
func TestLendEnds(t *testing.T) {
	s := new(Server)
	s.rt, s.clients = lendRT{}, map[uint32]*client{1: {id: 1, heard: 1}}
	mr := &lendMR{b: make([]byte, rpc.MaxRequest)}
	s.front.mr, s.front.srq = mr, lendSRQ{}
	h := &handoff{s: s, gate: lendGate{}}
	s.hand = h
	seq := uint32(10)
	var n int
	next := func() {
		r := rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: seq}
		seq += 2
		n = copy(mr.b, r.AppendTo(nil))
	}
	next()
	answers := 0
	c := &conn{mr: mr}
	c.qp = &lendQP{sent: func() {
		if answers++; answers < 1000 {
			next()
			h.mu.Lock()
			h.add(job{c, 0, n})
			h.mu.Unlock()
		}
	}}
	h.mu.Lock()
	h.add(job{c, 0, n})
	h.mu.Unlock()
	s.lend()
	if answers > 1 {
		t.Errorf("lend answered %d requests, most of which came while it ran", answers)
	}
}
