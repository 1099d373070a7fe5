package uverbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// toError moves a queue pair to ERROR.
func (e *ends) toError() {
	e.t.Helper()
	m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: uverbs.MaskState}
	m.State = uint8(verbs.StateError)
	do[none](e.client, uverbs.ModifyQP, m)
}

// flushed waits for the completion of a work request that was flushed.
func (e *ends) flushed(id uint64) {
	e.t.Helper()
	if c := e.next(); c.ID != id || verbs.Status(c.Status) != verbs.WRFlushErr || c.QPN != e.qp.QPN {
		e.t.Fatalf("%+v, want %d flushed", c, id)
	}
}

// In the ERROR state a queue pair goes on to flush what its program posts, also receives, for which
// the program rings no bell: each queue in its order, and more than the rings have entries (IBTA
// 10.3.1/flush).
func TestPostsInErrorAreFlushed(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	_ = b
	for i := range 3 {
		a.receive(100*i, 8)
	}
	a.toError()
	for i := range 3 {
		a.flushed(uint64(100 * i))
	}
	for round := range 4 {
		for i := range 7 {
			a.receive(1000*round+i, 8)
		}
		for i := range 7 {
			a.flushed(uint64(1000*round + i))
		}
		for i := range 7 {
			a.post(opSend, 500+i, 8, 0, 0)
		}
		for i := range 7 {
			a.flushed(uint64(500 + i))
		}
	}
	a.toReset()
	a.receive(0, 8)
	a.connect(b, 1)
	if n := a.recv.Between(a.recv.Consumer(), a.recv.Producer()); n != 1 {
		t.Errorf("%d receives wait after a new connection, want 1", n)
	}
}

// A flush counts as solicited: it raises the event of a queue that is armed for solicited
// completions, once, also if the program has posted the receive after the error and rings no bell
// (IBTA 11.4.2).
func TestFlushIsSolicited(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	b := h.attach(t, 1).queuePair(uverbs.TypeRC)
	e, channel := h.attach(t, 0).onChannel()
	e.connect(b, 1)
	e.toError()
	for range 3 {
		do[none](e.client, uverbs.ReqNotifyCQ, uverbs.Notify{H: e.cq, Solicited: 1})
		e.receive(0, 8)
		e.receive(1, 8)
		var ev [8]byte
		if n, err := unix.Read(channel, ev[:]); n != 8 || err != nil {
			t.Fatalf("event of %d bytes, %v", n, err)
		}
		e.flushed(0)
		e.flushed(1)
		must(t, unix.SetNonblock(channel, true))
		if n, err := unix.Read(channel, ev[:]); err == nil {
			t.Errorf("a second event of %d bytes", n)
		}
		must(t, unix.SetNonblock(channel, false))
	}
}

// The preloaded library asks for each send that a program posts before RTS, as far as it knows: it
// is refused, unless the queue pair has gone to ERROR by itself (IBTA 10.3.1/flush).
func TestSendsBeforeRTS(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	ask := func() unix.Errno {
		_, errno := e.raw(uverbs.PostSend, uverbs.NoChannel, uverbs.Encode(uverbs.Handle{H: e.qp.H}, [3]uint32{}))
		return errno
	}
	if errno := ask(); errno != unix.EINVAL {
		t.Errorf("in RESET: %v", errno)
	}
	m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: needs(e.typ, 0, 1)}
	m.State, m.Port = uint8(verbs.StateInit), 1
	do[none](e.client, uverbs.ModifyQP, m)
	if errno := ask(); errno != unix.EINVAL {
		t.Errorf("in INIT: %v", errno)
	}
	must(t, h.devices[0].FailQP(wire.QPN(e.qp.QPN)))
	e.post(opSend, 3, 8, 0, 0)
	if errno := ask(); errno != 0 {
		t.Errorf("in ERROR: %v", errno)
	}
	e.flushed(3)
}
