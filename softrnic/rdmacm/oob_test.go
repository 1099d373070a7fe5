package rdmacm_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const patience = 10 * time.Second

// serve accepts one request in another thread and returns a channel with the outcome.
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

// Connections of peers that send nothing, random bytes or half a message are closed and counted,
// without effect on other peers.
func TestMalformedPeers(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.HandshakeTimeout = 50 * time.Millisecond; c.Handshakes = 4 })
	l, err := b.cm.Listen("svc")
	must(t, err)
	for _, text := range []string{"", "rdmc", "GET / HTTP/1.1\r\n\r\n", "rdmc\x01\x01\xff\xff", "rdmc\x01\x04\x00\x00"} {
		c, err := net.Dial("tcp", b.oob.Addr().String())
		must(t, err)
		_, err = c.Write([]byte(text))
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		var buf [1000]byte
		for { // the peer gets a reject or nothing, and then the end of the stream
			if _, err := c.Read(buf[:]); err != nil {
				if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
					t.Errorf("%q: the connection stays open", text)
				}
				break
			}
		}
		c.Close()
	}
	if s := b.oob.Stats(); s.Malformed != 3 || s.TimedOut != 2 {
		t.Errorf("stats %+v, want 3 malformed and 2 timed out", s)
	}
	qb := b.newQP(t)
	done := serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)) })
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
	must(t, err)
	must(t, <-done)
}

// If there are more half-open peers than places, the next peer is rejected.
func TestHandshakesAreBounded(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.Handshakes = 2 })
	_, err := b.cm.Listen("svc")
	must(t, err)
	for range 2 {
		c, err := net.Dial("tcp", b.oob.Addr().String())
		must(t, err)
		defer c.Close()
	}
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "third peer", err, rdmacm.ErrRejected)
	if s := b.oob.Stats(); s.Busy != 1 {
		t.Errorf("stats %+v", s)
	}
}

// The responder of an initiator that has given up.
func TestLateResponder(t *testing.T) {
	a, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.HandshakeTimeout = 100 * time.Millisecond })
	l, err := b.cm.Listen("svc")
	must(t, err)
	_, err = a.cm.Dial(a.newQP(t), ips[1], "svc", rdmacm.Params{}, nil, a.in(50*time.Millisecond))
	wantErr(t, "no peer answers", err, verbs.ErrTimeout)
	// The initiator has given up, so the responder's queue pair must not stay half connected.
	r, err := l.Accept(b.in(patience))
	must(t, err)
	qb := b.newQP(t)
	if err := r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)); err == nil {
		t.Error("accepted a peer that has gone")
	}
	if s := state(t, qb); s != verbs.StateError {
		t.Errorf("state %v, want ERROR", s)
	}
	_, err = a.cm.Listen("svc")
	wantErr(t, "no listen address", err, verbs.ErrInvalid)
}

// An acceptance waits for an initiator that is silent. A rejection at that time does not wait, so
// that the end of a program does not, and the end of the manager ends the acceptance.
func TestRejectionDuringAnAcceptance(t *testing.T) {
	_, b := newHosts(t, func(c *rdmacm.OOBConfig) { c.HandshakeTimeout = time.Hour })
	l, err := b.cm.Listen("svc")
	must(t, err)
	c, err := net.Dial("tcp", b.oob.Addr().String())
	must(t, err)
	defer c.Close()
	gid := verbs.GIDOf(ips[0])
	request := append([]byte("rdmc\x01\x01\x00\x22\x00\x00\x00\x55\x00\x00\x00\x01"), gid[:]...)
	_, err = c.Write(append(request, "\x04\x00\x00\x01\x03svc\x00\x00"...)) // path MTU 1024, depth 1, the service, no private data
	must(t, err)
	r, err := l.Accept(b.in(patience))
	must(t, err)
	qb, accepted, rejected := b.newQP(t), make(chan error, 1), make(chan error, 1)
	go func() { accepted <- r.Accept(qb, rdmacm.Params{}, nil, b.in(time.Hour)) }()
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err = c.Read(make([]byte, 100)) // the reply: now the acceptance waits
	must(t, err)
	go func() { rejected <- r.Reject("the application has ended") }()
	select {
	case err := <-rejected:
		wantErr(t, "rejection", err, verbs.ErrState)
	case <-time.After(patience):
		t.Error("the rejection waits for the acceptance")
	}
	must(t, b.oob.Close())
	wantErr(t, "acceptance", <-accepted, verbs.ErrClosed)
}
