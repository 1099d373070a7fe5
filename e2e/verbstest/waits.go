package verbstest

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// testCQEvents arms a completion queue: each arming gives one event.
func testCQEvents(t *testing.T, w *World) {
	_, b, qa, qb := w.pair(t, verbs.RC)
	must(t, qb.PostRecv(make([]verbs.RecvWR, 4)...))
	must(t, b.cq.Arm(false))
	b.ctx.Runtime().Go("peer", func() {
		b.ctx.Runtime().Sleep(5 * time.Millisecond)
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline}))
	})
	must(t, b.cq.WaitEvent(b.in(patience)))
	wantErr(t, "second event", b.cq.WaitEvent(b.in(time.Millisecond)), verbs.ErrTimeout)
	if wc := b.next(); wc.Status != verbs.Success {
		t.Errorf("%+v", wc)
	}
	b.ctx.Runtime().Wait()
	// A queue that is armed for solicited completions gives no event for others.
	must(t, b.cq.Arm(true))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline}))
	b.next()
	wantErr(t, "unsolicited", b.cq.WaitEvent(b.in(20*time.Millisecond)), verbs.ErrTimeout)
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline | verbs.Solicited}))
	must(t, b.cq.WaitEvent(b.in(patience)))
	if wc := b.next(); !wc.Solicited {
		t.Errorf("not solicited: %+v", wc)
	}
	// A completion with an error counts as solicited. Completions from before the arming give no
	// event.
	must(t, b.cq.Arm(true))
	must(t, qb.ToError())
	must(t, b.cq.WaitEvent(b.in(patience)))
	must(t, b.cq.Arm(false))
	wantErr(t, "old completion", b.cq.WaitEvent(b.in(20*time.Millisecond)), verbs.ErrTimeout)
}

// testDeadlines waits for events that never come.
func testDeadlines(t *testing.T, w *World) {
	a := w.end(t, 0)
	rt := a.ctx.Runtime()
	for what, wait := range map[string]func(clock.Time) error{
		"Wait": a.cq.Wait, "WaitEvent": a.cq.WaitEvent,
		"NextAsyncEvent": func(d clock.Time) error { return second(a.ctx.NextAsyncEvent(d)) },
	} {
		for _, d := range []time.Duration{0, -time.Second, 10 * time.Millisecond} {
			start := rt.Now()
			wantErr(t, what, wait(start.Add(d)), verbs.ErrTimeout)
			if took := rt.Now().Sub(start); took < d || took > d+5*time.Second {
				t.Errorf("%s of %v took %v", what, d, took)
			}
		}
	}
	var wc [4]verbs.WC
	for range 100 { // polls of an empty queue
		if n, err := a.cq.Poll(wc[:]); n != 0 || err != nil {
			t.Fatalf("poll: %d, %v", n, err)
		}
	}
}

