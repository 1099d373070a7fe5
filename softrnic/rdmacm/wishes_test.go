package rdmacm_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// A side uses the values that its peer's message asks for, unless its application has chosen them,
// and bounds them, so that a peer cannot make it flood the link or wait without end (IBTA
// 12.7.38/retries).
func TestWishesOfThePeer(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("wishes")
	must(t, err)
	type values struct{ timeout, retry, rnr uint8 }
	for name, c := range map[string]struct {
		dialer, acceptor rdmacm.Params
		atDialer, atPeer values
	}{
		"all open":       {rdmacm.Params{}, rdmacm.Params{}, values{15, 7, 7}, values{15, 7, 7}},
		"dialer's":       {rdmacm.Params{Timeout: 12, RetryCount: 3, RNRRetry: 2}, rdmacm.Params{}, values{12, 3, 2}, values{12, 3, 2}},
		"none":           {rdmacm.Params{RetryCount: rdmacm.NoRetry, RNRRetry: rdmacm.NoRetry}, rdmacm.Params{}, values{15, 0, 0}, values{15, 0, 0}},
		"2.4 hours":      {rdmacm.Params{Timeout: 31}, rdmacm.Params{}, values{31, 7, 7}, values{20, 7, 7}},
		"8 microseconds": {rdmacm.Params{Timeout: 1}, rdmacm.Params{}, values{1, 7, 7}, values{8, 7, 7}},
		"acceptor's own": {
			rdmacm.Params{Timeout: 12, RetryCount: 3},
			rdmacm.Params{Timeout: 16, RetryCount: 5, RNRRetry: 4},
			values{12, 3, 4},
			values{16, 5, 4},
		},
	} {
		qa, qb := a.newQP(t), b.newQP(t)
		done := serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, c.acceptor, nil, b.in(patience)) })
		_, err := a.cm.Dial(qa, ips[1], "wishes", c.dialer, nil, a.in(patience))
		must(t, err)
		must(t, <-done)
		for _, x := range []struct {
			at   string
			q    verbs.QP
			want values
		}{{"dialer", qa, c.atDialer}, {"acceptor", qb, c.atPeer}} {
			attr, err := x.q.Query()
			must(t, err)
			if got := (values{attr.RTS.Timeout, attr.RTS.RetryCount, attr.RTS.RNRRetry}); got != x.want {
				t.Errorf("%s, at the %s: %+v, want %+v", name, x.at, got, x.want)
			}
		}
	}
}

// A request is for queue pairs of its own service. A request for another service is rejected, and
// no queue pair is half connected (IBTA 12.6.5/type).
func TestServiceOfARequest(t *testing.T) {
	a, b, _, _ := newCMs(t)
	l, err := b.cm.Listen("typed")
	must(t, err)
	of := func(h *host, kind verbs.QPType) verbs.QP {
		q, err := h.pd.CreateQP(verbs.QPInit{Type: kind, SendCQ: h.cq, RecvCQ: h.cq})
		must(t, err)
		return q
	}
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC} {
		for _, peer := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
			qa, qb := of(a, kind), of(b, peer)
			done := serve(t, b, l, func(r rdmacm.Request) error { return r.Accept(qb, rdmacm.Params{}, nil, b.in(patience)) })
			_, err := a.cm.Dial(qa, ips[1], "typed", rdmacm.Params{}, nil, a.in(patience))
			if kind == peer {
				must(t, err)
				must(t, <-done)
				continue
			}
			wantReject(t, err, mad.ReasonInvalidType, "transport service")
			wantErr(t, "accepting a request of another service", <-done, verbs.ErrInvalid)
			if sa, sb := state(t, qa), state(t, qb); sa == verbs.StateRTS || sb == verbs.StateRTS {
				t.Errorf("%v to %v: the queue pairs are in %v and %v", kind, peer, sa, sb)
			}
		}
	}
	_, err = a.cm.Dial(of(a, verbs.UD), ips[1], "typed", rdmacm.Params{}, nil, a.in(patience))
	wantErr(t, "dialing with a queue pair for datagrams", err, verbs.ErrInvalid)
}
