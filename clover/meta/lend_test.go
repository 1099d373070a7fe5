package meta

import (
	"slices"
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
	b      []byte
	answer []byte // the last one
}

func (m *lendMR) ReadAt(b []byte, at int) error  { copy(b, m.b[at:]); return nil }
func (m *lendMR) WriteAt(b []byte, at int) error { m.answer = slices.Clone(b); return nil }
func (m *lendMR) SGE(int, int) verbs.SGE         { return verbs.SGE{} }

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
		recv int // how many receives were posted
	}
	lendSRQ struct {
		verbs.SRQ
		nic *lendNIC
	}
	lendQP struct {
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
func (f *lendNIC) CreateSRQ(verbs.SRQInit) (verbs.SRQ, error)        { return lendSRQ{nic: f}, nil }
func (f *lendNIC) CreateQP(verbs.QPInit) (verbs.QP, error)           { return &lendQP{sent: f.sent}, nil }

func (f *lendNIC) Poll(wcs []verbs.WC) (int, error) {
	wcs[0] = verbs.WC{ByteLen: uint32(f.n)}
	return 1, nil
}

func (q lendSRQ) PostRecv(...verbs.RecvWR) error                         { q.nic.recv++; return nil }
func (*lendQP) QPN() wire.QPN                                            { return 0 }
func (q *lendQP) PostSend(...verbs.SendWR) error                         { q.sent(); return nil }
func (lendReq) Accept(verbs.QP, rdmacm.Params, []byte, clock.Time) error { return nil }

// mailbox is a metadata server with one client, 1, and a NIC that has one request at a time.
type mailbox struct {
	s    *Server
	h    *handoff
	nic  *lendNIC
	sent int // answers
	next func()
}

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	m := &mailbox{s: newServer(), nic: &lendNIC{mr: &lendMR{b: make([]byte, recvs*rpc.MaxRequest)}}}
	m.s.mem.rt, m.s.pool.clients = lendRT{}, map[uint32]*client{1: {id: 1, heard: 1}}
	m.h = &handoff{s: m.s, gate: lendGate{}}
	m.s.mem.hand = m.h
	m.nic.sent = func() {
		if m.sent++; m.next != nil {
			m.next()
		}
	}
	var err error
	if m.s.front, err = (&Config{Context: lendCtx{nic: m.nic}}).newFront(); err != nil {
		t.Fatal(err)
	}
	if err := m.s.front.Connect(lendReq{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// arrives calls f with a request that has arrived.
func (m *mailbox) arrives(b []byte, f func(r calls.Request) bool) {
	m.nic.n = copy(m.nic.mr.b, b)
	_, _ = m.s.front.Threads()[0].Poll(f)
}

// add makes a request a job for the main thread.
func (m *mailbox) add(r rpc.Request) {
	m.arrives(r.AppendTo(nil), func(r calls.Request) bool {
		m.h.mu.Lock()
		m.h.add(r)
		m.h.mu.Unlock()
		return false
	})
}

// Clients send their next request as soon as they have an answer: lend answers those that wait, and
// then lends the tables.
func TestLendEnds(t *testing.T) {
	m, seq := newMailbox(t), uint32(10)
	add := func() {
		m.add(rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: seq})
		seq += 2
	}
	m.next = func() {
		if m.sent < 1000 {
			add()
		}
	}
	add()
	m.s.mem.lend()
	if m.sent != 1 || len(m.h.jobs) != 1 {
		t.Errorf("lend answered %d requests, of which all but one came while it ran; %d wait", m.sent, len(m.h.jobs))
	}
}

// A job that the main thread answers while it lends the tables is over: its receive is posted again, and the
// connection holds no request. One that needs a memory server waits until the main thread executes it.
func TestJobsThatLendAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		r     rpc.Request
		quick int
	}{"quick": {rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 10}, 1}, "not quick": {rpc.Request{Op: rpc.OpHello, Client: 1, Seq: 10}, 0}} {
		m := newMailbox(t)
		m.add(c.r)
		j, posted := m.h.jobs[0], m.nic.recv
		if m.s.mem.lend(); m.sent != c.quick || len(m.h.jobs) != 1-c.quick || m.nic.recv != posted+c.quick || j.Held() != (c.quick == 0) || !m.h.lent {
			t.Errorf("%s: %d answers, %d jobs wait, %d receives posted, held %v, lent %v", name, m.sent, len(m.h.jobs), m.nic.recv-posted, j.Held(), m.h.lent)
		}
		m.s.mem.regain()
		if c.quick == 0 {
			m.h.pop()
			m.h.end(j)
		}
		if m.nic.recv != posted+1 || j.Held() || len(m.h.jobs) != 0 {
			t.Errorf("%s: at the end %d receives posted, held %v, %d jobs wait", name, m.nic.recv-posted, j.Held(), len(m.h.jobs))
		}
	}
}