// testOverrun overruns a completion queue that is not polled.
func testOverrun(t *testing.T, w *World) {
	a, b := w.ends(t)
	small := need(a.ctx.CreateCQ(4))(t)
	q, _ := a.joined(b, verbs.RC, func(i *verbs.QPInit) { i.SendCQ = small })
	sent := 0
	for ; sent < 64 && a.state(q) == verbs.StateRTS; sent++ { // the queue may be longer than requested
		if err := q.PostSend(a.write(uint64(sent), b, 8)); err != nil {
			t.Fatal(err)
		}
		a.ctx.Runtime().Sleep(time.Millisecond)
	}
	ev := a.event(verbs.EventCQErr)
	if id, ok := small.(interface{ ID() uint32 }); ok && ev.CQ != id.ID() {
		t.Errorf("event of queue %d, want %d", ev.CQ, id.ID())
	}
	a.becomes(q, verbs.StateError)
	for i := range uint64(4) { // the requested number of completions is kept, the oldest first
		if wc := nextOf(t, a, small); wc.ID != i || wc.Status != verbs.Success {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
}

// testResizeCQ enlarges a completion queue that has completions, and later reduces it.
func testResizeCQ(t *testing.T, w *World) {
	a, b := w.ends(t)
	small := need(a.ctx.CreateCQ(4))(t)
	q, _ := a.joined(b, verbs.RC, func(i *verbs.QPInit) { i.SendCQ = small })
	post := func(from, to uint64) {
		for id := from; id < to; id++ {
			must(t, q.PostSend(a.write(id, b, 8)))
		}
	}
	post(0, 2)
	must(t, small.Resize(200))
	post(2, 100)
	for id := range uint64(100) {
		if wc := nextOf(t, a, small); wc.ID != id || wc.Status != verbs.Success {
			t.Fatalf("completion %d: %+v", id, wc)
		}
	}
	must(t, small.Resize(1))
	post(100, 101)
	if wc := nextOf(t, a, small); wc.ID != 100 || wc.Status != verbs.Success {
		t.Errorf("%+v", wc)
	}
	wantErr(t, "depth 0", small.Resize(0), verbs.ErrInvalid)
	wantErr(t, "too deep", small.Resize(a.ctx.Device().MaxCQE+1), verbs.ErrLimit)
	must(t, q.Destroy())
	must(t, small.Destroy())
	wantErr(t, "destroyed", small.Resize(8), verbs.ErrClosed)
}

// testModerateCQ delays completion events until a number of completions or a period. Completions
// themselves can be polled without delay.
func testModerateCQ(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	must(t, qb.PostRecv(make([]verbs.RecvWR, 8)...))
	receive := func(n int) {
		t.Helper()
		for range n {
			must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline}))
			if wc := b.next(); wc.Status != verbs.Success {
				t.Errorf("%+v", wc)
			}
		}
	}
	must(t, b.cq.Moderate(3, time.Hour))
	must(t, b.cq.Arm(false))
	receive(2)
	wantErr(t, "two of three", b.cq.WaitEvent(b.in(20*time.Millisecond)), verbs.ErrTimeout)
	receive(1)
	must(t, b.cq.WaitEvent(b.in(patience)))
	must(t, b.cq.Moderate(3, time.Millisecond))
	must(t, b.cq.Arm(false))
	receive(1)
	must(t, b.cq.WaitEvent(b.in(patience)))
	must(t, b.cq.Moderate(3, time.Hour))
	must(t, b.cq.Arm(false))
	receive(1)
	must(t, b.cq.Moderate(0, 0)) // the delayed event is given now
	must(t, b.cq.WaitEvent(b.in(patience)))
	must(t, b.cq.Arm(false))
	receive(1)
	must(t, b.cq.WaitEvent(b.in(patience)))
	wantErr(t, "negative count", b.cq.Moderate(-1, 0), verbs.ErrInvalid)
	wantErr(t, "negative period", b.cq.Moderate(2, -1), verbs.ErrInvalid)
	other := need(a.ctx.CreateCQ(4))(t)
	must(t, other.Destroy())
	wantErr(t, "destroyed", other.Moderate(2, 1), verbs.ErrClosed)
}

// testDestroyEndsWaits destroys a completion queue while other threads wait for completions and
// events of it.
func testDestroyEndsWaits(t *testing.T, w *World) {
	a := w.end(t, 0)
	ended := a.waits(3)
	must(t, a.cq.Destroy())
	ended()
}

// waits starts n threads that wait for completions, and n that wait for events. ended waits until the
// end of the completion queue has ended them all.
func (e *end) waits(n int) (ended func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { wantErr(e.t, "wait", e.cq.Wait(clock.Never), verbs.ErrClosed) })
		wg.Go(func() { wantErr(e.t, "wait for event", e.cq.WaitEvent(clock.Never), verbs.ErrClosed) })
	}
	e.ctx.Runtime().Sleep(5 * time.Millisecond) // so that some of them sleep; the tests do not depend on it
	return wg.Wait
}

