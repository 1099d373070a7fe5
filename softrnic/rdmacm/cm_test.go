package rdmacm_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// newCMs makes two hosts with managers by datagrams.
func newCMs(t testing.TB) (a, b *host, ca, cb *rdmacm.CM) {
	t.Helper()
	a, b = newPair(t, "CM", 0)
	return a, b, a.cm.(*rdmacm.CM), b.cm.(*rdmacm.CM)
}

// join connects two fresh queue pairs by a service.
func join(t *testing.T, a, b *host, l rdmacm.Listener, service string) (qa, qb verbs.QP) {
	t.Helper()
	qa, qb = a.newQP(t), b.newQP(t)
	done := serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)) })
	_, err := a.cm.Dial(qa, ips[1], service, rdmacm.Params{}, nil, a.in(patience))
	must(t, err)
	must(t, <-done)
	return qa, qb
}

// A port is RDMA-CM's: its header in front of the private data, zeros behind them, and the
// initiator's path MTU counts.
func TestPorts(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("7174")
	must(t, err)
	_, err = b.cm.Listen("7174")
	wantErr(t, "second listener", err, rdmacm.ErrInUse)
	qa, qb := a.newQP(t), b.newQP(t)
	done := serve(t, b, l, func(r rdmacm.Request) error {
		if p := r.Private(); len(p) != cm.MaxPortRequestPrivate || !bytes.HasPrefix(p, []byte("hello\x00\x00")) {
			t.Errorf("private data %q", p)
		}
		return r.Accept(qb, rdmacm.Params{}, []byte("welcome"), b.in(patience))
	})
	got, err := a.cm.Dial(qa, ips[1], "7174", rdmacm.Params{PathMTU: verbs.MTU512}, []byte("hello"), a.in(patience))
	must(t, err)
	must(t, <-done)
	if len(got) != mad.REPPrivate || !bytes.HasPrefix(got, []byte("welcome\x00")) {
		t.Errorf("private data %q", got)
	}
	if x, _ := qb.Query(); x.RTR.PathMTU != verbs.MTU512 {
		t.Errorf("path MTU %d", x.RTR.PathMTU)
	}
	done = serve(t, b, l, func(r rdmacm.Request) error {
		return r.Accept(b.newQP(t), rdmacm.Params{PathMTU: verbs.MTU256}, nil, b.in(patience))
	})
	_, err = a.cm.Dial(a.newQP(t), ips[1], "7174", rdmacm.Params{}, nil, a.in(patience))
	wantReject(t, err, mad.ReasonInvalidMTU, "the peer can do 256")
	wantErr(t, "at the responder", <-done, verbs.ErrInvalid)
	done = serve(t, b, l, func(r rdmacm.Request) error { return r.Reject("no") })
	_, err = a.cm.Dial(a.newQP(t), ips[1], "7174", rdmacm.Params{}, nil, a.in(patience))
	wantReject(t, err, mad.ReasonConsumer, "consumer reject")
	must(t, <-done)
	_, err = a.cm.Dial(a.newQP(t), ips[1], "7175", rdmacm.Params{}, nil, a.in(patience))
	wantReject(t, err, mad.ReasonInvalidService, "no service")
}

func wantReject(t *testing.T, err error, code mad.Reason, text string) {
	t.Helper()
	var rej *rdmacm.RejectError
	if !errors.As(err, &rej) || rej.Code != code || !strings.Contains(rej.Reason, text) {
		t.Errorf("%v, want %v with %q", err, code, text)
	}
}

// Private data of all lengths that there is room for arrive exactly; longer ones are refused before
// anything is sent.
func TestPrivateData(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	for _, n := range []int{0, 1, cm.MaxRequestPrivate} {
		data := bytes.Repeat([]byte{7}, n)
		back := bytes.Repeat([]byte{9}, n*cm.MaxReplyPrivate/cm.MaxRequestPrivate)
		done := serve(t, b, l, func(r rdmacm.Request) error {
			if !bytes.Equal(r.Private(), data) {
				t.Errorf("%d bytes arrive, want %d", len(r.Private()), n)
			}
			qb := b.newQP(t)
			err := r.Accept(qb, rdmacm.Params{}, make([]byte, cm.MaxReplyPrivate+1), b.in(patience))
			wantErr(t, "long reply", err, verbs.ErrInvalid)
			wantErr(t, "long reply", err, rdmacm.ErrUnanswered)
			return r.Accept(qb, rdmacm.Params{}, back, b.in(patience))
		})
		got, err := a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, data, a.in(patience))
		must(t, err)
		must(t, <-done)
		if !bytes.Equal(got, back) {
			t.Errorf("%d bytes come back, want %d", len(got), len(back))
		}
	}
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, make([]byte, cm.MaxRequestPrivate+1), a.in(patience))
	wantErr(t, "long request", err, verbs.ErrInvalid)
	_, err = a.cm.Dial(a.newQP(t), ips[1], "80", rdmacm.Params{}, make([]byte, cm.MaxPortRequestPrivate+1), a.in(patience))
	wantErr(t, "long request to a port", err, verbs.ErrInvalid)
}

