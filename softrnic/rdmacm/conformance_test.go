package rdmacm_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func TestConnect(t *testing.T) { onEach(t, testConnect) }

func testConnect(t *testing.T, kind string) {
	a, b := newPair(t, kind, 0)
	l, err := b.cm.Listen("memory")
	must(t, err)
	qa, qb := a.newQP(t), b.newQP(t)
	mr, err := b.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	must(t, err)
	done := serve(t, b, l, func(r rdmacm.Request) error {
		if r.Service() != "memory" || string(r.Private()) != "hello" || r.Peer() != ips[0] {
			t.Errorf("request %q from %v with %q", r.Service(), r.Peer(), r.Private())
		}
		if err := r.Accept(qb, rdmacm.Params{PathMTU: verbs.MTU2048, RdAtomic: 4}, []byte("welcome"), b.in(patience)); err != nil {
			return err
		}
		wantErr(t, "second answer", r.Reject("no"), verbs.ErrState)
		wantErr(t, "third answer", r.Accept(qb, rdmacm.Params{}, nil, clock.Never), verbs.ErrState)
		return nil
	})
	got, err := a.cm.Dial(qa, ips[1], "memory", rdmacm.Params{RetryCount: rdmacm.NoRetry, Timeout: 20}, []byte("hello"), a.in(patience))
	must(t, err)
	must(t, <-done)
	if string(got) != "welcome" {
		t.Errorf("private data %q", got)
	}
	x, _ := qa.Query()
	y, _ := qb.Query()
	if x.State != verbs.StateRTS || y.State != verbs.StateRTS {
		t.Errorf("states %v and %v", x.State, y.State)
	}
	if x.RTR.PathMTU != verbs.MTU2048 || y.RTR.PathMTU != verbs.MTU2048 || x.RTS.MaxRdAtomic != 4 || y.RTR.MaxDestRdAtomic != 4 {
		t.Errorf("not agreed: %+v / %+v", x, y)
	}
	own := verbs.ToRTS{Timeout: 15, RetryCount: 7, RNRRetry: 7} // attributes of the side that leaves them to its peer
	if kind == "CM" {
		own.Timeout, own.RetryCount = 20, 0 // attributes that its peer asked for
	}
	if x.RTS.RetryCount != 0 || x.RTS.RNRRetry != 7 || x.RTS.Timeout != 20 ||
		y.RTS.RetryCount != own.RetryCount || y.RTS.RNRRetry != own.RNRRetry || y.RTS.Timeout != own.Timeout {
		t.Errorf("parameters: %+v / %+v", x.RTS, y.RTS)
	}
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("data"), RemoteAddr: mr.Addr(), RKey: mr.RKey()}))
	must(t, a.cq.Wait(a.in(patience)))
	var wc [1]verbs.WC
	if n, err := a.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.Success {
		t.Errorf("first WRITE: %d, %v, %v", n, err, wc[0].Status)
	}
	if accepted(b.cm) != 1 || dialed(a.cm) != 1 {
		t.Errorf("%d accepted, %d dialed", accepted(b.cm), dialed(a.cm))
	}
}

func TestManyAtTheSameTime(t *testing.T) { onEach(t, testManyAtTheSameTime) }

