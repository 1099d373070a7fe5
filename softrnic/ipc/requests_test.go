package ipc_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// asking is a program that listens and has a request of a peer; dialled is the result of the peer's
// Dial.
type asking struct {
	*attacker
	h        *house
	listener uint32
	in       proto.Incoming
	dialled  chan error
}

// asked brings a request to a program that listens for a service.
func (h *house) asked(t *testing.T) *asking {
	t.Helper()
	x := &asking{attacker: h.attack(t, 0), h: h}
	must(t, x.equip())
	var l proto.Handle
	must(t, x.call(proto.OpListen, proto.Service{Name: "700"}, &l))
	x.listener = l.H
	x.ask(t)
	return x
}

// ask lets a peer dial and takes its request.
func (x *asking) ask(t *testing.T) {
	t.Helper()
	c := x.h.open(t, 1)
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(4)
	must(t, err)
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	must(t, err)
	dialled := make(chan error, 1)
	x.dialled = dialled
	go func() {
		_, err := c.Manager().Dial(qp, ips[0], "700", rdmacm.Params{}, []byte("hello"), c.Runtime().Now().Add(20*time.Second))
		dialled <- err
	}()
	must(t, x.call(proto.OpNextRequest, proto.Wait{H: x.listener, Timeout: 20 * time.Second}, &x.in))
	if x.in.Service != "700" || x.in.Peer != ips[1] || !bytes.HasPrefix(x.in.Private, []byte("hello")) {
		t.Errorf("%+v", x.in)
	}
}

// A request of a peer counts until it is answered, and can be answered once. An answer with a
// mistake is none.
func TestRequestsAreAnsweredOnce(t *testing.T) {
	h := newHouse(t, 0, nil)
	x := h.asked(t)
	if n := used(h.servers[0])["requests"]; n != 1 {
		t.Errorf("%d requests", n)
	}
	long := make([]byte, 1000)
	if err := x.call(proto.OpReject, proto.Reject{H: x.in.H, Reason: "no", Private: long}, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an answer that does not fit: %v", err)
	}
	if err := x.call(proto.OpAccept, proto.Connect{H: x.in.H, QP: x.qp.H, Private: long}, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an acceptance that does not fit: %v", err)
	}
	if n := used(h.servers[0])["requests"]; n != 1 {
		t.Errorf("%d requests after answers that were none", n)
	}
	must(t, x.call(proto.OpReject, proto.Reject{H: x.in.H, Reason: "no"}, nil))
	if err := <-x.dialled; err == nil {
		t.Error("the peer is connected")
	}
	if n := used(h.servers[0])["requests"]; n != 0 {
		t.Errorf("%d requests after the answer", n)
	}
	for op, args := range map[proto.Op]any{
		proto.OpReject: proto.Reject{H: x.in.H, Reason: "no"}, proto.OpAccept: proto.Connect{H: x.in.H, QP: x.qp.H},
	} {
		if err := x.call(op, args, nil); !errors.Is(err, verbs.ErrState) {
			t.Errorf("%s: a second answer: %v", op, err)
		}
	}
	if n := used(h.servers[0])["requests"]; n != 0 {
		t.Errorf("%d requests after answers to none", n)
	}
}

// A request counts no more when its acceptance fails with the peer's wishes, which answers it: a peer
// cannot use up the program's requests.
func TestAcceptanceThatRefuses(t *testing.T) {
	h := newHouse(t, 0, nil)
	x := h.asked(t)
	must(t, x.call(proto.OpModifyQP, proto.ModifyQP{H: x.qp.H, To: proto.ToReset}, nil))
	accept := proto.Connect{H: x.in.H, QP: x.qp.H, Params: rdmacm.Params{PathMTU: verbs.MTU256}} // the peer wants a larger one
	if err := x.call(proto.OpAccept, accept, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an acceptance with a smaller path MTU: %v", err)
	}
	if err := <-x.dialled; !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("the peer's result is %v", err)
	}
	if n := used(h.servers[0])["requests"]; n != 0 {
		t.Errorf("%d requests after the answer", n)
	}
	if err := x.call(proto.OpAccept, accept, nil); !errors.Is(err, verbs.ErrState) {
		t.Errorf("a second answer: %v", err)
	}
}

// When a program closes its manager, its listeners and its unanswered requests end, and nothing
// else; it goes on with a new one.
func TestClosedManager(t *testing.T) {
	h := newHouse(t, 0, nil)
	x := h.asked(t)
	before := used(h.servers[0])
	must(t, x.call(proto.OpCloseManager, proto.None{}, nil))
	if err := <-x.dialled; err == nil {
		t.Error("the peer is connected")
	}
	if d := more(h.servers[0], before); len(d) != 2 || d["listeners"] != -1 || d["requests"] != -1 {
		t.Errorf("%v is less in use, want one listener and one request", d)
	}
	if err := x.call(proto.OpUnlisten, proto.Handle{H: x.listener}, nil); err == nil {
		t.Error("the listener is still there")
	}
	must(t, x.call(proto.OpQueryQP, proto.Handle{H: x.qp.H}, nil))
	var l proto.Handle
	must(t, x.call(proto.OpListen, proto.Service{Name: "700"}, &l))
	x.listener = l.H
	x.ask(t)
}

// The peer of a program that ends without an answer is refused at once.
func TestProgramEndsWithARequest(t *testing.T) {
	h := newHouse(t, 0, nil)
	x := h.asked(t)
	x.leave()
	if err := <-x.dialled; err == nil || errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("the peer's result is %v", err)
	}
}