// testThreads lets threads of one application work at the same time, each with a connection of its
// own.
func testThreads(t *testing.T, w *World) {
	a, b := w.ends(t)
	const threads, rounds = 6, 150
	var wg sync.WaitGroup
	for i := range threads {
		cq := need(a.ctx.CreateCQ(16))(t)
		q, _ := a.joined(b, verbs.RC, func(q *verbs.QPInit) { q.SendCQ = cq })
		wg.Go(func() {
			for r := range uint64(rounds) {
				at := i * 64
				if err := a.mr.Store64(at, r); err != nil {
					t.Error(err)
					return
				}
				err := q.PostSend(
					verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(at, 8)}, RemoteAddr: b.mr.Addr() + uint64(at), RKey: b.mr.RKey()},
					a.remote(r, verbs.OpRead, at+32, 8, b.mr, uint64(at)),
				)
				if err != nil {
					t.Error(err)
					return
				}
				if wc := nextOf(t, a, cq); wc.ID != r || wc.Status != verbs.Success {
					t.Errorf("thread %d: %+v", i, wc)
					return
				}
				if v, err := a.mr.Load64(at + 32); v != r || err != nil {
					t.Errorf("thread %d wrote %d and read %d, %v", i, r, v, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// testClose closes a context that has objects and waiting threads, and opens another one.
func testClose(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	mw := need(a.pd.AllocMW())(t)
	dm := need(a.ctx.AllocDM(a.ctx.Device().MaxDM))(t)
	must(t, second(a.pd.RegDM(dm, 0, 64, full)))
	srq := need(a.pd.CreateSRQ(verbs.SRQInit{}))(t)
	a.post(qa, a.write(1, b, 8), verbs.Success)
	var wg sync.WaitGroup
	wg.Go(func() { wantErr(t, "wait", a.cq.Wait(clock.Never), verbs.ErrClosed) })
	wg.Go(func() {
		wantErr(t, "async event", drain(a.ctx), verbs.ErrClosed)
	})
	a.ctx.Runtime().Sleep(5 * time.Millisecond) // so that they sleep; the test does not depend on it
	must(t, a.ctx.Close())
	must(t, a.ctx.Close())
	wg.Wait()
	var wc [1]verbs.WC
	wantErrs(t, verbs.ErrClosed, map[string]error{
		"poll": second(a.cq.Poll(wc[:])), "send": qa.PostSend(inline(0, verbs.OpSend, "x")), "query": second(qa.Query()), "window": second(mw.RKey()),
		"region": a.mr.ReadAt(make([]byte, 1), 0), "SRQ": srq.PostRecv(verbs.RecvWR{}), "PD": second(a.ctx.AllocPD()), "CQ": second(a.ctx.CreateCQ(1)),
		"device memory": dm.ReadAt(make([]byte, 1), 0), "async event": second(a.ctx.NextAsyncEvent(clock.Never)),
	})
	must(t, b.mr.Store64(0, 1)) // the peer's context still works
	b.state(qb)
	if w.Again == nil {
		t.Skip("this world opens each NIC once")
	}
	again := w.Again(t, 0)
	must(t, second(again.AllocDM(again.Device().MaxDM))) // all device memory is free again
}

// drain takes asynchronous events until an error.
func drain(ctx verbs.Context) error {
	for {
		if _, err := ctx.NextAsyncEvent(clock.Never); err != nil {
			return err
		}
	}
}

// testDown crashes a NIC and starts it again.
func testDown(t *testing.T, w *World) {
	if w.Faults == nil {
		t.Skip("nothing makes the NICs of this world fail")
	}
	a, b, qa, _ := w.pair(t, verbs.RC)
	ended := a.waits(2)
	w.Faults.Down(0)
	ended()
	a.event(verbs.EventDeviceFatal)
	var wc [1]verbs.WC
	wantErrs(t, verbs.ErrClosed, map[string]error{
		"poll": second(a.cq.Poll(wc[:])), "arm": a.cq.Arm(false), "send": qa.PostSend(a.write(1, b, 8)), "receive": qa.PostRecv(verbs.RecvWR{}),
		"query": second(qa.Query()), "read": a.mr.ReadAt(make([]byte, 1), 0), "load": second(a.mr.Load64(0)), "store": a.mr.Store64(0, 1),
		"region": second(a.pd.RegMR(nil, 64, full)), "PD": second(a.ctx.AllocPD()), "CQ": second(a.ctx.CreateCQ(1)),
		"destroy QP": qa.Destroy(), "destroy CQ": a.cq.Destroy(), "dereg": a.mr.Dereg(), "dealloc": a.pd.Dealloc(),
	})
	w.Faults.Up(0)
	fresh := w.end(t, 0)
	q, _ := fresh.joined(b, verbs.RC, nil)
	fresh.post(q, fresh.write(2, b, 64), verbs.Success)
}

// testFaults makes single objects of a NIC and the link fail, and expects the asynchronous events.
func testFaults(t *testing.T, w *World) {
	if w.Faults == nil {
		t.Skip("nothing makes the NICs of this world fail")
	}
	a, b, qa, _ := w.pair(t, verbs.RC)
	must(t, qa.PostRecv(verbs.RecvWR{ID: 1}))
	must(t, w.Faults.FailQP(0, qa.QPN()))
	ev := a.event(verbs.EventQPFatal)
	expect(t, ev.QPN == qa.QPN(), "fatal: %#x", ev.QPN)
	a.want(1, verbs.WRFlushErr)
	q, _ := a.joined(b, verbs.RC, nil)
	must(t, w.Faults.OverrunCQs(0, q.QPN()))
	a.event(verbs.EventCQErr)
	a.becomes(q, verbs.StateError)
	w.Faults.Link(0, false)
	a.event(verbs.EventPortErr)
	w.Faults.Link(0, true)
	a.event(verbs.EventPortActive)
}

// testConnect makes and ends connections by name.
func testConnect(t *testing.T, w *World) {
	if w.Managers[0] == nil || w.Managers[1] == nil {
		t.Skip("no connection managers in this world")
	}
	a, b := w.ends(t)
	to := b.ctx.Device().GIDs[w.Family].Addr()
	l := need(w.Managers[1].Listen("suite"))(t)
	qa, qb, refused := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil), a.qp(verbs.RC, nil)
	long := strings.Repeat("a reason and an answer that fill what room there is; ", 10)[:200]
	served := make(chan error, 1)
	go func() {
		r, err := l.Accept(b.in(patience))
		if err == nil {
			expect(t, string(r.Private()) == "hello" && r.Service() == "suite" && r.Peer() == a.ctx.Device().GIDs[w.Family].Addr(), "request %q of %v with %q", r.Service(), r.Peer(), r.Private())
			err = r.Accept(qb, rdmacm.Params{}, []byte("welcome"), b.in(patience))
		}
		if err == nil {
			if r, err = l.Accept(b.in(patience)); err == nil {
				err = r.Reject("full")
				wantErr(t, "second answer", r.Reject("no"), verbs.ErrState)
			}
		}
		if err == nil {
			if r, err = l.Accept(b.in(patience)); err == nil {
				wantErr(t, "long answer", r.Answer("", make([]byte, rdmacm.MaxAnswer+1)), verbs.ErrInvalid)
				err = r.Answer(long, []byte(long)[:rdmacm.MaxAnswer])
			}
		}
		served <- err
	}()
	got := need(w.Managers[0].Dial(qa, to, "suite", rdmacm.Params{}, []byte("hello"), a.in(patience)))(t)
	expect(t, string(got) == "welcome", "private data %q", got)
	a.post(qa, a.write(1, b, 8), verbs.Success)
	dial := func(service string) error {
		return second(w.Managers[0].Dial(refused, to, service, rdmacm.Params{}, nil, a.in(patience)))
	}
	err := dial("suite")
	var rej *rdmacm.RejectError
	if !errors.As(err, &rej) || rej.Reason != "full" {
		t.Errorf("refused: %v", err)
	}
	if rej.Private != nil {
		t.Errorf("refused with the answer %q", rej.Private)
	}
	err = dial("suite")
	if !errors.As(err, &rej) || string(rej.Private) != long[:rdmacm.MaxAnswer] || len(rej.Reason) < 50 || !strings.HasPrefix(long, rej.Reason) {
		t.Errorf("answered: %v", err)
	}
	must(t, <-served)
	wantErr(t, "no such service", dial("unserved"), rdmacm.ErrRejected)
	wantErr(t, "second listener", second(w.Managers[1].Listen("suite")), rdmacm.ErrInUse)
	wantErr(t, "no peer dials", second(l.Accept(b.in(time.Millisecond))), verbs.ErrTimeout)
	testDisconnect(t, w, a, b, qa, qb)
	must(t, l.Close())
	must(t, l.Close())
	wantErr(t, "accept after close", second(l.Accept(clock.Never)), verbs.ErrClosed)
}

// disconnecter is implemented by connection managers that can end a connection.
type disconnecter interface {
	Disconnect(qp verbs.QP, deadline clock.Time) error
	AwaitDisconnect(qp verbs.QP, deadline clock.Time) error
}

func testDisconnect(t *testing.T, w *World, a, b *end, qa, qb verbs.QP) {
	x, ok := w.Managers[0].(disconnecter)
	y, also := w.Managers[1].(disconnecter)
	if !ok || !also {
		return
	}
	must(t, x.Disconnect(qa, a.in(patience)))
	must(t, y.AwaitDisconnect(qb, b.in(patience)))
	a.becomes(qa, verbs.StateError)
	b.becomes(qb, verbs.StateError)
	wantErr(t, "second end", x.Disconnect(qa, a.in(patience)), verbs.ErrState)
}

// testAttributes sets the attributes of a queue pair, and checks that a query returns them. It also
// checks the device's attributes and the runtime.
func testAttributes(t *testing.T, w *World) {
	a, b := w.ends(t)
	dev := a.ctx.Device()
	if len(dev.GIDs) == 0 || dev.MAC == b.ctx.Device().MAC || dev.MaxQP == 0 || dev.MaxMsgSize == 0 || dev.ActiveMTU == 0 {
		t.Errorf("device: %+v", dev)
	}
	q := a.qp(verbs.RC, nil)
	init := verbs.ToInit{Access: verbs.RemoteRead, PKeyIndex: len(dev.PKeys) - 1}
	rtr := verbs.ToRTR{
		DestQPN: 0x123456, DestGID: b.ctx.Device().GIDs[w.Family], SourceGID: w.Family, RecvPSN: 0xabcdef, PathMTU: verbs.MTU512,
		MaxDestRdAtomic: 3, MinRNRTimer: 5, TrafficClass: 6, HopLimit: 7, FlowLabel: 0xabcde,
	}
	rts := verbs.ToRTS{SendPSN: 0x111111, Timeout: 15, RetryCount: 3, RNRRetry: 4, MaxRdAtomic: 5}
	must(t, q.ToInit(init))
	must(t, q.ToRTR(rtr))
	must(t, q.ToRTS(rts))
	attr := need(q.Query())(t)
	want := verbs.QPAttr{
		QPN: q.QPN(), Type: verbs.RC, State: verbs.StateRTS, Init: init, RTR: rtr, RTS: rts, SendPSN: rts.SendPSN, RecvPSN: rtr.RecvPSN,
	}
	if !reflect.DeepEqual(attr, want) {
		t.Errorf("attributes\n%+v, want\n%+v", attr, want)
	}
	rt := a.ctx.Runtime()
	start := rt.Now()
	rt.Sleep(2 * time.Millisecond)
	if rt.Now().Sub(start) < 2*time.Millisecond {
		t.Error("time stands still")
	}
	ran := false
	rt.Go("thread", func() { ran = true })
	rt.Wait()
	if !ran {
		t.Error("no thread ran")
	}
	if rt.Rand().Uint64() == rt.Rand().Uint64() {
		t.Error("random numbers repeat")
	}
}
