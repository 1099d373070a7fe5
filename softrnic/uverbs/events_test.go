package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Numbers of asynchronous events (enum ibv_event_type).
const (
	eventCQErr    = 0
	eventQPFatal  = 1
	eventPortErr  = 10
	eventSRQLimit = 15
)

// asyncEvents returns the descriptor for a program's asynchronous events; reads of it end after 20 s.
func (c *client) asyncEvents() int {
	c.t.Helper()
	do[uverbs.Context](c, uverbs.GetContext)
	fd := c.fds[len(c.fds)-1]
	must(c.t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	return fd
}

// wantEvent reads an asynchronous event and checks it.
func wantEvent(t *testing.T, fd int, element uint64, kind uint32) {
	t.Helper()
	var b [32]byte
	n, err := unix.Read(fd, b[:]) // libibverbs reads 16 bytes; 4 of the tag of the object are behind them
	if n != 20 || err != nil || binary.NativeEndian.Uint64(b[:]) != element || binary.NativeEndian.Uint64(b[8:]) != uint64(kind) {
		t.Errorf("%d bytes, %v: % x; want event %d of %d", n, err, b[:16], kind, element)
	}
}

// A program is told what happens to its own objects, under the names that it gave them, and to the
// port, in the order in which it happens. The end of an object says how many events there were.
func TestAsynchronousEvents(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, other := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 0).queuePair(uverbs.TypeRC)
	b := h.attach(t, 1).queuePair(uverbs.TypeRC)
	a.connect(b, 1)
	overrun := a.client.queuePair(uverbs.TypeRC)
	overrun.connect(b, 1)
	fd, others := a.asyncEvents(), other.asyncEvents()
	if _, errno := a.raw(uverbs.GetContext, uverbs.NoChannel, nil); errno != unix.EINVAL {
		t.Errorf("a second descriptor: %v", errno)
	}
	must(t, h.devices[0].FailQP(wire.QPN(a.qp.QPN)))
	wantEvent(t, fd, 9, eventQPFatal) // the names of queuePair
	must(t, h.devices[0].OverrunCQs(wire.QPN(overrun.qp.QPN)))
	wantEvent(t, fd, 7, eventCQErr)
	wantEvent(t, fd, 9, eventQPFatal)
	h.devices[0].SetLink(false)
	wantEvent(t, fd, 1, eventPortErr)
	wantEvent(t, others, 1, eventPortErr) // its first one
	if r := do[uverbs.Reported](a.client, uverbs.DestroyQP, uverbs.Handle{H: a.qp.H}, uint32(0)); r.Events != 1 {
		t.Errorf("the end of the queue pair says %+v", r)
	}
	do[uverbs.Reported](a.client, uverbs.DestroyQP, uverbs.Handle{H: overrun.qp.H}, uint32(0))
	if r := do[uverbs.CQReported](a.client, uverbs.DestroyCQ, uverbs.Handle{H: overrun.cq}, uint32(0)); r.Events != 1 || r.Completions != 0 {
		t.Errorf("the end of the completion queue says %+v", r)
	}
	if r := do[uverbs.Reported](other.client, uverbs.DestroyQP, uverbs.Handle{H: other.qp.H}, uint32(0)); r.Events != 0 {
		t.Errorf("the end of another queue pair says %+v", r)
	}
}

// The preloaded library gives back events that it has read for a thread which does not want them:
// the program reads them again. Half an event is none.
func TestEventsThatAreGivenBack(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	async := c.asyncEvents()
	do[uverbs.Handle](c, uverbs.CreateCompChannel)
	channel := c.fds[len(c.fds)-1]
	must(t, unix.SetNonblock(channel, true))
	must(t, unix.SetNonblock(async, true))
	first, second := bytes.Repeat([]byte{1}, 20), bytes.Repeat([]byte{2}, 20)
	for name, x := range map[string]struct {
		fd     int
		number uint32
		size   int
	}{"asynchronous": {async, uverbs.NoChannel, 20}, "completions": {channel, 0, 12}} {
		args := append(append(bytes.Clone(first[:x.size]), second[:x.size]...), 3, 3, 3)
		if _, errno := c.raw(uverbs.Repost, x.number, args); errno != 0 {
			t.Fatal(errno)
		}
		b := make([]byte, 32)
		for _, want := range [][]byte{first[:x.size], second[:x.size]} {
			if n, err := unix.Read(x.fd, b); err != nil || !bytes.Equal(b[:n], want) {
				t.Errorf("%s: % x, %v, want % x", name, b[:max(n, 0)], err, want)
			}
		}
		if n, err := unix.Read(x.fd, b); err == nil {
			t.Errorf("%s: % x more", name, b[:n])
		}
	}
	if _, errno := c.raw(uverbs.Repost, 7, first); errno != unix.EINVAL {
		t.Errorf("events of no channel: %v", errno)
	}
}

