package engine

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func newSRQ(t testing.TB, s *side, init verbs.SRQInit) *SRQ {
	t.Helper()
	srq, err := s.e.CreateSRQ(s.pd, init)
	if err != nil {
		t.Fatal(err)
	}
	return srq
}

func drainEvents(e *Engine) (kinds []verbs.AsyncKind) {
	for {
		ev, ok := e.Events.NextAsyncEvent()
		if !ok {
			return kinds
		}
		kinds = append(kinds, ev.Kind)
	}
}

// sharedPair returns a pair whose b takes its receives from srq.
func sharedPair(t testing.TB, p *pair, srq *SRQ, of verbs.QPType) (a, b *QP) {
	t.Helper()
	a, err := p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{Type: of})
	if err != nil {
		t.Fatal(err)
	}
	b, err = p.b.e.CreateQPOn(p.b.pd, p.b.cq, p.b.cq, srq, verbs.QPInit{Type: of})
	if err != nil {
		t.Fatal(err)
	}
	if of != verbs.UD {
		connect(t, 0, a, b, 0, verbs.MTU1024)
		connect(t, 0, b, a, 0, verbs.MTU1024)
		return a, b
	}
	for _, q := range []*QP{a, b} {
		for _, err := range []error{q.ToInit(verbs.ToInit{QKey: testQKey}), q.ToRTR(0, verbs.ToRTR{}), q.ToRTS(0, verbs.ToRTS{})} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return a, b
}

// Queue pairs of all types share receives: each message takes the oldest one, and the completion
// names the queue pair that took it. The limit event is raised once and names the queue.
func TestSharedReceives(t *testing.T) {
	p := newPair(t, nil)
	drainEvents(p.b.e)
	srq := newSRQ(t, p.b, verbs.SRQInit{MaxWR: 64})
	const receives = 30
	for i := range receives {
		if err := srq.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{p.b.sge(i*2000, 2000)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := srq.SetLimit(5); err != nil {
		t.Fatal(err)
	}
	ah := ahTo(t, p.a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[0]})
	type flow struct{ from, to *QP }
	var flows []flow
	for _, of := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.RC} {
		a, b := sharedPair(t, p, srq, of)
		flows = append(flows, flow{a, b})
	}
	for i := range receives {
		f := flows[i%len(flows)]
		n := 100 + i
		p.a.buf[0] = byte(i)
		wr := verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteQKey: testQKey, RemoteQPN: f.to.Num()}
		skip := 0
		if !f.from.connected() {
			wr.AH, skip = ah, verbs.GRHLen
		}
		if err := f.from.PostSend(0, []verbs.SendWR{wr}, &p.a.out); err != nil {
			t.Fatal(err)
		}
		p.settle(t)
		wc := p.b.poll(t)
		if len(wc) != 1 || wc[0].Status != verbs.Success || wc[0].ID != uint64(i) || wc[0].QPN != f.to.Num() || int(wc[0].ByteLen) != n+skip ||
			wc[0].SrcQPN != f.from.Num() || p.b.buf[i*2000+skip] != byte(i) {
			t.Fatalf("message %d: %+v", i, wc)
		}
		if attr, err := srq.Query(); err != nil || attr.Queued != receives-1-i {
			t.Fatalf("message %d: %+v, %v", i, attr, err)
		}
		limit := 0
		for ev, ok := p.b.e.Events.NextAsyncEvent(); ok; ev, ok = p.b.e.Events.NextAsyncEvent() {
			if ev.Kind != verbs.EventSRQLimit || ev.SRQ != srq.num {
				t.Errorf("event %+v", ev)
			}
			limit++
		}
		if want := i == receives-5; (limit == 1) != want {
			t.Errorf("message %d: %d limit events", i, limit)
		}
	}
}

// Objects in use cannot be destroyed; each invalid argument has its error; a crash ends all objects
// (IBTA 11.6.3.1/last-wqe).
func TestSRQLife(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Limits.SRQs = 1; c.Limits.QPWR = 200; c.Limits.SGE = 5 })
	s := p.b
	create := func(init verbs.SRQInit) error { _, err := s.e.CreateSRQ(s.pd, init); return err }
	for name, c := range map[string]struct {
		init verbs.SRQInit
		want error
	}{
		"deep":     {verbs.SRQInit{MaxWR: 201}, verbs.ErrLimit},
		"wide":     {verbs.SRQInit{MaxSGE: 6}, verbs.ErrLimit},
		"negative": {verbs.SRQInit{MaxWR: -1}, verbs.ErrInvalid},
	} {
		if err := create(c.init); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	srq := newSRQ(t, s, verbs.SRQInit{MaxWR: 1})
	if err := create(verbs.SRQInit{}); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("second of one: %v", err)
	}
	_, b := sharedPair(t, p, srq, verbs.RC)
	var op *verbs.OpError
	if err := srq.PostRecv(make([]verbs.RecvWR, 2)); !errors.As(err, &op) || op.Index != 1 || !errors.Is(err, verbs.ErrNoSpace) {
		t.Errorf("second receive: %v", err)
	}
	if err := b.PostRecv(make([]verbs.RecvWR, 1)); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a receive of its own: %v", err)
	}
	if err := srq.Destroy(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("in use: %v", err)
	}
	drainEvents(s.e)
	if err := b.ToError(0, &s.out); err != nil {
		t.Fatal(err)
	}
	if got := drainEvents(s.e); len(got) != 1 || got[0] != verbs.EventQPLastWQE {
		t.Errorf("events %v", got)
	}
	if err := b.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := s.pd.Dealloc(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("domain: %v", err)
	}
	if err := srq.Destroy(); err != nil {
		t.Fatal(err)
	}
	again := newSRQ(t, s, verbs.SRQInit{})
	if again.num == srq.num {
		t.Error("the number of a destroyed queue came back at once")
	}
	s.e.Down(0)
	_, queryErr := again.Query()
	for name, err := range map[string]error{
		"destroyed": srq.SetLimit(1), "query": queryErr, "post": again.PostRecv(nil), "limit": again.SetLimit(0), "destroy": again.Destroy(),
		"create on it": func() error { _, err := s.e.CreateQPOn(s.pd, s.cq, s.cq, again, verbs.QPInit{}); return err }(),
	} {
		if !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Receives of a shared queue name memory of its own domain, not of the queue pair's.
func TestSRQOfAnotherDomain(t *testing.T) {
	p := newPair(t, nil)
	owner := newSide(t, p.b.e)
	srq := newSRQ(t, owner, verbs.SRQInit{})
	a, b := sharedPair(t, p, srq, verbs.RC)
	if err := srq.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{owner.sge(0, 10)}}, {SGL: []verbs.SGE{p.b.sge(0, 10)}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.PostSend(0, []verbs.SendWR{{Flags: verbs.Inline, Data: []byte("hello")}}, &p.a.out); err != nil {
			t.Fatal(err)
		}
		p.settle(t)
	}
	wc := p.b.poll(t)
	if len(wc) != 2 || wc[0].Status != verbs.Success || wc[1].Status != verbs.LocProtErr || string(owner.buf[:5]) != "hello" || p.b.buf[0] != 0 {
		t.Errorf("%+v", wc)
	}
	if b.q.State() != verbs.StateError {
		t.Errorf("state %v", b.q.State())
	}
}
