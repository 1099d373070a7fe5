package simrack

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// conn is one side of a connection made by connect.
type conn struct {
	ctx verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
}

func newConn(t *testing.T, ctx verbs.Context) *conn {
	t.Helper()
	var errs [4]error
	c := &conn{ctx: ctx}
	c.pd, errs[0] = ctx.AllocPD()
	c.cq, errs[1] = ctx.CreateCQ(64)
	c.mr, errs[2] = c.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	c.qp, errs[3] = c.pd.CreateQP(verbs.QPInit{SendCQ: c.cq, RecvCQ: c.cq})
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	return c
}

// echoServer accepts connections on a service, one after the other, and answers each with the
// private data that it got.
func echoServer(t *testing.T, h *Host, conns ...*conn) {
	h.Go("server", true, func(ctx verbs.Context) {
		l, err := h.Manager(ctx).Listen("svc")
		if err != nil {
			t.Error(err)
			return
		}
		for {
			req, err := l.Accept(clock.Never)
			if err != nil {
				return
			}
			c := newConn(t, ctx)
			if len(conns) > 0 {
				*conns[0] = *c
			}
			if err := req.Accept(c.qp, rdmacm.Params{}, req.Private(), clock.Never); err != nil {
				t.Error(err)
			}
		}
	})
}

func dialEcho(t *testing.T, r *Rack, h *Host, ctx verbs.Context) *conn {
	t.Helper()
	c := newConn(t, ctx)
	return c.dial(t, r, h, rdmacm.Params{Timeout: 10, RetryCount: 1})
}

// dial connects c to the echo server.
func (c *conn) dial(t *testing.T, r *Rack, h *Host, p rdmacm.Params) *conn {
	t.Helper()
	got, err := h.Manager(c.ctx).Dial(c.qp, r.Host("ms0").Addr(), "svc", p, []byte("hello"), clock.Never)
	if err != nil || string(got) != "hello" {
		t.Errorf("dial: %q, %v", got, err)
	}
	return c
}

func TestAClientThatWaitsForEverIsNamed(t *testing.T) {
	r := newRack(t, small, Options{})
	echoServer(t, r.Host("ms0"))
	cn := r.Host("cn0")
	cn.Go("fool", false, func(ctx verbs.Context) {
		c := dialEcho(t, r, cn, ctx)
		_ = c.cq.Wait(clock.Never)
		t.Error("Wait returned")
	})
	err := r.Run()
	var stuck *simnet.StuckError
	if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "cn0/fool waits for a completion") {
		t.Errorf("error %v", err)
	}
}

// While an application polls in a loop, time advances, and the application gets its completion.
func TestSpinningOnPoll(t *testing.T) {
	r := newRack(t, small, Options{})
	var srv conn
	echoServer(t, r.Host("ms0"), &srv)
	cn := r.Host("cn0")
	cn.Go("spinner", false, func(ctx verbs.Context) {
		c := dialEcho(t, r, cn, ctx)
		wr := verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{c.mr.SGE(0, 8)},
			RemoteAddr: srv.mr.Addr(), RKey: srv.mr.RKey(),
		}
		if err := c.qp.PostSend(wr); err != nil {
			t.Error(err)
		}
		var wc [1]verbs.WC
		for range 1000 {
			if n, err := c.cq.Poll(wc[:]); n > 0 || err != nil {
				if err != nil || wc[0].Status != verbs.Success {
					t.Error(err, wc[0].Status)
				}
				return
			}
		}
		t.Error("1000 polls and no completion")
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}

func TestRuntime(t *testing.T) {
	r := newRack(t, small, Options{})
	var log []string
	r.Host("cn0").Go("app", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		say := func(s string) { log = append(log, rt.Now().String()+" "+s) }
		for _, d := range []time.Duration{30, 10} {
			rt.Go("sleeper", func() {
				rt.Sleep(d)
				say("slept " + d.String())
			})
		}
		rt.Wait()
		say("joined")
		cq, err := ctx.CreateCQ(1)
		if err != nil {
			t.Error(err)
		}
		if err := cq.Wait(rt.Now().Add(70)); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("Wait: %v", err)
		}
		say("timed out")
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"10ns slept 10ns", "30ns slept 30ns", "30ns joined", "100ns timed out"}; !slices.Equal(log, want) {
		t.Errorf("%q, want %q", log, want)
	}
}