// Either side ends the connection: both queue pairs are in ERROR, their work is flushed, and
// nothing is left.
func TestDisconnect(t *testing.T) {
	a, b, ca, cb := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	for i := range 2 {
		qa, qb := join(t, a, b, l, "svc")
		must(t, qb.PostRecv(verbs.RecvWR{ID: 5}))
		if i == 0 {
			must(t, ca.Disconnect(qa, a.in(patience)))
		} else {
			must(t, cb.Disconnect(qb, b.in(patience)))
		}
		must(t, ca.AwaitDisconnect(qa, a.in(patience)))
		must(t, cb.AwaitDisconnect(qb, b.in(patience)))
		must(t, b.cq.Wait(b.in(patience)))
		var wc [2]verbs.WC
		if n, err := b.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.WRFlushErr {
			t.Errorf("%d completions, %v, %v", n, err, wc[0].Status)
		}
		if state(t, qa) != verbs.StateError || state(t, qb) != verbs.StateError {
			t.Errorf("states %v and %v", state(t, qa), state(t, qb))
		}
		wantErr(t, "twice", ca.Disconnect(qa, a.in(patience)), verbs.ErrState)
		// The same queue pairs are connected again.
		must(t, qa.ToReset())
		must(t, qb.ToReset())
		done := serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)) })
		_, err := a.cm.Dial(qa, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
		must(t, err)
		must(t, <-done)
		must(t, qa.Destroy())
		must(t, cb.AwaitDisconnect(qb, b.in(patience)))
		if state(t, qb) != verbs.StateError {
			t.Errorf("the peer's queue pair was destroyed; state %v", state(t, qb))
		}
		must(t, qb.Destroy())
	}
	awaitNothing(t, a, b)
}

// awaitNothing waits until both connection managers have no connection left.
func awaitNothing(t *testing.T, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		var live, ended int
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			h.dev.With(func(e *engine.Engine) {
				g, err := e.GSI()
				must(t, err)
				live, ended = g.Conns()
			})
			if live+ended == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d connections and %d in time-wait are left", live, ended)
			}
		}
	}
}

// A thousand connections are made and ended, and nothing is left: no record, no queue pair, no
// memory.
func TestThousandCycles(t *testing.T) {
	cycles := 1000
	if testing.Short() {
		cycles = 100
	}
	a, b, ca, cb := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	for i := range cycles {
		qa, qb := join(t, a, b, l, "svc")
		switch i % 3 { // with each way to end a connection
		case 0:
			must(t, ca.Disconnect(qa, a.in(patience)))
		case 1:
			must(t, cb.Disconnect(qb, b.in(patience)))
		}
		must(t, qa.Destroy())
		must(t, qb.Destroy())
	}
	awaitNothing(t, a, b)
	for _, h := range []*host{a, b} {
		h.dev.With(func(e *engine.Engine) {
			if o := e.Tables.Objects(); o.QPs != 0 {
				t.Errorf("%d queue pairs are left", o.QPs)
			}
		})
	}
	if n := cb.Stats().Accepted; n != uint64(cycles) {
		t.Errorf("%d accepted, want %d", n, cycles)
	}
}

