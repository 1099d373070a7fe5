package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The delayed events of two queues come at their deadlines, and change Activity, so that waiting
// applications are woken; that of a queue that is destroyed does not come.
func TestDelayedEvents(t *testing.T) {
	p := newPair(t, nil)
	e := p.a.e
	third, err := e.CreateCQ(4)
	if err != nil {
		t.Fatal(err)
	}
	var queues []*CQ
	for i, period := range []time.Duration{2000, 1000, 500} {
		cq := []*CQ{p.a.cq, third, nil}[i]
		if cq == nil {
			if cq, err = e.CreateCQ(4); err != nil {
				t.Fatal(err)
			}
		}
		qp, err := e.CreateQP(p.a.pd, cq, cq, verbs.QPInit{})
		if err != nil {
			t.Fatal(err)
		}
		connect(t, 0, qp, p.b.qp, 0, verbs.MTU1024)
		if err := cq.Moderate(9, period); err != nil {
			t.Fatal(err)
		}
		cq.q.Arm(false)
		if err := qp.PostRecv([]verbs.RecvWR{{ID: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := qp.ToError(7, &p.a.out); err != nil { // flushes the receive
			t.Fatal(err)
		}
		if err := qp.Destroy(); err != nil {
			t.Fatal(err)
		}
		queues = append(queues, cq)
	}
	if err := queues[2].Destroy(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []clock.Time{1007, 2007} {
		if at := e.Deadline(); at != want {
			t.Fatalf("event %d is due at %v, want %v", i, at, want)
		}
		before := e.Events.Activity()
		if e.Tick(want-1, &p.a.out); e.Events.Activity() != before {
			t.Errorf("event %d comes before its time", i)
		}
		e.Tick(want, &p.a.out)
		if q := queues[1-i].q; e.Events.Activity() == before || !q.Fired() {
			t.Errorf("event %d does not come", i)
		}
	}
	if at := e.Deadline(); at != clock.Never {
		t.Errorf("something is due at %v", at)
	}
	if err := queues[2].Moderate(1, 1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("moderation of a destroyed queue: %v", err)
	}
}

// When the NIC goes down, no event of its queues is due any more, and the next incarnation begins
// with none.
func TestDelayedEventsEndWithTheNIC(t *testing.T) {
	p := newPair(t, nil)
	if err := p.a.cq.Moderate(9, time.Hour); err != nil {
		t.Fatal(err)
	}
	p.a.cq.q.Arm(false)
	if err := p.a.qp.PostRecv([]verbs.RecvWR{{ID: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := p.a.qp.ToError(0, &p.a.out); err != nil {
		t.Fatal(err)
	}
	if at := p.a.e.Deadline(); at != clock.Time(time.Hour) {
		t.Fatalf("due at %v", at)
	}
	p.a.e.Down(0)
	p.a.e.Up()
	if at := p.a.e.Deadline(); at != clock.Never {
		t.Errorf("due at %v", at)
	}
	if again := newSide(t, p.a.e); again.cq.place != 0 {
		t.Errorf("the first queue has place %d", again.cq.place)
	}
}