// A delayed event of a completion queue wakes its thread exactly when the period ends.
func TestModeration(t *testing.T) {
	r := newRack(t, small, Options{})
	r.Host("cn0").Go("app", false, func(ctx verbs.Context) {
		c := newConn(t, ctx)
		rt := ctx.Runtime()
		rt.Sleep(3 * time.Second)
		errs := []error{
			c.cq.Moderate(8, time.Second), c.cq.Arm(false), c.qp.ToInit(verbs.ToInit{}), c.qp.PostRecv(verbs.RecvWR{}, verbs.RecvWR{}),
			c.qp.ToError(), // flushes the receives
			c.cq.WaitEvent(rt.Now().Add(time.Minute)),
		}
		if err := errors.Join(errs...); err != nil || rt.Now() != clock.Time(4*time.Second) {
			t.Errorf("%v, at %v", err, rt.Now())
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}

// byBoth runs a test with both ways to make connections: as over TCP, and by datagrams.
func byBoth(t *testing.T, f func(t *testing.T, opt Options)) {
	t.Run("TCP", func(t *testing.T) { f(t, Options{}) })
	t.Run("datagrams", func(t *testing.T) { f(t, Options{Datagrams: true}) })
}

func TestConnectionSetupFails(t *testing.T) { byBoth(t, testConnectionSetupFails) }

func testConnectionSetupFails(t *testing.T, opt Options) {
	r := newRack(t, small, opt)
	cn, ms := r.Host("cn0"), r.Host("ms0")
	ms.Go("server", true, func(ctx verbs.Context) {
		m := ms.Manager(ctx)
		l, err := m.Listen("no")
		if err != nil {
			t.Error(err)
		}
		if _, err := m.Listen("no"); !errors.Is(err, rdmacm.ErrInUse) {
			t.Errorf("second listener: %v", err)
		}
		if _, err := l.Accept(ctx.Runtime().Now().Add(10)); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("Accept: %v", err)
		}
		for range 2 {
			req, err := l.Accept(clock.Never)
			if err != nil {
				t.Error(err)
				return
			}
			if req.Service() != "no" || req.Peer() != cn.Addr() {
				t.Errorf("request for %s from %v", req.Service(), req.Peer())
			}
			if string(req.Private()) == "slow" {
				ctx.Runtime().Sleep(time.Second)
			}
			if err := req.Reject("not today"); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if _, err := l.Accept(clock.Never); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
	cn.Go("client", false, func(ctx verbs.Context) {
		rt, m := ctx.Runtime(), cn.Manager(ctx)
		c := newConn(t, ctx)
		rt.Sleep(time.Millisecond)
		for _, tc := range []struct {
			service, private, text string
			want                   error
			wait                   time.Duration
		}{
			{"no", "", "not today", rdmacm.ErrRejected, time.Second},
			{"no", "slow", "", verbs.ErrTimeout, 10 * time.Millisecond},
			{"other", "", "no service", rdmacm.ErrRejected, time.Second},
			{"other", strings.Repeat("x", rdmacm.MaxPrivate+1), "private data", verbs.ErrInvalid, time.Second},
		} {
			_, err := m.Dial(c.qp, ms.Addr(), tc.service, rdmacm.Params{}, []byte(tc.private), rt.Now().Add(tc.wait))
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("dial %s: %v, want %v %s", tc.service, err, tc.want, tc.text)
			}
		}
		ms.Crash()
		if _, err := m.Dial(c.qp, ms.Addr(), "no", rdmacm.Params{}, nil, rt.Now().Add(time.Second)); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("dial of a crashed host: %v", err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}
