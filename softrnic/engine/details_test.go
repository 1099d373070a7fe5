package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A place in a table of deadlines is free again when its object is gone, and belongs to one object.
func TestPlacesAreUsedAgain(t *testing.T) {
	var a agenda[int]
	var at []uint32
	for range 4 {
		at = append(at, a.add(new(int)))
	}
	a.remove(at[1])
	a.remove(at[3])
	got := []uint32{a.add(new(int)), a.add(new(int)), a.add(new(int))}
	slices.Sort(got)
	if want := []uint32{at[1], at[3], 4}; !slices.Equal(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
}

// A NIC delivers what it sends to itself, and the answers, in the step of the post.
func TestExchangeWithMyselfTakesOneStep(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	p := connectPair(t, newSide(t, e), newSide(t, e), 0, verbs.MTU1024)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	if wcs := p.a.poll(t); len(wcs) != 1 || wcs[0].Status != verbs.Success {
		t.Errorf("completions %+v", wcs)
	}
}

// A long dialogue of a NIC with itself goes on at once when a step has reached its limit.
func TestLongExchangeWithMyself(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	p := connectPair(t, newSide(t, e), newSide(t, e), 0, verbs.MTU1024)
	const n = 3 * maxLoopRounds
	for i := range n { // each READ is its own round there and back
		p.post(t, p.a, verbs.SendWR{ID: uint64(i), Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key})
	}
	p.run(t, 0)
	if wcs := p.a.poll(t); len(wcs) != n {
		t.Errorf("%d of %d READs are complete before any time has passed", len(wcs), n)
	}
}

// A datagram to a group is received in the step in which it arrives.
func TestMulticastIsReceivedAtOnce(t *testing.T) {
	p := newUDPair(t, nil)
	other := udSide(t, p.b.e)
	for _, s := range []*side{p.b, other} {
		attach(t, s, testGroups[0])
		recvInto(t, s, 0, 1024)
	}
	p.b.out.Reset()
	ah := ahTo(t, p.a, verbs.AHAttr{DestGID: testGroups[0]})
	p.post(t, p.a, toGroup(p.a, ah, 8))
	for _, f := range p.a.out.Frames {
		p.b.e.Frame(0, 0, f, &p.b.out)
	}
	for i, s := range []*side{p.b, other} {
		if wcs := s.poll(t); len(wcs) != 1 || wcs[0].Status != verbs.Success {
			t.Errorf("queue pair %d: %+v", i, wcs)
		}
	}
}

// A NIC with one group answers queries, too.
func TestQueryOfTheOnlyGroup(t *testing.T) {
	s := newUDPair(t, nil).b
	attach(t, s, testGroups[0])
	reportsUntil(t, s, 0, 10*second)
	m := wire.Membership{Query: true, Source: ipA, Group: netipUnspecified4, MaxResponse: time.Second}
	s.e.Frame(10*second, 0, packetio.Frame{Data: m.AppendTo(nil, macA)}, &s.out)
	if _, said := reportsUntil(t, s, 10*second, 30*second); len(said) != 1 {
		t.Errorf("answered %+v", said)
	}
}

// A completion queue that any queue pair uses, for sends or for receives, cannot be destroyed.
func TestQueueInUseStays(t *testing.T) {
	s := newSide(t, newEngine(t, "a", 1, macA, nil, ipA))
	send, err := s.e.CreateCQ(4)
	wantNone(t, "the first queue", err)
	recv, err := s.e.CreateCQ(4)
	wantNone(t, "the second queue", err)
	qp, err := s.e.CreateQP(s.pd, send, recv, verbs.QPInit{})
	wantNone(t, "a queue pair", err)
	wantErr(t, "the queue of sends", send.Destroy(), verbs.ErrBusy)
	wantErr(t, "the queue of receives", recv.Destroy(), verbs.ErrBusy)
	wantNone(t, "the queue pair", qp.Destroy())
	wantNone(t, "the queue of sends", send.Destroy())
	wantNone(t, "the queue of receives", recv.Destroy())
}

// A completion queue can become larger up to the limit of the NIC, as long as it exists.
func TestResizeOfAQueue(t *testing.T) {
	s := newSide(t, newEngine(t, "a", 1, macA, func(c *Config) { c.Limits.CQE = 2048 }, ipA))
	grown := func(depth int) *cq.CQ {
		q, err := cq.New(depth)
		wantNone(t, "memory of a queue", err)
		return q
	}
	wantErr(t, "2049 entries", s.cq.Resize(grown(2049)), verbs.ErrLimit)
	wantNone(t, "2048 entries", s.cq.Resize(grown(2048)))
	if q, err := s.cq.Queue(); err != nil || q.Cap() != 2048 {
		t.Errorf("%v, %d entries", err, q.Cap())
	}
	wantNone(t, "the queue pair", s.qp.Destroy())
	wantNone(t, "the queue", s.cq.Destroy())
	wantErr(t, "a destroyed queue", s.cq.Resize(grown(4)), verbs.ErrClosed)
}

// The number of sends that are not complete is known until the queue pair is destroyed.
func TestSendsThatAreNotComplete(t *testing.T) {
	p := newPair(t, nil)
	for range 3 {
		p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	}
	if n := p.a.qp.Sending(); n != 3 {
		t.Errorf("%d sends, want 3", n)
	}
	wantNone(t, "the queue pair", p.a.qp.Destroy())
	if n := p.a.qp.Sending(); n != 0 {
		t.Errorf("a destroyed queue pair has %d sends", n)
	}
}

// What is counted on a completion queue wakes a ring that waits for it: a NOP of another ring, and the
// completion of a queue pair without a ring. Nothing waits afterwards.
func TestRingWaitsForOthers(t *testing.T) {
	for name, happen := range map[string]func(r *ringed){
		"a NOP of a ring": func(r *ringed) {
			other := r.add(ringB, sendring.Config{})
			r.put(ringB, 0, sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled})
			r.bell(other, 1)
		},
		"a queue pair without a ring": func(r *ringed) {
			connect(r.t, r.now, r.qp, r.qp, 0, verbs.MTU1024)
			wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: r.base + dataAt + 64, RKey: r.key}
			wantNone(r.t, "a WRITE", r.qp.PostSend(r.now, []verbs.SendWR{wr}, &r.out))
			r.run(second)
		},
	} {
		r := newRinged(t)
		q := r.add(ringA, sendring.Config{})
		r.put(ringA, 0, sendring.Entry{Op: sendring.Wait, Count: 1, Object: r.cq.ID()})
		r.put(ringA, 1, r.entry(sendring.Write, 0, dataAt, dataAt+8, 8))
		r.buf[dataAt+8] = 9
		r.bell(q, 2)
		if r.buf[dataAt] != 0 || len(r.e.rings.waiting) != 1 {
			t.Errorf("%s: the ring does not wait", name)
		}
		happen(r)
		if r.buf[dataAt] != 9 || len(r.e.rings.waiting) != 0 {
			t.Errorf("%s: memory has %d, %d queues are waited for", name, r.buf[dataAt], len(r.e.rings.waiting))
		}
	}
}

