package rdmacm_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const patience = 10 * time.Second

// serve accepts one request in another thread and hands its outcome over.
func serve(t *testing.T, b *host, l rdmacm.Listener, answer func(r rdmacm.Request) error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept(b.in(patience))
		if err == nil {
			err = answer(r)
		}
		done <- err
	}()
	return done
}

func TestConnect(t *testing.T) {
	a, b := newHosts(t, nil)
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
	got, err := a.cm.Dial(qa, ips[1], "memory", rdmacm.Params{RetryCount: rdmacm.NoRetry, Timeout: 12}, []byte("hello"), a.in(patience))
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
	if x.RTS.RetryCount != 0 || x.RTS.RNRRetry != 7 || x.RTS.Timeout != 12 || y.RTS.RetryCount != 7 || y.RTS.Timeout != 14 {
		t.Errorf("parameters: %+v / %+v", x.RTS, y.RTS)
	}
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("data"), RemoteAddr: mr.Addr(), RKey: mr.RKey()}))
	must(t, a.cq.Wait(a.in(patience)))
	var wc [1]verbs.WC
	if n, err := a.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.Success {
		t.Errorf("first WRITE: %d, %v, %v", n, err, wc[0].Status)
	}
	if s := b.cm.Stats(); s.Accepted != 1 || a.cm.Stats().Dialed != 1 {
		t.Errorf("stats %+v / %+v", s, a.cm.Stats())
	}
}

func TestManyAtTheSameTime(t *testing.T) {
	const peers = 24
	a, b := newHosts(t, nil)
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
	if s := b.cm.Stats(); s.Accepted != peers {
		t.Errorf("stats %+v", s)
	}
}

func TestRefusals(t *testing.T) {
	a, b := newHosts(t, nil)
	l, err := b.cm.Listen("svc")
	must(t, err)
	qa := a.newQP(t)
	dial := func(service string, private []byte) error {
		_, err := a.cm.Dial(qa, ips[1], service, rdmacm.Params{}, private, a.in(patience))
		return err
	}
	wantErr(t, "no service", dial("nobody", nil), rdmacm.ErrRejected)
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
	_, err = a.cm.Listen("svc")
	wantErr(t, "no listen address", err, verbs.ErrInvalid)
}

func TestDeadlines(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.HandshakeTimeout = 100 * time.Millisecond })
	l, err := b.cm.Listen("svc")
	must(t, err)
	_, err = l.Accept(b.in(10 * time.Millisecond))
	wantErr(t, "nobody dials", err, verbs.ErrTimeout)
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(50*time.Millisecond))
	wantErr(t, "nobody answers", err, verbs.ErrTimeout)
	// The initiator has given up: the responder's queue pair must not stay half connected.
	r, err := l.Accept(b.in(patience))
	must(t, err)
	qb := b.newQP(t)
	if err := r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)); err == nil {
		t.Error("accepted a peer that has gone")
	}
	if s := state(t, qb); s != verbs.StateError {
		t.Errorf("state %v, want ERROR", s)
	}
	nobody := netip.MustParseAddr("127.0.0.9")
	_, err = a.cm.Dial(a.newQP(t), nobody, "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "no such host", err, verbs.ErrUnreachable)
	_, err = a.cm.Dial(a.newQP(t), netip.IPv6Loopback(), "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "other family", err, verbs.ErrUnreachable)
	_, err = a.cm.Dial(a.newQP(t), netip.Addr{}, "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "no address", err, verbs.ErrInvalid)
}

// Peers that say nothing, nonsense or half a message are thrown out, counted, and disturb nobody.
func TestMalformedPeers(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.HandshakeTimeout = 50 * time.Millisecond; c.Handshakes = 4 })
	l, err := b.cm.Listen("svc")
	must(t, err)
	for _, text := range []string{"", "rdmc", "GET / HTTP/1.1\r\n\r\n", "rdmc\x01\x01\xff\xff", "rdmc\x01\x04\x00\x00"} {
		c, err := net.Dial("tcp", b.cm.Addr().String())
		must(t, err)
		_, err = c.Write([]byte(text))
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		var buf [1000]byte
		for { // the peer hears a reject or nothing, and then the end
			if _, err := c.Read(buf[:]); err != nil {
				if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
					t.Errorf("%q: the connection stays open", text)
				}
				break
			}
		}
		c.Close()
	}
	if s := b.cm.Stats(); s.Malformed != 3 || s.TimedOut != 2 {
		t.Errorf("stats %+v, want 3 malformed and 2 timed out", s)
	}
	qb := b.newQP(t)
	done := serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)) })
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
	must(t, err)
	must(t, <-done)
}

// More half-open peers than places: the next one is told so.
func TestHandshakesAreBounded(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.Handshakes = 2 })
	_, err := b.cm.Listen("svc")
	must(t, err)
	for range 2 {
		c, err := net.Dial("tcp", b.cm.Addr().String())
		must(t, err)
		defer c.Close()
	}
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "third peer", err, rdmacm.ErrRejected)
	if s := b.cm.Stats(); s.Busy != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestBacklogIsBounded(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.Backlog = 1 })
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

// Close ends everything that waits, at both sides.
func TestCloseEndsWaits(t *testing.T) {
	a, b := newHosts(t, nil)
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
	must(t, b.cm.Close())
	must(t, b.cm.Close())
	wg.Wait()
	qb := b.newQP(t)
	if err := r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)); err == nil {
		t.Error("a request outlived its manager")
	}
	_, err = b.cm.Listen("svc")
	wantErr(t, "listen", err, verbs.ErrClosed)
}
