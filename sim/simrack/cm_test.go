package simrack

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// stormy returns rules for loss, duplication and reordering on one link.
func stormy(link string) []fault.Rule {
	return []fault.Rule{
		{Link: link, Kind: fault.Loss, Probability: 0.15},
		{Link: link, Kind: fault.Duplicate, Probability: 0.1},
		{Link: link, Kind: fault.Reorder, Probability: 0.1},
	}
}

// Connections are made, used and ended on a link that loses, duplicates and reorders packets,
// including the connection manager's datagrams. All of them succeed, and in the end no NIC has
// state left. Each seed makes other faults.
func TestConnectionsOnABadLink(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	var retries uint64
	for seed := 1; seed <= seeds; seed++ {
		retries += badLink(t, uint64(seed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if retries < uint64(seeds) {
		t.Errorf("%d datagrams sent again in %d seeds", retries, seeds)
	}
}

const (
	badLinkClients = 3
	badLinkRounds  = 4
)

func badLink(t *testing.T, seed uint64) (retries uint64) {
	r := newRack(t, small, Options{Seed: seed, Datagrams: true})
	cn, ms := r.Host("cn0"), r.Host("ms0")
	cn.SetFaults(stormy("cn0"))
	ms.Go("server", true, func(ctx verbs.Context) { echoAndForget(t, ms, ctx) })
	for i := range badLinkClients {
		cn.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) {
			m, rt := cn.ConnManager(ctx), ctx.Runtime()
			for range badLinkRounds {
				c := newConn(t, ctx)
				got, err := m.Dial(c.qp, ms.Addr(), "svc", rdmacm.Params{Timeout: 10}, []byte("hello"), rt.Now().Add(time.Minute))
				if err != nil || string(got) != "hello" {
					t.Errorf("dial: %q, %v", got, err)
					return
				}
				write := verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x")}
				if err := errors.Join(c.qp.PostSend(write), c.cq.Wait(rt.Now().Add(time.Minute))); err != nil {
					t.Error(err)
				}
				var wc [1]verbs.WC
				if n, err := c.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.Success {
					t.Errorf("SEND: %v, %v", wc[0].Status, err)
				}
				if rt.Rand().IntN(2) == 0 {
					if err := m.Disconnect(c.qp, rt.Now().Add(time.Minute)); err != nil {
						t.Error(err)
					}
				}
				if err := c.qp.Destroy(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	err := errors.Join(r.Run(), r.Settle(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*Host{cn, ms} {
		g, err := h.Engine().GSI()
		if err != nil {
			t.Fatal(err)
		}
		if live, ended := g.Conns(); live+ended != 0 || len(h.Engine().Listing().QPAttrs()) != 0 {
			t.Errorf("%s: %d connections, %d in time-wait, %d queue pairs are left", h.Spec.Name, live, ended, len(h.Engine().Listing().QPAttrs()))
		}
		retries += g.Stats().Retries
	}
	return retries
}

// echoAndForget accepts connections, answers with the private data that it got, posts receives, and
// destroys a queue pair when its connection has ended. It notices the end by the flush of its
// second receive, as any application would.
func echoAndForget(t *testing.T, h *Host, ctx verbs.Context) {
	m := h.ConnManager(ctx)
	l, err := m.Listen("svc")
	if err != nil {
		t.Error(err)
		return
	}
	for {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return
		}
		ctx.Runtime().Go("conn", func() {
			c := newConn(t, ctx)
			defer func() {
				if err := c.qp.Destroy(); err != nil {
					t.Error(err)
				}
			}()
			err := req.Accept(c.qp, rdmacm.Params{Timeout: 10}, req.Private(), ctx.Runtime().Now().Add(time.Minute))
			if err != nil {
				t.Logf("accept: %v", err) // the dialer tries again
				return
			}
			recv := verbs.RecvWR{SGL: []verbs.SGE{c.mr.SGE(0, 64)}}
			if err := c.qp.PostRecv(recv, recv); err != nil {
				return // the client has sent, received an RNR NAK, and disconnected already
			}
			var wc [1]verbs.WC
			for wc[0].Status == verbs.Success {
				if err := c.cq.Wait(clock.Never); err != nil {
					return
				}
				if _, err := c.cq.Poll(wc[:]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Hosts and applications die during the set-up of a connection or after it: the other side gets the
// expected error or event.
func TestDeathOfAPeer(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   time.Duration // the set-up takes some microseconds, the server's answer a millisecond
		kill func(h *Host)
		// want is the error of the client's dial; nil: the dial succeeds, and the connection ends later.
		want error
	}{
		{"host before the answer", 500 * time.Microsecond, (*Host).Crash, verbs.ErrTimeout},
		{"NIC before the answer", 500 * time.Microsecond, (*Host).CrashNIC, verbs.ErrTimeout},
		{"queue pair after", 5 * time.Millisecond, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRack(t, small, Options{Datagrams: true})
			cn, ms := r.Host("cn0"), r.Host("ms0")
			ms.Go("server", true, func(ctx verbs.Context) {
				l, err := ms.Manager(ctx).Listen("svc")
				if err != nil {
					t.Error(err)
				}
				c := newConn(t, ctx)
				req, err := l.Accept(clock.Never)
				if err != nil {
					return
				}
				ctx.Runtime().Sleep(time.Millisecond)
				if err := req.Accept(c.qp, rdmacm.Params{}, nil, clock.Never); err != nil {
					return
				}
				ctx.Runtime().Sleep(5 * time.Millisecond)
				if err := c.qp.Destroy(); err != nil {
					t.Error(err)
				}
			})
			if tc.kill != nil {
				r.At(clock.Time(tc.at), func() { tc.kill(ms) })
			}
			cn.Go("client", false, func(ctx verbs.Context) {
				m, rt := cn.ConnManager(ctx), ctx.Runtime()
				c := newConn(t, ctx)
				_, err := m.Dial(c.qp, ms.Addr(), "svc", rdmacm.Params{}, nil, rt.Now().Add(time.Minute))
				if !errors.Is(err, tc.want) {
					t.Errorf("dial: %v, want %v", err, tc.want)
				}
				if err != nil {
					return
				}
				if err := m.AwaitDisconnect(c.qp, rt.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
				if a, err := c.qp.Query(); err != nil || a.State != verbs.StateError {
					t.Errorf("state %v, %v", a.State, err)
				}
			})
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A dialer repeats its request until its deadline, also when the peer is unreachable for longer
// than all retries of the connection manager take.
func TestDialOutlivesAnOutage(t *testing.T) {
	r := newRack(t, small, Options{Datagrams: true})
	echoServer(t, r.Host("ms0"))
	cn := r.Host("cn0")
	cn.SetLink(false)
	const outage = 5 * time.Second
	r.At(clock.Time(outage), func() { cn.SetLink(true) })
	cn.Go("client", false, func(ctx verbs.Context) {
		dialEcho(t, r, cn, ctx)
		if now := ctx.Runtime().Now(); now < clock.Time(outage) || now > clock.Time(outage+time.Second) {
			t.Errorf("connected at %v", now)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}
