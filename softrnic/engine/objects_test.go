package engine

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func wantErr(t *testing.T, what string, err, sentinel error) {
	t.Helper()
	var op *verbs.OpError
	if !errors.Is(err, sentinel) || !errors.As(err, &op) {
		t.Errorf("%s: %v, want an OpError with %q", what, err, sentinel)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{
		MAC: macA, GIDs: []verbs.GID{verbs.GIDOf(ipA)}, Rand: rand.New(rand.NewPCG(1, 1)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return macB, true },
	}
	if _, err := New(good); err != nil {
		t.Errorf("good config: %v", err)
	}
	for name, spoil := range map[string]func(c *Config){
		"no rand":       func(c *Config) { c.Rand = nil },
		"no resolver":   func(c *Config) { c.Resolve = nil },
		"no address":    func(c *Config) { c.GIDs = nil },
		"group MAC":     func(c *Config) { c.MAC = wire.MAC{1} },
		"zero MAC":      func(c *Config) { c.MAC = wire.MAC{} },
		"tiny MTU":      func(c *Config) { c.LinkMTU = 100 },
		"negative CQEs": func(c *Config) { c.Limits.CQE = -1 },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDestroyOrder(t *testing.T) {
	s := newSide(t, newEngine(t, "a", 1, macA, nil, ipA))
	wantErr(t, "PD with a QP", s.pd.Dealloc(), verbs.ErrBusy)
	wantErr(t, "CQ with a QP", s.cq.Destroy(), verbs.ErrBusy)
	if err := s.qp.Destroy(); err != nil {
		t.Error(err)
	}
	wantErr(t, "PD with an MR", s.pd.Dealloc(), verbs.ErrBusy)
	for name, destroy := range map[string]func() error{"MR": s.mr.Dereg, "CQ": s.cq.Destroy} {
		if err := destroy(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantErr(t, name+" twice", destroy(), verbs.ErrClosed)
	}
	if err := s.pd.Dealloc(); err != nil {
		t.Error(err)
	}
	wantErr(t, "QP twice", s.qp.Destroy(), verbs.ErrClosed)
	wantErr(t, "PD twice", s.pd.Dealloc(), verbs.ErrClosed)
	if o := s.e.Tables.Objects(); o != (Objects{}) {
		t.Errorf("left: %+v", o)
	}
}

func TestLimits(t *testing.T) {
	e := newEngine(t, "a", 1, macA, func(c *Config) {
		c.Limits = Limits{PDs: 1, MRs: 1, CQs: 1, QPs: 1, CQE: 1024, QPWR: 128, SGE: 4, Inline: 256, RdAtomic: 4}
	}, ipA)
	s := newSide(t, e)
	for name, f := range map[string]func() error{
		"PD":     func() error { _, err := e.AllocPD(); return err },
		"MR":     func() error { _, err := e.RegMR(s.pd, make([]byte, 1), 0); return err },
		"CQ":     func() error { _, err := e.CreateCQ(1); return err },
		"depth":  func() error { _, err := e.CreateCQ(1025); return err },
		"QP":     func() error { _, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{}); return err },
		"WR":     func() error { _, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{MaxSendWR: 129}); return err },
		"SGE":    func() error { _, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{MaxSGE: 5}); return err },
		"inline": func() error { _, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{MaxInline: 257}); return err },
		"RTR":    func() error { return s.qp.ToRTR(0, verbs.ToRTR{MaxDestRdAtomic: 5}) },
		"RTS":    func() error { return s.qp.ToRTS(0, verbs.ToRTS{MaxRdAtomic: 5}) },
	} {
		wantErr(t, name, f(), verbs.ErrLimit)
	}
	if d := e.Device(); d.MaxQP != 1 || d.MaxRdAtomic != 4 || d.LinkMTU != 4200 {
		t.Errorf("device %+v", d)
	}
	wantErr(t, "negative", errOf(e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{MaxRecvWR: -1})), verbs.ErrInvalid)
}

func errOf[T any](_ T, err error) error { return err }