// The NIC crashes or the context is closed during a connection: every wait ends, with ErrClosed at
// that side.
func TestNICGoesDown(t *testing.T) {
	a, b, _, cb := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	failed := make(chan error, 1)
	q := a.newQP(t)
	go func() {
		_, err := a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
		failed <- err
	}()
	r, err := l.Accept(b.in(patience))
	must(t, err)
	a.dev.Down()
	wantErr(t, "dial", <-failed, verbs.ErrClosed)
	qb := b.newQP(t)
	wantErr(t, "accept of a peer that is dead", r.Accept(qb, rdmacm.Params{}, nil, b.in(100*time.Millisecond)), verbs.ErrTimeout)
	if state(t, qb) != verbs.StateError {
		t.Errorf("state %v", state(t, qb))
	}
	_, err = a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "dial on a NIC that is down", err, verbs.ErrClosed)
	go func() {
		_, err := l.Accept(clock.Never)
		failed <- err
	}()
	b.dev.Down()
	wantErr(t, "listener", <-failed, verbs.ErrClosed)
	must(t, l.Close())
	a.dev.Up()
	b.dev.Up()
	l, err = cb.Listen("svc") // with the same manager
	must(t, err)
	b.pd, err = b.ctx.AllocPD()
	must(t, err)
	must(t, b.ctx.Close())
	_, err = l.Accept(clock.Never)
	wantErr(t, "context closed", err, verbs.ErrClosed)
	_, err = cb.Listen("svc")
	wantErr(t, "listen on a closed context", err, verbs.ErrClosed)
	must(t, l.Close())
}

// The destruction of a queue pair ends every wait for it.
func TestQueuePairIsDestroyedMeanwhile(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	q := a.newQP(t)
	failed := make(chan error, 1)
	go func() {
		_, err := a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
		failed <- err
	}()
	r, err := l.Accept(b.in(patience))
	must(t, err)
	must(t, q.Destroy())
	wantErr(t, "dial", <-failed, verbs.ErrClosed)
	if err := r.Accept(b.newQP(t), rdmacm.Params{}, nil, b.in(patience)); err == nil {
		t.Error("accepted a peer that has gone")
	}
	awaitNothing(t, a, b)
}

// The request of an initiator that has given up is skipped, and the initiator's queue pair is free.
func TestLateListener(t *testing.T) {
	a, b, ca, _ := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	q := a.newQP(t)
	_, err = a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, nil, a.in(30*time.Millisecond))
	wantErr(t, "no peer answers", err, verbs.ErrTimeout)
	if s := ca.Stats(); s.TimedOut != 1 || s.Machine.Sent == 0 {
		t.Errorf("stats %+v", s)
	}
	awaitNothing(t, b) // the REJ has come
	done := serve(t, b, l, func(r rdmacm.Request) error {
		if string(r.Private()) != "second" {
			t.Errorf("request %q", r.Private())
		}
		return r.Accept(b.newQP(t), rdmacm.Params{}, nil, b.in(patience))
	})
	_, err = a.cm.Dial(q, ips[1], "svc", rdmacm.Params{}, []byte("second"), a.in(patience))
	must(t, err)
	must(t, <-done)
}

// A request with malformed private data is rejected before the application sees it.
func TestMalformedRequest(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("80")
	must(t, err)
	q := a.newQP(t)
	var c *engine.CMConn
	a.dev.With(func(e *engine.Engine) {
		g, err := e.GSI()
		must(t, err)
		var out packetio.Batch // lost; it is sent again
		c, err = g.Connect(a.ctx.Runtime().Now(), ips[0], ips[1], mad.REQ{Service: mad.PortService(mad.SpaceTCP, 80), QPN: q.QPN(), MTU: 1, PKey: 0xffff}, &out)
		must(t, err)
	})
	_, err = l.Accept(b.in(time.Second))
	wantErr(t, "accept", err, verbs.ErrTimeout)
	a.dev.With(func(*engine.Engine) {
		if c.Reject == nil || c.Reject.Reason != mad.ReasonConsumer {
			t.Errorf("%+v", c)
		}
	})
}

func TestCMNeedsADevice(t *testing.T) {
	_, err := rdmacm.NewCM(rdmacm.CMConfig{})
	if err == nil {
		t.Error("no context")
	}
	var foreign struct{ verbs.Context }
	_, err = rdmacm.NewCM(rdmacm.CMConfig{Context: foreign})
	wantErr(t, "a context without a connection manager", err, verbs.ErrNotSupported)
}

// A reason that is longer than a REJ has room for is cut.
func TestLongReason(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("svc")
	must(t, err)
	reason := strings.Repeat("because ", 40)
	done := serve(t, b, l, func(r rdmacm.Request) error { return r.Reject(reason) })
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
	wantReject(t, err, mad.ReasonConsumer, reason[:cm.MaxRejectPrivate])
	must(t, <-done)
}
