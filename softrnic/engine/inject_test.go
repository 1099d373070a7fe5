package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A queue pair that fails flushes its work with an event; it can be reset and reused.
func TestFailQP(t *testing.T) {
	p := newPair(t, nil)
	drainEvents(p.a.e)
	p.post(t, p.a, verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	recvInto(t, p.a, 0, 8)
	n := p.a.qp.Num()
	if err := p.a.e.FailQP(0, n, &p.a.out); err != nil {
		t.Fatal(err)
	}
	if wc := p.a.poll(t); len(wc) != 2 || wc[0].Status != verbs.WRFlushErr || wc[1].Status != verbs.WRFlushErr {
		t.Errorf("%+v", wc)
	}
	if got := drainEvents(p.a.e); !slices.Equal(got, []verbs.AsyncKind{verbs.EventQPFatal}) {
		t.Errorf("events %v", got)
	}
	if err := p.a.e.FailQP(0, n, &p.a.out); !errors.Is(err, verbs.ErrState) {
		t.Errorf("twice: %v", err)
	}
	if err := p.a.e.FailQP(0, n+1, &p.a.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("of no queue pair: %v", err)
	}
	p.a.out.Reset() // the WRITE is lost on the link
	for _, q := range []*QP{p.a.qp, p.b.qp} {
		if err := q.ToReset(); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, connectPair(t, p.a, p.b, 0, verbs.MTU1024))
	p.a.e.Down(0)
	if err := p.a.e.FailQP(0, n, &p.a.out); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("of a dead NIC: %v", err)
	}
}

// If a completion queue overruns, all its queue pairs fail; the completions in it can be polled.
func TestOverrunCQs(t *testing.T) {
	p := newPair(t, nil)
	other := newQP(t, p.a)
	connect(t, 0, other, p.b.qp, 0, verbs.MTU1024)
	drainEvents(p.a.e)
	p.post(t, p.a, verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	p.settle(t)
	if err := p.a.e.OverrunCQs(0, other.Num(), &p.a.out); err != nil {
		t.Fatal(err)
	}
	if got := drainEvents(p.a.e); !slices.Equal(got, []verbs.AsyncKind{verbs.EventCQErr, verbs.EventQPFatal, verbs.EventQPFatal}) {
		t.Errorf("events %v", got)
	}
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
		t.Errorf("%+v", wc)
	}
	if p.a.qp.q.State() != verbs.StateError || other.q.State() != verbs.StateError || p.a.e.counters.CqOverrun != 1 {
		t.Errorf("states %v and %v, %d overruns", p.a.qp.q.State(), other.q.State(), p.a.e.counters.CqOverrun)
	}
	if err := p.a.e.OverrunCQs(0, other.Num(), &p.a.out); !errors.Is(err, verbs.ErrState) {
		t.Errorf("twice: %v", err)
	}
	if err := p.a.e.OverrunCQs(0, 1, &p.a.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("of no queue pair: %v", err)
	}
}