func TestAddressesAreChecked(t *testing.T) {
	s := newSide(t, newEngine(t, "a", 1, macA, func(c *Config) { c.LinkMTU = 1500 }, ipA, ip6A))
	if err := s.qp.ToInit(verbs.ToInit{}); err != nil {
		t.Fatal(err)
	}
	good := verbs.ToRTR{DestQPN: 5, DestGID: verbs.GIDOf(ipB), PathMTU: verbs.MTU1024}
	for name, c := range map[string]struct {
		spoil    func(a *verbs.ToRTR)
		sentinel error
	}{
		"MTU":          {func(a *verbs.ToRTR) { a.PathMTU = verbs.MTU2048 }, verbs.ErrInvalid},
		"no such GID":  {func(a *verbs.ToRTR) { a.SourceGID = 2 }, verbs.ErrInvalid},
		"negative GID": {func(a *verbs.ToRTR) { a.SourceGID = -1 }, verbs.ErrInvalid},
		"family":       {func(a *verbs.ToRTR) { a.SourceGID = 1 }, verbs.ErrInvalid},
		"stranger":     {func(a *verbs.ToRTR) { a.DestGID = verbs.GIDOf(netip.MustParseAddr("10.9.9.9")) }, verbs.ErrUnreachable},
	} {
		a := good
		c.spoil(&a)
		wantErr(t, name, s.qp.ToRTR(0, a), c.sentinel)
	}
	if err := s.qp.ToRTR(0, good); err != nil {
		t.Errorf("good attributes: %v", err)
	}
}

// Two NICs with different seeds give no object the same number, and a thousand numbers are not
// consecutive.
func TestQPNsCannotBeGuessed(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	s := newSide(t, e)
	near, seen := 0, map[wire.QPN]bool{s.qp.Num(): true}
	last := s.qp.Num()
	for range 1000 {
		q, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := q.Num()
		if n < 2 || n >= 0xffffff || seen[n] {
			t.Errorf("number %#x", n)
		}
		if d := int(n) - int(last); d > -1000 && d < 1000 {
			near++
		}
		seen[n], last = true, n
	}
	if near > 5 {
		t.Errorf("%d of 1000 numbers are near the one before", near)
	}
}

// A CQ that overflows raises one event, and its queue pairs fail; other queue pairs go on.
func TestCQOverflow(t *testing.T) {
	p := newPair(t, nil)
	small, err := p.a.e.CreateCQ(2)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.a.e.CreateQP(p.a.pd, small, p.a.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := p.b.e.CreateQP(p.b.pd, p.b.cq, p.b.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, 0, q, peer, 0, verbs.MTU1024)
	connect(t, 0, peer, q, 0, verbs.MTU1024)
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key}
	if err := q.PostSend(0, []verbs.SendWR{wr, wr, wr, wr}, &p.a.out); err != nil {
		t.Fatal(err)
	}
	p.run(t, second)
	if a, err := q.Query(); err != nil || a.State != verbs.StateError {
		t.Errorf("state %v, %v", a.State, err)
	}
	var kinds []verbs.AsyncKind
	for len(p.a.e.Events.ring) > 0 {
		ev, _ := p.a.e.Events.NextAsyncEvent()
		if kinds = append(kinds, ev.Kind); ev.Kind == verbs.EventCQErr && ev.CQ != small.ID() {
			t.Errorf("event of CQ %d, want %d", ev.CQ, small.ID())
		}
	}
	if len(kinds) != 2 || kinds[0] != verbs.EventCQErr || kinds[1] != verbs.EventQPFatal {
		t.Errorf("events %v", kinds)
	}
	if p.a.e.counters.CqOverrun == 0 {
		t.Error("not counted")
	}
	verify(t, p) // the other queue pair
	// A queue pair that is started again on the same CQ loses no completion without an event,
	// either.
	for _, x := range []*QP{q, peer} {
		if err := x.ToReset(); err != nil {
			t.Fatal(err)
		}
	}
	connect(t, p.now, q, peer, 0, verbs.MTU1024)
	connect(t, p.now, peer, q, 0, verbs.MTU1024)
	if err := q.PostSend(p.now, []verbs.SendWR{wr, wr, wr}, &p.a.out); err != nil {
		t.Fatal(err)
	}
	p.run(t, p.now+second)
	if a, err := q.Query(); err != nil || a.State != verbs.StateError {
		t.Errorf("state after the second overflow %v, %v", a.State, err)
	}
	if ev, ok := p.a.e.Events.NextAsyncEvent(); !ok || ev.Kind != verbs.EventQPFatal {
		t.Errorf("event after the second overflow %v %v", ok, ev.Kind)
	}
}

func TestAsyncEventsAreBounded(t *testing.T) {
	e := newEngine(t, "a", 1, macA, func(c *Config) { c.Limits.AsyncEvents = 3 }, ipA)
	for i := range 10 {
		e.SetLink(i%2 == 1)
	}
	n := 0
	for ; len(e.Events.ring) > 0; n++ {
		if ev, ok := e.Events.NextAsyncEvent(); !ok || n == 0 && ev.Kind != verbs.EventPortErr {
			t.Errorf("event %d: %+v", n, ev)
		}
	}
	if _, ok := e.Events.NextAsyncEvent(); ok || n != 3 {
		t.Errorf("%d events kept, want 3", n)
	}
}