// A request thread executes a request itself if the tables are lent and no earlier request of the connection waits.
func TestWhatARequestThreadAccepts(t *testing.T) {
	beat := rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 10}
	for name, c := range map[string]struct {
		lent, held, damaged bool
		want                bool
	}{
		"lent":                       {lent: true, want: true},
		"not lent":                   {},
		"lent, an earlier one waits": {lent: true, held: true},
		"lent, no request":           {lent: true, damaged: true},
	} {
		m := newMailbox(t)
		m.s.pool.epoch = 4
		if m.h.lent = c.lent; c.held {
			m.add(rpc.Request{Op: rpc.OpHello, Client: 1, Seq: 8})
		}
		b := beat.AppendTo(nil)
		if c.damaged {
			b = b[:len(b)-1]
		}
		before := len(m.h.jobs)
		m.arrives(b, func(r calls.Request) bool {
			if got := m.h.accept(r); got != c.want || (len(m.h.jobs) == before) != c.want || (m.sent == 1) != c.want {
				t.Errorf("%s: done %v, %d more jobs, %d answers", name, got, len(m.h.jobs)-before, m.sent)
			}
			return true
		})
		if c.want {
			var a rpc.Answer
			if err := a.Parse(m.nic.mr.answer, beat.Op); err != nil || a.Epoch != 4 || a.Seq != beat.Seq {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
		if c.damaged { // the main thread refuses it, and sends no answer
			if j := m.h.jobs[0]; m.h.tryQuick(j) || m.s.mem.stats.Refused != 0 || !j.Held() {
				t.Errorf("%s: it is done", name)
			}
			if m.s.request(m.h.jobs[0]); m.s.mem.stats.Refused != 1 || m.s.mem.stats.Requests != 0 || m.sent != 0 {
				t.Errorf("%s: %+v, %d answers", name, m.s.mem.stats, m.sent)
			}
		}
	}
}

// While the view changes, a client that says hello is told to come back.
func TestHelloDuringAChange(t *testing.T) {
	for _, changes := range []bool{true, false} {
		m := newMailbox(t)
		m.s.pool.clients, m.s.pool.nextID, m.s.pool.endID = map[uint32]*client{}, 5, 100
		if changes {
			m.s.members.change = new(change)
		}
		r := rpc.Request{Op: rpc.OpHello, Seq: 8}
		m.arrives(r.AppendTo(nil), func(r calls.Request) bool { m.s.request(r); return true })
		var a rpc.Answer
		_ = a.Parse(m.nic.mr.answer, r.Op) // a welcome without servers is malformed
		if (a.Status == rpc.Busy) != changes || (a.Welcome == nil) != changes || len(m.s.pool.clients) != map[bool]int{false: 1}[changes] {
			t.Errorf("a change goes on %v: %+v; %d clients", changes, a, len(m.s.pool.clients))
		}
	}
}

// Answers ask for unused nodes until the time is over.
func TestAnswersWhileNodesAreScarce(t *testing.T) {
	for until, want := range map[clock.Time]bool{0: false, 1: false, 2: true} {
		m, a := newMailbox(t), rpc.Answer{} // now is 1
		m.s.pool.segments.scarceUntil, m.s.pool.epoch = until, 4
		if m.s.stamp(&a); a.Scarce != want || a.Epoch != 4 {
			t.Errorf("until %d: %+v", until, a)
		}
	}
}

// All jobs that need no memory server are answered by lend, a late copy without an answer.
func TestLendTakesAllQuickJobs(t *testing.T) {
	m := newMailbox(t)
	for range 3 {
		m.add(rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 10})
	}
	if m.s.mem.lend(); m.sent != 1 || len(m.h.jobs) != 0 || m.s.mem.stats.Requests != 3 || m.s.mem.stats.Refused != 2 {
		t.Errorf("%d answers, %d jobs wait, %+v", m.sent, len(m.h.jobs), m.s.mem.stats)
	}
}

// What is late, or is reported for a client that the server does not know, is counted as refused.
func TestRefusedRequestsAreCounted(t *testing.T) {
	m := newMailbox(t)
	m.s.mem.hand = nil
	for i, seq := range []uint32{10, 10, 8} {
		r := rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: seq}
		m.arrives(r.AppendTo(nil), func(r calls.Request) bool { m.s.request(r); return true })
		if m.s.mem.stats.Refused != uint64(i) || m.s.mem.stats.Requests != uint64(i+1) || m.sent != 1 {
			t.Errorf("request %d: %+v, %d answers", i, m.s.mem.stats, m.sent)
		}
	}
	m.s.gather(&rpc.Request{Op: rpc.OpReports, Parts: []rpc.Part{{Client: 99, Seq: 1}, {Client: 1, Seq: 1}, {Client: 1, Seq: 1}}})
	if m.s.mem.stats.Refused != 4 {
		t.Errorf("%d parts are refused, want those of no client and those that came again", m.s.mem.stats.Refused-2)
	}
}