func testManyAtTheSameTime(t *testing.T, kind string) {
	const peers = 24
	a, b := newPair(t, kind, 0)
	l, err := b.cm.Listen("svc")
	must(t, err)
	var wg sync.WaitGroup
	for range peers {
		qa, qb := a.newQP(t), b.newQP(t)
		wg.Go(func() {
			r, err := l.Accept(b.in(patience))
			if err == nil {
				err = r.Accept(qb, rdmacm.Params{}, nil, b.in(patience))
			}
			if err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := a.cm.Dial(qa, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := accepted(b.cm); n != peers {
		t.Errorf("%d accepted, want %d", n, peers)
	}
}

func TestRefusals(t *testing.T) { onEach(t, testRefusals) }

func testRefusals(t *testing.T, kind string) {
	a, b := newPair(t, kind, 0)
	l, err := b.cm.Listen("svc")
	must(t, err)
	qa := a.newQP(t)
	dial := func(service string, private []byte) error {
		_, err := a.cm.Dial(qa, ips[1], service, rdmacm.Params{}, private, a.in(patience))
		return err
	}
	wantErr(t, "no service", dial("unserved", nil), rdmacm.ErrRejected)
	wantErr(t, "empty name", dial("", nil), verbs.ErrInvalid)
	wantErr(t, "long name", dial(strings.Repeat("x", 65), nil), verbs.ErrInvalid)
	wantErr(t, "long private data", dial("svc", make([]byte, 257)), verbs.ErrInvalid)
	done := serve(t, b, l, func(r rdmacm.Request) error { return r.Reject("the region is gone") })
	err = dial("svc", nil)
	var rej *rdmacm.RejectError
	if !errors.As(err, &rej) || rej.Reason != "the region is gone" {
		t.Errorf("rejected: %v", err)
	}
	must(t, <-done)
	qb := b.newQP(t)
	must(t, qb.ToInit(verbs.ToInit{}))
	done = serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, rdmacm.Params{}, nil, clock.Never) })
	wantErr(t, "responder in the wrong state", dial("svc", nil), rdmacm.ErrRejected)
	wantErr(t, "at the responder", <-done, verbs.ErrState)
	if s := state(t, qa); s != verbs.StateReset {
		t.Errorf("after refusals the queue pair is in %v, want RESET", s)
	}
	must(t, qa.ToInit(verbs.ToInit{}))
	wantErr(t, "initiator in the wrong state", dial("svc", nil), verbs.ErrState)
	_, err = b.cm.Listen("svc")
	wantErr(t, "second listener", err, rdmacm.ErrInUse)
}

func TestDeadlines(t *testing.T) { onEach(t, testDeadlines) }

func testDeadlines(t *testing.T, kind string) {
	a, b := newPair(t, kind, 0)
	l, err := b.cm.Listen("svc")
	must(t, err)
	_, err = l.Accept(b.in(10 * time.Millisecond))
	wantErr(t, "no peer dials", err, verbs.ErrTimeout)
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(50*time.Millisecond))
	wantErr(t, "no peer answers", err, verbs.ErrTimeout)
	silent := netip.MustParseAddr("127.0.0.9")
	_, err = a.cm.Dial(a.newQP(t), silent, "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "no such host", err, verbs.ErrUnreachable)
	_, err = a.cm.Dial(a.newQP(t), netip.IPv6Loopback(), "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "other family", err, verbs.ErrUnreachable)
	_, err = a.cm.Dial(a.newQP(t), netip.Addr{}, "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "no address", err, verbs.ErrInvalid)
}

func TestBacklogIsBounded(t *testing.T) { onEach(t, testBacklogIsBounded) }

func testBacklogIsBounded(t *testing.T, kind string) {
	a, b := newPair(t, kind, 1)
	l, err := b.cm.Listen("svc")
	must(t, err)
	errs := make(chan error, 2)
	for range 2 {
		q := a.newQP(t)
		go func() {
			_, err := a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
			errs <- err
		}()
	}
	wantErr(t, "the one too many", <-errs, rdmacm.ErrRejected)
	must(t, l.Close())
	must(t, l.Close())
	wantErr(t, "the one that waited", <-errs, rdmacm.ErrRejected)
	_, err = l.Accept(clock.Never)
	wantErr(t, "accept after close", err, verbs.ErrClosed)
	_, err = b.cm.Listen("svc")
	must(t, err) // the name is free again
}

// Close ends every wait, at both sides.
func TestCloseEndsWaits(t *testing.T) { onEach(t, testCloseEndsWaits) }

func testCloseEndsWaits(t *testing.T, kind string) {
	a, b := newPair(t, kind, 0)
	l, err := b.cm.Listen("svc")
	must(t, err)
	idle, err := b.cm.Listen("idle")
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := idle.Accept(clock.Never)
		wantErr(t, "accept", err, verbs.ErrClosed)
	})
	q := a.newQP(t)
	wg.Go(func() {
		if _, err := a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience)); err == nil {
			t.Error("dial succeeded")
		}
	})
	r, err := l.Accept(b.in(patience))
	must(t, err)
	must(t, closeManager(b.cm))
	must(t, closeManager(b.cm))
	wg.Wait()
	qb := b.newQP(t)
	if err := r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)); err == nil {
		t.Error("a request outlived its manager")
	}
	_, err = b.cm.Listen("svc")
	wantErr(t, "listen", err, verbs.ErrClosed)
}
