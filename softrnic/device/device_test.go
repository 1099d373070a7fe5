package device

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// spins are the two ways to wait: to poll first, and to block at once.
var spins = map[string]time.Duration{"spin": 0, "block": -1}

func TestEndToEnd(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			_, a, b := newPair(t, spin, memcable.Config{})
			want := bytes.Repeat([]byte("rack"), 2500)
			must(t, a.mr.WriteAt(want, 0))
			must(t, a.qp.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, len(want))}, RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey()}))
			if wc := a.one(t); wc.ID != 1 || wc.Status != verbs.Success {
				t.Fatalf("WRITE: %+v", wc)
			}
			got := make([]byte, len(want))
			must(t, b.mr.ReadAt(got, 100))
			if !bytes.Equal(got, want) {
				t.Error("WRITE did not arrive")
			}
			must(t, a.qp.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(20000, len(want))}, RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey()}))
			if wc := a.one(t); wc.ID != 2 || wc.Status != verbs.Success {
				t.Fatalf("READ: %+v", wc)
			}
			must(t, a.mr.ReadAt(got, 20000))
			if !bytes.Equal(got, want) {
				t.Error("READ brought something else")
			}
			must(t, b.mr.Store64(0, 40))
			must(t, a.qp.PostSend(verbs.SendWR{ID: 3, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(8, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), CompareAdd: 2}))
			a.one(t)
			if v, err := b.mr.Load64(0); v != 42 || err != nil {
				t.Errorf("FAA: %d, %v", v, err)
			}
			must(t, b.qp.PostRecv(verbs.RecvWR{ID: 9, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
			must(t, a.qp.PostSend(verbs.SendWR{ID: 4, Op: verbs.OpSend, Flags: verbs.Inline, Data: []byte("hi")}))
			if wc := b.one(t); wc.ID != 9 || wc.ByteLen != 2 || wc.Opcode != verbs.WCRecv {
				t.Errorf("SEND: %+v", wc)
			}
		})
	}
}

// The progress goroutine alone retransmits lost packets, while the application blocks.
func TestLossyLink(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 3))
			var mu sync.Mutex
			d, a, b := newPair(t, spin, memcable.Config{Filter: func(int, int, packetio.Frame) int {
				mu.Lock()
				defer mu.Unlock()
				return min(r.IntN(10), 1) // a tenth is lost
			}})
			const adds, depth = 300, 16
			posted := 0
			for done := 0; done < adds; {
				for ; posted < adds && posted-done < depth; posted++ {
					must(t, a.qp.PostSend(verbs.SendWR{ID: uint64(posted), Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(8, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), CompareAdd: 1}))
				}
				if wc := a.one(t); wc.Status != verbs.Success || wc.ID != uint64(done) {
					t.Fatalf("completion %d: %+v", done, wc)
				}
				done++
			}
			if v, err := b.mr.Load64(0); v != adds || err != nil {
				t.Errorf("sum %d, %v; want %d", v, err, adds)
			}
			if c := d[0].Counters(); c.RetransPkts == 0 {
				t.Error("nothing was sent again")
			}
		})
	}
}

// The work for a peer that does not answer fails after exactly the time of timeout and retry count,
// in virtual time.
func TestRetryExceededTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := newPair(t, -1, memcable.Config{Filter: func(int, int, packetio.Frame) int { return 0 }})
		start := a.ctx.Runtime().Now()
		must(t, a.qp.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
		if wc := a.one(t); wc.Status != verbs.RetryExcErr {
			t.Errorf("status %v", wc.Status)
		}
		took := a.ctx.Runtime().Now().Sub(start)
		if one := 4096 * time.Nanosecond << 10; took < 8*one || took > 9*one+time.Second/100 {
			t.Errorf("gave up after %v, one timeout is %v and 8 transmissions were asked for", took, one)
		}
	})
}

func TestWaitDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := newPair(t, -1, memcable.Config{})
		rt := a.ctx.Runtime()
		for _, wait := range []func(clock.Time) error{
			a.cq.Wait, a.cq.WaitEvent,
			func(d clock.Time) error { _, err := a.ctx.NextAsyncEvent(d); return err },
		} {
			for _, d := range []time.Duration{0, -time.Second, time.Second} {
				start := rt.Now()
				err := wait(start.Add(d))
				if took := rt.Now().Sub(start); !errors.Is(err, verbs.ErrTimeout) || took != max(d, 0) {
					t.Errorf("wait of %v: %v after %v", d, err, took)
				}
			}
		}
		// Each arming leads to one event, for the first completion after it.
		must(t, a.cq.Arm(false))
		a.ctx.Runtime().Go("peer", func() {
			rt.Sleep(time.Second)
			must(t, b.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline, Data: []byte("x")}))
		})
		must(t, a.qp.PostRecv(verbs.RecvWR{ID: 5, SGL: []verbs.SGE{a.mr.SGE(0, 8)}}))
		start := rt.Now()
		must(t, a.cq.WaitEvent(clock.Never))
		if took := rt.Now().Sub(start); took != time.Second {
			t.Errorf("the event came after %v", took)
		}
		if err := a.cq.WaitEvent(a.in(time.Second)); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("a second event: %v", err)
		}
		must(t, a.cq.Wait(clock.Never)) // the completion is still there
		rt.Wait()
	})
}

