package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	calls "github.com/rdmalab/rdmalab/store/rpc"
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

// The NIC of the server: one thread polls it, and one request after the other lies in its memory.
type (
	lendCtx struct {
		verbs.Context
		nic *lendNIC
	}
	lendNIC struct {
		verbs.PD
		verbs.CQ
		mr   *lendMR
		sent func()
		n    int // the length of the request that waits
	}
	lendSRQ struct{ verbs.SRQ }
	lendQP  struct {
		verbs.QP
		sent func()
	}
	lendReq struct{ rdmacm.Request }
)

func (lendCtx) Runtime() verbs.Runtime                               { return lendRT{} }
func (c lendCtx) AllocPD() (verbs.PD, error)                         { return c.nic, nil }
func (c lendCtx) CreateCQ(int) (verbs.CQ, error)                     { return c.nic, nil }
func (*lendNIC) Destroy() error                                      { return nil }
func (f *lendNIC) RegMR([]byte, int, verbs.Access) (verbs.MR, error) { return f.mr, nil }
func (*lendNIC) CreateSRQ(verbs.SRQInit) (verbs.SRQ, error)          { return lendSRQ{}, nil }
func (f *lendNIC) CreateQP(verbs.QPInit) (verbs.QP, error)           { return &lendQP{sent: f.sent}, nil }

func (f *lendNIC) Poll(wcs []verbs.WC) (int, error) {
	wcs[0] = verbs.WC{ByteLen: uint32(f.n)}
	return 1, nil
}
func (lendSRQ) PostRecv(...verbs.RecvWR) error                           { return nil }
func (*lendQP) QPN() wire.QPN                                            { return 0 }
func (q *lendQP) PostSend(...verbs.SendWR) error                         { q.sent(); return nil }
func (lendReq) Accept(verbs.QP, rdmacm.Params, []byte, clock.Time) error { return nil }

// Clients send their next request as soon as they have an answer: lend answers those that wait, and
// then lends the tables.
func TestLendEnds(t *testing.T) {
	s := new(Server)
	s.rt, s.clients = lendRT{}, map[uint32]*client{1: {id: 1, heard: 1}}
	mr := &lendMR{b: make([]byte, recvs*rpc.MaxRequest)}
	nic := &lendNIC{mr: mr}
	h := &handoff{s: s, gate: lendGate{}}
	s.hand = h
	seq := uint32(10)
	next := func() {
		r := rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: seq}
		seq += 2
		nic.n = copy(mr.b, r.AppendTo(nil))
	}
	add := func() {
		next()
		_, _ = s.front.Threads()[0].Poll(func(r calls.Request) bool {
			h.mu.Lock()
			h.add(r)
			h.mu.Unlock()
			return false
		})
	}
	answers := 0
	nic.sent = func() {
		if answers++; answers < 1000 {
			add()
		}
	}
	var err error
	if s.front, err = newFront(&Config{Context: lendCtx{nic: nic}}); err != nil {
		t.Fatal(err)
	}
	if err := s.front.Connect(lendReq{}); err != nil {
		t.Fatal(err)
	}
	add()
	s.lend()
	if answers != 1 {
		t.Errorf("lend answered %d requests, of which all but one came while it ran", answers)
	}
}
