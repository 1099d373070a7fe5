package meta

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// stepRT is a runtime whose threads do not run, and whose waits the test sees.
type stepRT struct {
	lendRT
	begun func()                // a thread would begin
	wait  func(clock.Time)      // a wait at a gate
	sleep func(d time.Duration) // a pause
}

type stepGate struct {
	lendGate
	r *stepRT
}

func (r *stepRT) Go(string, func())               { r.begun() }
func (r *stepRT) NewGate() verbs.Gate             { return stepGate{r: r} }
func (r *stepRT) Sleep(d time.Duration)           { r.sleep(d) }
func (g stepGate) Wait(deadline clock.Time) error { g.r.wait(deadline); return verbs.ErrTimeout }

// The main thread executes the jobs and the reports that wait, and then waits with the tables lent.
// Meanwhile no request of a client counts as the one that it executes. When it ends, it waits for
// the request threads.
func TestMainThreadExecutesJobs(t *testing.T) {
	m := newMailbox(t)
	s, posted, waits, pauses := m.s, 0, 0, 0
	var jobs []calls.Request
	s.keepAt, s.pool.epoch = 50, 2
	s.mem.rt = &stepRT{
		begun: func() {
			if m.h = s.mem.hand; m.h.running != 1 || m.h.lent {
				t.Errorf("%d threads run, lent %v", m.h.running, m.h.lent)
			}
			m.add(rpc.Request{Op: rpc.OpHello, Client: 99, Seq: 4}) // is refused: there is no number
			jobs, posted = append(jobs, m.h.jobs...), m.nic.recv
			m.h.reports = append(m.h.reports, rpc.Request{Op: rpc.OpReports, Parts: []rpc.Part{{Client: 1, Seq: 3}}})
		},
		wait: func(deadline clock.Time) {
			if waits++; deadline != 50 || !m.h.lent || m.h.serving != 0 {
				t.Errorf("waits until %d, lent %v, serving %d", deadline, m.h.lent, m.h.serving)
			}
			if s.mem.deposed = waits == 2; waits == 1 {
				m.add(rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 6})
				jobs = append(jobs, m.h.jobs...)
			}
		},
		sleep: func(d time.Duration) {
			pauses++
			if m.h.running > 0 && m.h.goesOn(nil) {
				t.Error("a request thread goes on after the end")
			}
		},
	}
	s.mem.owner, s.pool.nextID, s.pool.endID = maxIncarnation, 5, 6
	if err := s.serveThreads(); !errors.Is(err, errDeposed) || waits != 2 || pauses != 1 {
		t.Errorf("%v, %d waits, %d pauses", err, waits, pauses)
	}
	if m.sent != 2 || len(m.h.jobs) != 0 || len(m.h.reports) != 0 || m.nic.recv != posted+2 || s.mem.stats.Requests != 2 || s.pool.clients[1].reported != 3 || s.pool.clients[1].seq != 6 || m.h.lent {
		t.Errorf("%d answers, %d jobs, %d reports, %d receives posted, %+v, client %+v", m.sent, len(m.h.jobs), len(m.h.reports), m.nic.recv-posted, s.mem.stats, s.pool.clients[1])
	}
	for i, j := range jobs {
		if j.Held() {
			t.Errorf("job %d is held", i)
		}
	}
}

// While the main thread executes a request, it is known of which client. A request thread that has
// failed ends the main thread.
func TestClientThatIsServed(t *testing.T) {
	m := newMailbox(t)
	r := rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 10}
	m.next = func() {
		if m.h.serving != 1 {
			t.Errorf("serving %d", m.h.serving)
		}
	}
	m.arrives(r.AppendTo(nil), func(r calls.Request) bool { m.s.request(r); return true })
	if m.sent != 1 {
		t.Errorf("%d answers", m.sent)
	}
	failure := errors.New("failure")
	m.s.keepAt = 50
	m.s.mem.rt = &stepRT{
		begun: func() { m.s.mem.hand.goesOn(failure) },
		wait:  func(clock.Time) { m.s.mem.deposed = true },
		sleep: func(time.Duration) { t.Error("it waits for a thread that has ended"); m.s.mem.hand.running = 0 },
	}
	if err := m.s.serveThreads(); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
}

// The tables are lent and taken back in turn.
func TestTablesAreLentOnce(t *testing.T) {
	panics := func(f func()) (is bool) {
		defer func() { is = recover() != nil }()
		f()
		return false
	}
	for name, c := range map[string]struct {
		lent bool
		f    func(s *Server)
		want bool
	}{
		"lend":              {false, func(s *Server) { s.mem.lend() }, false},
		"lend twice":        {true, func(s *Server) { s.mem.lend() }, true},
		"regain":            {true, func(s *Server) { s.mem.regain() }, false},
		"regain without it": {false, func(s *Server) { s.mem.regain() }, true},
	} {
		s := alone()
		s.mem.hand = &handoff{s: s, gate: lendGate{}, lent: c.lent}
		if got := panics(func() { c.f(s) }); got != c.want {
			t.Errorf("%s: panics %v", name, got)
		}
	}
}