// A queue pair takes its receives from the ring of a shared receive queue, whose program is told
// when fewer are left than its limit.
func TestSharedReceiveQueue(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, e := h.attach(t, 1).queuePair(uverbs.TypeRC), h.attach(t, 0).queuePair(uverbs.TypeRC)
	events := e.asyncEvents()
	srq := do[struct {
		uverbs.SRQ
		At  uverbs.Area
		Num uverbs.SRQNum
	}](e.client, uverbs.CreateSRQ, uverbs.SRQArgs{User: 11, PD: e.pd, MaxWR: 15, MaxSGE: 2})
	if srq.Num.Num != srq.SRQ.Num || srq.MaxWR != 15 || srq.MaxSGE != 2 {
		t.Errorf("%+v", srq)
	}
	qp := do[made](e.client, uverbs.CreateQP, uverbs.QPArgs{
		User: 12, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 4, MaxRecv: 4, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC, HasSRQ: 1, SRQ: srq.H,
	})
	if qp.Recv != (uverbs.Area{}) {
		t.Errorf("the queue pair has a ring for receives of its own: %+v", qp.Recv)
	}
	e.qp, e.recv = qp.QP, e.view(srq.At)
	a.connect(e, 0)
	e.connect(a, 1)
	for i := range 3 {
		e.receive(1000*(i+1), 100)
	}
	do[none](e.client, uverbs.ModifySRQ, uverbs.ModifySRQArgs{H: srq.H, Mask: uverbs.MaskSRQLimit, Limit: 2})
	fill(a.buf[:100], 3)
	for i := range 2 {
		a.post(opSend, 0, 100, 0, 0)
		a.succeeds()
		if c := e.succeeds(); c.ID != uint64(1000*(i+1)) || !bytes.Equal(e.buf[c.ID:c.ID+100], a.buf[:100]) {
			t.Errorf("receive %d: %+v", i, c)
		}
	}
	wantEvent(t, events, 11, eventSRQLimit)
	if _, errno := e.raw(uverbs.DestroySRQ, uverbs.NoChannel, uverbs.Encode(uverbs.Handle{H: srq.H}, uint32(0))); errno != unix.EBUSY {
		t.Errorf("the end of a queue in use: %v", errno)
	}
	do[uverbs.Reported](e.client, uverbs.DestroyQP, uverbs.Handle{H: e.qp.H}, uint32(0))
	if r := do[uverbs.Reported](e.client, uverbs.DestroySRQ, uverbs.Handle{H: srq.H}, uint32(0)); r.Events != 1 {
		t.Errorf("the end of the queue says %+v", r)
	}
}

