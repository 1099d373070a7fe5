package cm

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// questions is one run of many SIDR requests to a datagram service over a wire that loses, doubles
// and reorders. Request k, known by its P_Key, is answered with queue pair 1000+k, rejected, or
// left unanswered.
type questions struct {
	t      *testing.T
	rnd    *rand.Rand
	now    clock.Time
	a, b   *node
	loss   float64
	flying []flight
	asked  map[mad.CommID]uint16 // by the request ID of the requester
	ends   map[uint16][]EventKind
	said   map[uint16]clock.Time // the time when the application at b has answered it
	open   []Event               // not answered yet
}

// Every request ends once. An answer is the answer to its request. The application does not get a
// request again while its answer is remembered. In the end no request is left (IBTA 12.11).
func TestRandomQuestions(t *testing.T) {
	answered := 0
	for seed := uint64(1); seed <= 150 && !t.Failed(); seed++ {
		q := &questions{
			t: t, rnd: rand.New(rand.NewPCG(seed, 8)), asked: map[mad.CommID]uint16{}, ends: map[uint16][]EventKind{}, said: map[uint16]clock.Time{},
		}
		q.loss = q.rnd.Float64() * 0.4
		q.a = newNode(t, "a", seed, nil)
		q.b = newNode(t, "b", seed, func(c *Config) { c.MaxRequests, c.Pending = 1+q.rnd.IntN(20), 5*time.Second })
		answered += q.run(seed)
	}
	if answered < 1000 {
		t.Errorf("%d answers: the test does not test much", answered)
	}
}

func (q *questions) run(seed uint64) (answered int) {
	if err := q.b.m.Listen(testService, netip.Prefix{}, 9); err != nil {
		q.t.Fatal(err)
	}
	const count = 30
	for k := range uint16(count) {
		id, err := q.a.m.Resolve(q.now, 1, addrs["a"], addrs["b"], mad.SIDRReq{Service: testService, PKey: k}, &q.a.out)
		if err != nil {
			q.t.Fatal(err)
		}
		q.asked[id] = k
		q.pass(q.now.Add(time.Duration(q.rnd.IntN(50)) * time.Millisecond))
		q.answer()
	}
	for range 50 {
		q.pass(q.now.Add(time.Duration(q.rnd.IntN(200)) * time.Millisecond))
		q.answer()
	}
	q.pass(q.now.Add(stormSettle))
	for k := range uint16(count) {
		want := []EventKind{EventResolved, EventClosed}
		if slices.Equal(q.ends[k], want) {
			answered++
		} else if want[0] = EventUnreachable; !slices.Equal(q.ends[k], want) {
			q.t.Errorf("seed %d: question %d ends with %v", seed, k, q.ends[k])
		}
	}
	for _, n := range []*node{q.a, q.b} {
		if live, ended := n.m.Conns(); live+ended+n.m.table.requests+n.m.table.due.Len()+len(n.m.table.byPeer) != 0 {
			q.t.Errorf("seed %d: %s: %d questions, %d in time-wait, %d requests are left", seed, n.name, live, ended, n.m.table.requests)
		}
	}
	return answered
}

// answer makes a random answer of the application at b.
func (q *questions) answer() {
	for len(q.open) > 0 && q.rnd.IntN(3) > 0 {
		i := q.rnd.IntN(len(q.open))
		e := q.open[i]
		q.open = slices.Delete(q.open, i, i+1)
		k := e.Message.(*mad.SIDRReq).PKey
		switch q.rnd.IntN(10) {
		case 0: // it is never answered
		case 1:
			q.say(k, e.Conn, mad.SIDRRep{Status: mad.SIDRRejected})
		default:
			q.say(k, e.Conn, mad.SIDRRep{QPN: 1000 + wire.QPN(k)})
		}
		q.collect()
	}
}

// say answers a request unless it has expired.
func (q *questions) say(k uint16, id mad.CommID, rep mad.SIDRRep) {
	if q.b.m.Answer(q.now, id, rep, &q.b.out) == nil {
		q.said[k] = q.now
	}
}

// collect handles events, and puts datagrams on the wire.
func (q *questions) collect() {
	for _, e := range q.a.out.Events {
		k := q.asked[e.Conn]
		q.ends[k] = append(q.ends[k], e.Kind)
		if rep, ok := e.Message.(*mad.SIDRRep); ok && rep.Status == mad.SIDRValid && rep.QPN != 1000+wire.QPN(k) {
			q.t.Errorf("question %d is answered with %v", k, rep.QPN)
		}
	}
	for _, e := range q.b.out.Events {
		if e.Kind == EventResolve {
			k := e.Message.(*mad.SIDRReq).PKey
			if at, ok := q.said[k]; ok && q.now.Sub(at) < mad.Time(q.b.m.cfg.TimeWait) {
				q.t.Errorf("question %d is asked again %v after its answer", k, q.now.Sub(at))
			}
			q.open = append(q.open, e)
		}
	}
	for _, n := range []*node{q.a, q.b} {
		for _, d := range n.out.Tx {
			for range 1 + q.rnd.IntN(2)*q.rnd.IntN(2) {
				if q.rnd.Float64() >= q.loss {
					q.flying = append(q.flying, flight{q.now.Add(time.Duration(q.rnd.IntN(3000)) * time.Microsecond), d})
				}
			}
		}
		n.out.Reset()
	}
}

// pass advances the time.
func (q *questions) pass(until clock.Time) {
	for range maxRounds {
		q.collect()
		at, next := clock.Min(q.a.m.Deadline(), q.b.m.Deadline()), -1
		for i, f := range q.flying {
			if f.at < at {
				at, next = f.at, i
			}
		}
		if at > until {
			q.now = until
			return
		}
		q.now = max(q.now, at)
		if next < 0 {
			q.a.m.Tick(q.now, &q.a.out)
			q.b.m.Tick(q.now, &q.b.out)
			continue
		}
		d := q.flying[next].d
		q.flying = slices.Delete(q.flying, next, next+1)
		n := q.a
		if d.Remote == addrs["b"] {
			n = q.b
		}
		n.m.Handle(q.now, Way{d.Remote, d.Local, 0xffff}, d.MAD[:], &n.out)
	}
	q.t.Fatal("it does not end")
}