// What the server answers to a client that it does not know any more, and to requests that need no
// client.
func TestRequestsOfUnknownClients(t *testing.T) {
	for name, c := range map[string]struct {
		r      rpc.Request
		status rpc.Status
		stats  bool
		seq    uint32
	}{
		"known":          {r: rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 10}, seq: 10},
		"of no client":   {r: rpc.Request{Op: rpc.OpBeat, Client: 99, Seq: 10}, status: rpc.Unknown},
		"stale":          {r: rpc.Request{Op: rpc.OpBeat, Client: 2, Seq: 10}, status: rpc.Unknown},
		"ended":          {r: rpc.Request{Op: rpc.OpBeat, Client: 3, Seq: 10}, status: rpc.Unknown},
		"counters":       {r: rpc.Request{Op: rpc.OpStat, Seq: 10}, stats: true},
		"merged reports": {r: rpc.Request{Op: rpc.OpReports, Client: 99, Seq: 10, Parts: []rpc.Part{{Client: 1, Seq: 5, Records: []rpc.Record{{Key: 1, New: layout.Location{Handle: 2, Version: 1}}}}}}},
	} {
		m := newMailbox(t)
		m.s.mem.space, m.s.mem.memory = alone().mem.space, make([]memory, 2)
		m.s.pool.clients[2], m.s.pool.clients[3] = &client{id: 2, stale: true}, &client{id: 3, ended: true}
		m.s.pool.epoch = 4
		m.arrives(c.r.AppendTo(nil), func(r calls.Request) bool { m.s.request(r); return true })
		var a rpc.Answer
		if err := a.Parse(m.nic.mr.answer, c.r.Op); err != nil || a.Status != c.status || a.Seq != 10 || a.Epoch != 4 || (a.Stats != nil) != c.stats || m.s.mem.stats.Requests != 1 {
			t.Errorf("%s: %+v, %v, %+v", name, a, err, m.s.mem.stats)
		}
		if a.Stats != nil && (a.Stats.Clients != 3 || a.Stats.Requests != 1 || a.Stats.Nodes != 8 || a.Stats.Slots != 8) {
			t.Errorf("%s: %+v", name, a.Stats)
		}
		if cl := m.s.pool.clients[1]; cl.seq != c.seq || (cl.reported == 5) != (c.r.Op == rpc.OpReports) {
			t.Errorf("%s: the server has heard %+v", name, cl)
		}
	}
}

// Each request is handled by its own rules.
func TestRequestsAreDispatched(t *testing.T) {
	s, cl := lossy()
	at := node(s, 1, 1, 1)
	s.chains.keys[1] = &entry{key: 1, slot: 6, at: node(s, 1, 2, 1), opened: at, recorded: true, mirrored: true}
	s.pool.nodes.held.drop(at.Handle)
	ask := func(r rpc.Request) (a rpc.Answer) {
		r.Client = cl.id
		s.dispatch(cl, &r, &a)
		return a
	}
	if a := ask(rpc.Request{Op: rpc.OpQuery, Key: 1}); a.N != 1 || a.Slot != 6 || a.Locations[0] != node(s, 1, 2, 1) {
		t.Errorf("query: %+v", a)
	}
	if a := ask(rpc.Request{Op: rpc.OpOpen, Key: 1, At: at}); a.Status != rpc.OK || a.Slot != 6 {
		t.Errorf("open: %+v", a)
	}
	r := rpc.Request{Op: rpc.OpGC, N: 1}
	r.Records[0] = rpc.Record{Key: 1, New: node(s, 1, 3, 1)}
	r.Records[1] = rpc.Record{Key: 1, New: node(s, 1, 0, 1)} // beyond N
	if ask(r); s.chains.keys[1].at != node(s, 1, 3, 1) || len(s.chains.keys[1].reported) != 0 {
		t.Errorf("reports: %+v", s.chains.keys[1])
	}
	s.pool.release(node(s, 1, 1, 2))
	if a := ask(rpc.Request{Op: rpc.OpAlloc, N: 1}); a.N != 1 || a.Locations[0] != node(s, 1, 1, 2) {
		t.Errorf("alloc: %+v", a)
	}
}

// A request thread answers a query only if a node of the key is known, and its chain cannot lead
// into lost memory.
func TestQueriesThatARequestThreadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		known, lost, void, done bool
	}{
		"known":       {known: true, done: true},
		"known, void": {known: true, void: true},
		"not known":   {},
		"lost":        {known: true, lost: true},
	} {
		s := alone()
		h := &handoff{s: s, gate: lendGate{}}
		s.mem.hand, s.pool.void = h, c.void
		s.pool.clients[1] = &client{id: 1}
		if c.known {
			s.chains.keys[5] = &entry{key: 5, slot: 3, at: node(s, 1, 0, 1), lost: c.lost}
		}
		var a rpc.Answer
		if done, answered := h.quick(&rpc.Request{Op: rpc.OpQuery, Client: 1, Seq: 4, Key: 5}, &a); done != c.done || answered != c.done || (a.N == 1) != c.done {
			t.Errorf("%s: done %v, answered %v, %d nodes", name, done, answered, a.N)
		}
	}
}
