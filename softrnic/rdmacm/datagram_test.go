package rdmacm_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// udQKey is the Q_Key of librdmacm's UDP port space.
const udQKey = 0x01234567

// newUD makes a queue pair for datagrams in RTS.
func newUD(t *testing.T, h *host) verbs.QP {
	t.Helper()
	q, err := h.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: h.cq, RecvCQ: h.cq})
	must(t, err)
	must(t, q.ToInit(verbs.ToInit{QKey: udQKey}))
	must(t, q.ToRTR(verbs.ToRTR{}))
	must(t, q.ToRTS(verbs.ToRTS{}))
	return q
}

// answering runs f on the next SIDR request.
func answering(h *host, l *rdmacm.DatagramListener, f func(r *rdmacm.DatagramRequest) error) chan error {
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept(h.in(patience))
		if err == nil {
			err = f(r)
		}
		done <- err
	}()
	return done
}

// The answer to a SIDR request names the queue pair and its Q_Key. Both messages carry private
// data, and datagrams can be sent at once (IBTA 12.11).
func TestDatagramServices(t *testing.T) {
	for _, name := range []string{"7174", "a name"} {
		t.Run(name, func(t *testing.T) {
			a, b, ca, cb := newCMs(t)
			l, err := cb.ListenDatagrams(name)
			must(t, err)
			_, err = cb.ListenDatagrams(name)
			wantErr(t, "second listener", err, rdmacm.ErrInUse)
			connections, err := cb.Listen(name)
			must(t, err) // a service for connections with the same name is a different service
			defer func() { must(t, connections.Close()) }()

			qb := newUD(t, b)
			buf := make([]byte, 256)
			mr, err := b.pd.RegMR(buf, len(buf), verbs.LocalWrite)
			must(t, err)
			must(t, qb.PostRecv(verbs.RecvWR{ID: 7, SGL: []verbs.SGE{mr.SGE(0, 256)}}))
			done := answering(b, l, func(r *rdmacm.DatagramRequest) error {
				if !bytes.HasPrefix(r.Private(), []byte("who")) || r.Peer() != ips[0] {
					t.Errorf("question %q of %v", r.Private(), r.Peer())
				}
				return r.Answer(qb, []byte("me"))
			})
			got, err := ca.ResolveDatagrams(ips[1], name, []byte("who"), a.in(patience))
			must(t, err)
			must(t, <-done)
			attr, err := qb.Query()
			must(t, err)
			if got.QPN != attr.QPN || got.QKey != udQKey || got.Peer != ips[1] || !bytes.HasPrefix(got.Private, []byte("me")) {
				t.Errorf("answer %+v", got)
			}
			qa := newUD(t, a)
			ah, err := a.pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(got.Peer)})
			must(t, err)
			must(t, qa.PostSend(verbs.SendWR{
				Op: verbs.OpSend, Flags: verbs.Inline, Data: []byte("hello"), AH: ah, RemoteQPN: got.QPN, RemoteQKey: got.QKey,
			}))
			must(t, b.cq.Wait(b.in(patience)))
			var wc [1]verbs.WC
			n, err := b.cq.Poll(wc[:])
			must(t, err)
			if n != 1 || wc[0].Status != verbs.Success || wc[0].ID != 7 || wc[0].ByteLen != verbs.GRHLen+5 {
				t.Errorf("%d completions, first %+v", n, wc[0])
			}
			must(t, l.Close())
			must(t, l.Close())
			var rej *rdmacm.RejectError
			if _, err = ca.ResolveDatagrams(ips[1], name, nil, a.in(patience)); !errors.As(err, &rej) {
				t.Errorf("after the end of the service: %v", err)
			}
		})
	}
}

// If the datagram service does not exist, or refuses, Resolve returns a rejection; if the peer does
// not exist, a time-out.
func TestDatagramServicesThatRefuse(t *testing.T) {
	a, b, ca, cb := newCMs(t)
	var rej *rdmacm.RejectError
	_, err := ca.ResolveDatagrams(ips[1], "4711", nil, a.in(patience))
	if !errors.As(err, &rej) || rej.Reason != mad.SIDRUnsupported.String() {
		t.Errorf("no service listens: %v", err)
	}
	l, err := cb.ListenDatagrams("4711")
	must(t, err)
	done := answering(b, l, func(r *rdmacm.DatagramRequest) error {
		qp := b.newQP(t)
		if err := r.Answer(qp, nil); !errors.Is(err, verbs.ErrState) {
			t.Errorf("an answer with a queue pair for connections: %v", err)
		}
		err := r.Reject()
		if again := r.Reject(); again == nil {
			t.Error("two answers to one question")
		}
		return err
	})
	_, err = ca.ResolveDatagrams(ips[1], "4711", nil, a.in(patience))
	must(t, <-done)
	if !errors.As(err, &rej) || rej.Reason != mad.SIDRRejected.String() {
		t.Errorf("rejected: %v", err)
	}
	for range 2 { // no application takes them
		_, err = ca.ResolveDatagrams(ips[1], "4711", nil, a.in(20*time.Millisecond))
		wantErr(t, "no answer in time", err, verbs.ErrTimeout)
	}
	_, err = ca.ResolveDatagrams(ips[1], "4711", make([]byte, rdmacm.MaxPrivate), a.in(patience))
	wantErr(t, "too much private data", err, verbs.ErrInvalid)
	must(t, cb.Close())
	_, err = l.Accept(b.in(patience))
	wantErr(t, "a closed manager", err, verbs.ErrClosed)
	_, err = ca.ResolveDatagrams(ips[1], "4711", nil, a.in(patience))
	if !errors.As(err, &rej) {
		t.Errorf("after the end of the manager: %v", err)
	}
}

// SIDR requests do not reach services for connections, nor connection requests services for
// datagrams, whatever number a peer uses.
func TestDatagramServiceIsNoConnection(t *testing.T) {
	a, b, ca, cb := newCMs(t)
	_, err := cb.ListenDatagrams("9")
	must(t, err)
	_, err = a.cm.Dial(a.newQP(t), ips[1], "9", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "dial of a datagram service", err, rdmacm.ErrRejected)
	_, err = b.cm.Listen("10")
	must(t, err)
	_, err = ca.ResolveDatagrams(ips[1], "10", nil, a.in(patience))
	wantErr(t, "question after a connected service", err, rdmacm.ErrRejected)
}