// When the device is closed or its NIC crashes, waiting calls return the error, and so do later
// calls.
func TestCloseReleasesWaits(t *testing.T) {
	for name, end := range map[string]func(d *Device){
		"close": func(d *Device) { must(t, d.Close()); must(t, d.Close()) },
		"down":  func(d *Device) { d.Down(); d.Down() },
	} {
		for spinName, spin := range spins {
			t.Run(name+" "+spinName, func(t *testing.T) {
				d, a, b := newPair(t, spin, memcable.Config{})
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if err := a.cq.Wait(clock.Never); !errors.Is(err, verbs.ErrClosed) {
							t.Errorf("Wait: %v", err)
						}
					})
					wg.Go(func() {
						if err := a.cq.WaitEvent(clock.Never); !errors.Is(err, verbs.ErrClosed) {
							t.Errorf("WaitEvent: %v", err)
						}
					})
				}
				time.Sleep(5 * time.Millisecond) // let some of them block; the result is the same if they do not
				end(d[0])
				wg.Wait()
				checkDead(t, a)
				_ = b
			})
		}
	}
}

// checkDead calls every method of every dead object.
func checkDead(t *testing.T, a *node) {
	t.Helper()
	var wc [1]verbs.WC
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x")}
	for name, err := range map[string]error{
		"Poll":      second(a.cq.Poll(wc[:])),
		"Arm":       a.cq.Arm(false),
		"Destroy":   a.cq.Destroy(),
		"PostSend":  a.qp.PostSend(wr),
		"PostRecv":  a.qp.PostRecv(verbs.RecvWR{}),
		"Query":     second(a.qp.Query()),
		"ToInit":    a.qp.ToInit(verbs.ToInit{}),
		"ToRTR":     a.qp.ToRTR(verbs.ToRTR{}),
		"ToRTS":     a.qp.ToRTS(verbs.ToRTS{}),
		"ToSQD":     a.qp.ToSQD(),
		"ResumeRTS": a.qp.ResumeRTS(),
		"ToError":   a.qp.ToError(),
		"ToReset":   a.qp.ToReset(),
		"QP":        a.qp.Destroy(),
		"ReadAt":    a.mr.ReadAt(nil, 0),
		"WriteAt":   a.mr.WriteAt(nil, 0),
		"Load64":    second(a.mr.Load64(0)),
		"Store64":   a.mr.Store64(0, 1),
		"Dereg":     a.mr.Dereg(),
		"RegMR":     second(a.pd.RegMR(nil, 1, 0)),
		"CreateQP":  second(a.pd.CreateQP(verbs.QPInit{SendCQ: a.cq, RecvCQ: a.cq})),
		"Dealloc":   a.pd.Dealloc(),
		"AllocPD":   second(a.ctx.AllocPD()),
		"CreateCQ":  second(a.ctx.CreateCQ(1)),
	} {
		var op *verbs.OpError
		if !errors.Is(err, verbs.ErrClosed) || !errors.As(err, &op) {
			t.Errorf("%s on a dead NIC: %v, want an OpError with ErrClosed", name, err)
		}
	}
	must(t, a.ctx.Close())
}

func second[T any](_ T, err error) error { return err }

// After a crash the NIC has the same address and no objects, and works.
func TestNICComesBack(t *testing.T) {
	d, a, b := newPair(t, 0, memcable.Config{})
	d[1].Down()
	if ev, err := b.ctx.NextAsyncEvent(b.in(time.Second)); err != nil || ev.Kind != verbs.EventDeviceFatal {
		t.Errorf("event %v, %v", ev, err)
	}
	must(t, a.qp.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	if wc := a.one(t); wc.Status != verbs.RetryExcErr {
		t.Errorf("peer down: %v", wc.Status)
	}
	d[1].Up()
	if _, err := b.cq.Poll(nil); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("an object survived the crash: %v", err)
	}
	fresh := newNode(t, b.ctx)
	must(t, a.qp.ToReset())
	connect(t, a, fresh)
	must(t, a.qp.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: fresh.mr.Addr(), RKey: fresh.mr.RKey()}))
	if wc := a.one(t); wc.Status != verbs.Success {
		t.Errorf("after Up: %v", wc.Status)
	}
}

func TestPortFailureEndsTheNIC(t *testing.T) {
	d := openPair(t, -1, memcable.Config{})
	a := newNode(t, d[0].Context())
	must(t, d[0].core.link.port.Close())
	if err := a.cq.Wait(a.in(5 * time.Second)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	if d[0].Err() == nil {
		t.Error("no reason given")
	}
	d[0].Up()
	if _, err := d[0].Context().AllocPD(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a NIC without a port came back: %v", err)
	}
}

func TestLinkEvents(t *testing.T) {
	d := openPair(t, 0, memcable.Config{})
	ctx := d[0].Context()
	d[0].SetLink(false)
	d[0].SetLink(false)
	d[0].SetLink(true)
	for _, want := range []verbs.AsyncKind{verbs.EventPortErr, verbs.EventPortActive} {
		if ev, err := ctx.NextAsyncEvent(ctx.Runtime().Now().Add(time.Second)); err != nil || ev.Kind != want {
			t.Errorf("event %v, %v; want %v", ev, err, want)
		}
	}
	if c := d[0].Counters(); c.LinkDowned != 1 {
		t.Errorf("link_downed = %d", c.LinkDowned)
	}
}

func TestOpenNeedsItsParts(t *testing.T) {
	if _, err := Open(Config{}); err == nil {
		t.Error("no port, no error")
	}
	p, q := memcable.Pair(memcable.Config{})
	defer q.Close()
	defer p.Close()
	w := memcable.NewWaiter(p)
	defer w.Close()
	if _, err := Open(Config{Port: p, Waiter: w}); err == nil {
		t.Error("no engine config, no error")
	}
}