// A ring that is destroyed while it waits executes nothing when its count is reached.
func TestDestroyedRingWaitsForNothing(t *testing.T) {
	r := newRinged(t)
	q, other := r.add(ringA, sendring.Config{}), r.add(ringB, sendring.Config{})
	r.put(ringA, 0, sendring.Entry{Op: sendring.Wait, Count: 1, Object: r.cq.ID()})
	r.put(ringA, 1, r.entry(sendring.Write, 0, dataAt, dataAt+8, 8))
	r.buf[dataAt+8] = 9
	r.bell(q, 2)
	wantNone(t, "the queue pair", q.Destroy())
	if len(r.e.rings.waiting) != 0 {
		t.Error("it still waits")
	}
	r.put(ringB, 0, sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled})
	r.bell(other, 1)
	if r.buf[dataAt] != 0 {
		t.Error("it is executed")
	}
}

// A ring that is reset while it waits begins again without waiting, and one that is destroyed leaves
// its place to the next.
func TestResetRingWaitsForNothing(t *testing.T) {
	r := newRinged(t)
	for range 3 {
		q := r.add(ringA, sendring.Config{})
		r.put(ringA, 0, sendring.Entry{Op: sendring.Wait, Count: 1, Object: r.cq.ID()})
		r.bell(q, 1)
		if len(r.e.rings.waiting) != 1 {
			t.Error("the ring does not wait")
		}
		wantNone(t, "reset", q.ToReset())
		if len(r.e.rings.waiting) != 0 {
			t.Error("a ring that was reset waits")
		}
		wantNone(t, "the queue pair", q.Destroy())
	}
	if n := len(r.e.rings.places); n != 1 {
		t.Errorf("%d places for one ring at a time", n)
	}
}

// The loss of the carrier is counted once each time.
func TestLostCarriersAreCounted(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	for _, up := range []bool{false, false, true, true, false} {
		e.SetLink(up)
	}
	if n := e.Counters().LinkDowned; n != 2 {
		t.Errorf("%d times without carrier, want 2", n)
	}
}
