package ipc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// eventsOf takes the events of a program up to one of the given kind, and returns them with that
// one.
func eventsOf(t *testing.T, c verbs.Context, last verbs.AsyncKind) (kinds []verbs.AsyncKind) {
	t.Helper()
	for {
		ev, err := c.NextAsyncEvent(c.Runtime().Now().Add(10 * time.Second))
		if err != nil {
			t.Fatalf("after %v: %v", kinds, err)
		}
		if kinds = append(kinds, ev.Kind); ev.Kind == last {
			return kinds
		}
	}
}

// A program gets the NIC's events that occur while it is attached, and no earlier ones.
func TestNoEventsOfThePast(t *testing.T) {
	h := newHouse(t, 0, nil)
	flap := func() {
		h.dev[0].SetLink(false)
		h.dev[0].SetLink(true)
	}
	flap()
	a := h.open(t, 0)
	h.dev[0].With(func(e *engine.Engine) { // in one step, so the daemon does not poll in between
		e.SetLink(false)
		e.SetLink(true)
	})
	b := h.open(t, 0)
	flap()
	if got := eventsOf(t, a, verbs.EventPortActive); len(got) != 2 {
		t.Errorf("the first program hears %v of its first two", got)
	}
	if got := eventsOf(t, a, verbs.EventPortActive); len(got) != 2 {
		t.Errorf("the first program hears %v of the last two", got)
	}
	for _, c := range []*ipc.Context{a, b} {
		if c == b {
			if got := eventsOf(t, c, verbs.EventPortActive); len(got) != 2 {
				t.Errorf("the second program hears %v", got)
			}
		}
		if ev, err := c.NextAsyncEvent(c.Runtime().Now()); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("one more: %v, %v", ev, err)
		}
	}
}

// The daemon gets the events of its own objects and of the NIC while programs are attached, and
// none of the programs' objects.
func TestEventsOfTheDaemon(t *testing.T) {
	h := newHouse(t, 0, nil)
	c := h.open(t, 0)
	own := h.dev[0].Context()
	defer func() { must(t, own.Close()) }()
	for _, x := range []struct {
		name string
		ctx  verbs.Context
	}{{"program", c}, {"daemon", own}} {
		pd, err := x.ctx.AllocPD()
		must(t, err)
		cq, err := x.ctx.CreateCQ(8)
		must(t, err)
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
		must(t, err)
		must(t, qp.ToInit(verbs.ToInit{}))
		must(t, h.dev[0].FailQP(qp.QPN()))
		ev, err := x.ctx.NextAsyncEvent(x.ctx.Runtime().Now().Add(10 * time.Second))
		if err != nil || ev.Kind != verbs.EventQPFatal || ev.QPN != qp.QPN() {
			t.Errorf("%s: %v, %v", x.name, ev, err)
		}
	}
	h.dev[0].SetLink(false)
	for _, ctx := range []verbs.Context{c, own} {
		if got := eventsOf(t, ctx, verbs.EventPortErr); len(got) != 1 {
			t.Errorf("events %v", got)
		}
	}
	h.dev[0].SetLink(true)
}