// onChannel is queuePair with a completion queue that has the name 5 and a completion channel, from
// which reads end after 20 s.
func (c *client) onChannel() (e *ends, channel int) {
	c.t.Helper()
	do[uverbs.Handle](c, uverbs.CreateCompChannel)
	channel = c.fds[len(c.fds)-1]
	must(c.t, unix.SetsockoptTimeval(channel, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	e = c.queuePair(uverbs.TypeRC)
	data, errno := c.raw(uverbs.CreateCQ, 0, uverbs.Encode(uverbs.CQArgs{User: 5, CQE: 15, Channel: int32(channel)}))
	if errno != 0 {
		c.t.Fatal(errno)
	}
	var cq madeCQ
	_, err := binary.Decode(data, binary.NativeEndian, &cq)
	must(c.t, err)
	qp := do[made](c, uverbs.CreateQP, uverbs.QPArgs{
		User: 9, PD: e.pd, SendCQ: cq.CQ.H, RecvCQ: cq.CQ.H, MaxSend: 7, MaxRecv: 15, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC,
	})
	e.cq, e.done, e.qp, e.send, e.recv = cq.CQ.H, c.view(cq.At), qp.QP, c.view(qp.Send), c.view(qp.Recv)
	return e, channel
}

// An event for solicited completions comes with a message that its sender has marked, and with no
// other one.
func TestSolicitedEvent(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, c := h.attach(t, 1).queuePair(uverbs.TypeRC), h.attach(t, 0)
	e, channel := c.onChannel()
	a.connect(e, 0)
	e.connect(a, 1)
	do[none](c, uverbs.ReqNotifyCQ, uverbs.Notify{H: e.cq, Solicited: 1})
	const solicited = 4
	for i, want := range []uint32{0, 0, 1} {
		e.receive(0, 100)
		if want == 1 {
			a.marked = solicited
		}
		a.post(opSend, 0, 100, 0, 0)
		a.succeeds()
		e.succeeds()
		if i == 1 {
			must(t, unix.SetNonblock(channel, true))
			if n, err := unix.Read(channel, make([]byte, 8)); err == nil {
				t.Errorf("an event of %d bytes before the marked message", n)
			}
			must(t, unix.SetNonblock(channel, false))
		}
	}
	var ev [8]byte
	if n, err := unix.Read(channel, ev[:]); n != 8 || err != nil || binary.NativeEndian.Uint64(ev[:]) != 5 {
		t.Errorf("event of %d bytes, %v: %x", n, err, ev)
	}
}

// giveBack gives back n events whose bytes are all b, as the preloaded library does.
func (c *client) giveBack(channel uint32, size, n int, b byte) {
	c.t.Helper()
	for ; n > 0; n -= 200 {
		if _, errno := c.raw(uverbs.Repost, channel, bytes.Repeat([]byte{b}, size*min(n, 200))); errno != 0 {
			c.t.Fatal(errno)
		}
	}
}

// count reads all events from a descriptor and returns how many of them are of an object.
func (c *client) count(fd int, channel uint32, size int, element uint64) (found uint32) {
	c.t.Helper()
	const last, other = 0x77, 0x66
	must(c.t, unix.SetNonblock(fd, true))
	c.giveBack(channel, size, 1, last)
	ev := make([]byte, size)
	for reads := 0; ev[0] != last; reads++ {
		if reads == 1<<15 {
			c.t.Fatal("the last event is lost")
		}
		if n, err := unix.Read(fd, ev); err == unix.EAGAIN {
			c.giveBack(channel, size, 1, other) // now those that wait come
		} else if n != size || err != nil {
			c.t.Fatalf("%d bytes, %v", n, err)
		} else if binary.NativeEndian.Uint64(ev) == element {
			found++
		}
	}
	return found
}

// The answer to the end of an object counts the events that the program has read or can read from
// the descriptor: not those for which it had no room, and not those that are lost because too many
// wait. Such events do not come after the end of the object either.
func TestEventsThatWaitAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		others int
		want   uint32
	}{"room": {0, 1}, "no room": {3000, 0}, "lost": {6000, 0}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, serve.Limits{})
			e, channel := h.attach(t, 0).onChannel()
			b := h.attach(t, 1).queuePair(uverbs.TypeRC)
			async := e.asyncEvents()
			e.connect(b, 1)
			e.giveBack(uverbs.NoChannel, 20, c.others, 1)
			e.giveBack(0, 12, c.others, 1)
			do[none](e.client, uverbs.ReqNotifyCQ, uverbs.Notify{H: e.cq})
			e.receive(0, 100)
			must(t, h.devices[0].FailQP(wire.QPN(e.qp.QPN)))
			e.next() // of the receive
			if r := do[uverbs.Reported](e.client, uverbs.DestroyQP, uverbs.Handle{H: e.qp.H}, uint32(0)); r.Events != c.want {
				t.Errorf("the end of the queue pair says %+v, want %d", r, c.want)
			}
			if r := do[uverbs.CQReported](e.client, uverbs.DestroyCQ, uverbs.Handle{H: e.cq}, uint32(0)); r.Completions != c.want {
				t.Errorf("the end of the completion queue says %+v, want %d", r, c.want)
			}
			if n := e.count(async, uverbs.NoChannel, 20, 9); n != c.want {
				t.Errorf("%d events of the queue pair, want %d", n, c.want)
			}
			if n := e.count(channel, 0, 12, 5); n != c.want {
				t.Errorf("%d events of the completion queue, want %d", n, c.want)
			}
		})
	}
}
