package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// seenFlow is what the table of flows says about a packet of a flow.
func seenFlow(f *conntrack.Flow) conntrack.Seen { return conntrack.Seen{Flow: f, Span: 1} }

// A place of the pool is used again, with nothing of the request that was held there before.
func TestPlacesOfThePool(t *testing.T) {
	p := newPool(4)
	a := p.add([]byte("one"), 2, 0, 5)
	b := p.add([]byte("second"), 3, -1, 6)
	if h := p.slots[a]; a != 0 || b != 1 || string(h.data) != "one" || h.span != 2 || h.at != 5 || h.next != -1 || h.port != 0 || h.hurried {
		t.Errorf("places %d and %d: %+v", a, b, h)
	}
	p.slots[b].hurried = true
	if p.remove(b); p.inUse != 1 || p.hosts[0].held != 0 || p.hosts[1].held != 1 {
		t.Errorf("%d in use, %d and %d of the hosts", p.inUse, p.hosts[0].held, p.hosts[1].held)
	}
	if c := p.add([]byte("3"), 1, 0, 7); c != b || string(p.slots[c].data) != "3" || p.slots[c].hurried || p.slots[c].port != 0 || len(p.slots) != 2 || len(p.free) != 0 {
		t.Errorf("place %d: %+v", c, p.slots[c])
	}
	if p.add(nil, 1, 0, 8); p.inUse != 3 || p.add(nil, 1, 0, 9) != -1 {
		t.Errorf("one host holds %d of 4", p.inUse)
	}
	var q queue
	for _, i := range []int32{1, 0, 2} {
		p.slots[i].next = -1
		q.push(&p, i)
	}
	if q.n != 3 || q.first != 1 || q.last != 2 || p.slots[1].next != 0 || p.slots[0].next != 2 || p.slots[2].next != -1 {
		t.Errorf("%+v: %+v", q, p.slots)
	}
}

// The pool knows the host of its last request at a port, and how many it has refused.
func TestHostsOfThePool(t *testing.T) {
	r, l, _ := answersTo(t)
	r.do(func(ctx *pipeline.Ctx) {
		h := &r.m.held.hosts[l.flow.Port+1]
		if i := r.m.keep(ctx, l.flow, []byte("x"), 1); i < 0 || h.addr != ipOf(1) || h.refused != 0 || h.peak != 1 || r.m.held.ports != ctx.Ports() {
			t.Errorf("place %d, %+v, %d ports", i, h, r.m.held.ports)
		}
		r.m.held.fill(l.flow.Port)
		h.addr = ipOf(9)
		if i := r.m.keep(ctx, l.flow, []byte("x"), 1); i != -1 || h.addr != ipOf(1) || h.refused != 1 {
			t.Errorf("place %d, %+v", i, h)
		}
		r.m.held.hosts[0].refused = 4
		if n := r.m.held.refused(); n != 5 {
			t.Errorf("%d were refused", n)
		}
	})
}

// A CAS is hurried if it waits for a value. Its wait is over when its time from its arrival is.
func TestCASIsHurried(t *testing.T) {
	p := newPool(4)
	q := &waitingRoom{}
	q.held.push(&p, p.add(nil, 1, 0, 100))
	if q.hurry(&p) || p.slots[0].hurried {
		t.Error("it waits for no value")
	}
	q.awaits = waiting{word: new(atomiccache.Word), time: time.Microsecond}
	if at := q.missUntil(&p); at != clock.Time(1100) {
		t.Errorf("it waits until %v", at)
	}
	q.held.n = 0
	if q.hurry(&p) || p.slots[0].hurried {
		t.Error("nothing is held")
	}
	q.held.n = 1
	if !q.hurry(&p) || !p.slots[0].hurried || q.awaits.word != nil {
		t.Error("it goes on waiting")
	}
}