func TestDownForgetsEverything(t *testing.T) {
	p := newPair(t, nil)
	e := p.b.e
	e.Down(0)
	if e.Tables.IsUp() || e.Deadline() != clock.Never || len(e.Listing().QPAttrs()) != 0 || e.Tables.Mem() != nil {
		t.Error("something is left")
	}
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key})
	p.settle(t)
	if len(p.b.out.Frames) != 0 || e.counters.RcvdPkts != 0 {
		t.Error("a NIC that is down answers")
	}
	var out packetio.Batch
	e.Tick(second, &out)
	wantErr(t, "PD", errOf(e.AllocPD()), verbs.ErrClosed)
	wantErr(t, "QP", p.b.qp.PostSend(0, nil, &out), verbs.ErrClosed)
	e.Up()
	e.Up()
	wantErr(t, "QP after Up", p.b.qp.PostSend(0, nil, &out), verbs.ErrClosed)
	wantErr(t, "old PD in the new NIC", errOf(e.CreateQP(p.b.pd, p.b.cq, p.b.cq, verbs.QPInit{})), verbs.ErrClosed)
	p.run(t, 10*second) // the peer's retries are exhausted
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.RetryExcErr {
		t.Errorf("peer: %+v", wc)
	}
}

// Reset and destruction remove the queue pair's completions from the CQ, and no others.
func TestResetPurgesCompletions(t *testing.T) {
	p := newPair(t, nil)
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key}
	p.post(t, p.a, wr, wr)
	p.run(t, second)
	if err := p.a.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	if wc := p.a.poll(t); len(wc) != 0 {
		t.Errorf("left %+v", wc)
	}
}

// The destruction of a queue pair takes no longer if its completion queue is full of other queue
// pairs' completions.
func TestEndBesideMany(t *testing.T) {
	a := newSide(t, newEngine(t, "a", 1, macA, nil, ipA))
	const depth = 1 << 20
	c, err := a.e.CreateCQ(depth)
	if err != nil {
		t.Fatal(err)
	}
	var out packetio.Batch
	make1 := func() *QP {
		t.Helper()
		q, err := a.e.CreateQP(a.pd, c, c, verbs.QPInit{})
		if err != nil {
			t.Fatal(err)
		}
		if err = q.ToInit(verbs.ToInit{}); err == nil {
			err = q.ToError(0, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	wrs := make([]verbs.SendWR, 64)
	fill := make1()
	for range depth/len(wrs) - 1 {
		if err := fill.PostSend(0, wrs, &out); err != nil {
			t.Fatal(err)
		}
	}
	for name, end := range map[string]func(q *QP) error{"reset": (*QP).ToReset, "destroy": (*QP).Destroy} {
		best := time.Hour
		for range 5 {
			q := make1()
			if err := q.PostSend(0, wrs[:1], &out); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := end(q); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(start))
		}
		if best > time.Millisecond {
			t.Errorf("%s held the NIC for %v", name, best)
		}
		if c.q.Len() != depth-len(wrs) {
			t.Errorf("%s left %d completions, want %d", name, c.q.Len(), depth-len(wrs))
		}
	}
}

// If a work request is refused, its index is reported, and the requests before it are queued.
func TestPostIndex(t *testing.T) {
	p := newPair(t, nil)
	good := verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key}
	bad := good
	bad.SGL = make([]verbs.SGE, 40)
	bad.Flags = 0
	err := p.a.qp.PostSend(0, []verbs.SendWR{good, good, bad, good}, &p.a.out)
	var op *verbs.OpError
	if !errors.As(err, &op) || op.Index != 2 {
		t.Errorf("%v, index %+v; want 2", err, op)
	}
	p.run(t, second)
	if n := len(p.a.poll(t)); n != 2 {
		t.Errorf("%d completions, want 2", n)
	}
}

// The same holds for receives.
func TestPostRecvIndex(t *testing.T) {
	p := newPair(t, nil)
	good := verbs.RecvWR{ID: 1, SGL: []verbs.SGE{p.a.sge(0, 8)}}
	bad := verbs.RecvWR{SGL: make([]verbs.SGE, 40)}
	err := p.a.qp.PostRecv([]verbs.RecvWR{good, good, bad, good})
	var op *verbs.OpError
	if !errors.As(err, &op) || op.Index != 2 {
		t.Errorf("%v, index %+v; want 2", err, op)
	}
	if a, err := p.a.qp.Query(); err != nil || a.RecvQueued != 2 {
		t.Errorf("%d receives queued, %v; want 2", a.RecvQueued, err)
	}
}
