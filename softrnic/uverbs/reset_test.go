package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// toReset resets a queue pair.
func (e *ends) toReset() {
	e.t.Helper()
	m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: uverbs.MaskState}
	do[none](e.client, uverbs.ModifyQP, m)
}

// A reset forgets all entries in the rings of a queue pair: afterwards it sends and receives what
// the program has posted since.
func TestResetEmptiesTheRings(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	for range 5 { // more entries than the rings have
		for range 4 {
			a.post(opSend, 70000, 50, 0, 0) // before the queue pair can send
			b.receive(80000, 50)
		}
		a.toReset()
		b.toReset()
		if n := a.send.Between(a.send.Consumer(), a.send.Producer()); n != 0 {
			t.Fatalf("%d sends are left", n)
		}
		a.connect(b, 1)
		b.connect(a, 0)
		b.receive(20000, 100)
		fill(a.buf[:100], 1)
		a.post(opSend, 0, 100, 0, 0)
		if c := a.succeeds(); c.ID != 0 {
			t.Errorf("sent: %+v", c)
		}
		if c := b.succeeds(); c.ID != 20000 || c.Len != 100 || !bytes.Equal(b.buf[20000:20100], a.buf[:100]) {
			t.Errorf("received: %+v", c)
		}
		a.toReset()
		b.toReset()
	}
}

// What a program posts before its queue pair can send is sent by the transition to RTS, without
// another doorbell.
func TestSendsThatWaitForRTS(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	b.connect(a, 0)
	for i := range 3 {
		b.receive(1000*i, 100)
		a.post(opSend, 1000*i, 100, 0, 0)
	}
	a.connect(b, 1)
	for i := range 3 {
		if c := a.succeeds(); c.ID != uint64(1000*i) {
			t.Errorf("send %d: %+v", i, c)
		}
		if c := b.succeeds(); c.ID != uint64(1000*i) {
			t.Errorf("receive %d: %+v", i, c)
		}
	}
}

// filled is view for a ring that has entries.
func (c *client) filled(a uverbs.Area) uverbs.Ring {
	const producer = 128 // its place in the header
	n := binary.NativeEndian.Uint32(c.area[a.Offset+producer:])
	r := c.view(a)
	r.SetProducer(n)
	return r
}

// A resize keeps the completions that the program has not polled, in their order. A size that does
// not hold them is refused, and changes nothing.
func TestResizeKeepsCompletions(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	write := func(i int) { a.post(opWrite, i, 8, addr(b.buf), b.mr.RKey) }
	posted := 0
	waiting := func(n int) {
		t.Helper()
		for ; posted < n; posted++ {
			write(posted)
		}
		for end := time.Now().Add(20 * time.Second); int(a.done.Producer()) != n; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%d completions of %d", a.done.Producer(), n)
			}
		}
	}
	waiting(13)
	for i := range 3 {
		if c := a.succeeds(); c.ID != uint64(i) {
			t.Fatalf("completion %d is of %d", i, c.ID)
		}
	}
	resize := func(n uint32) (at uverbs.Area, errno unix.Errno) {
		data, errno := a.raw(uverbs.ResizeCQ, uverbs.NoChannel, uverbs.Encode(uverbs.ResizeCQArgs{H: a.cq, CQE: n}))
		if errno == 0 {
			_, err := binary.Decode(data[8:], binary.NativeEndian, &at)
			must(t, err)
		}
		return at, errno
	}
	if _, errno := resize(7); errno != unix.EINVAL {
		t.Fatalf("a ring of 7 for 10 completions: %v", errno)
	}
	if _, errno := resize(15); errno != 0 {
		t.Fatal(errno)
	}
	at, errno := resize(31)
	if errno != 0 {
		t.Fatal(errno)
	}
	a.done = a.filled(at)
	for i := 3; i < 20; i++ {
		if i == 13 {
			for ; posted < 20; posted++ {
				write(posted)
			}
		}
		if c := a.succeeds(); c.ID != uint64(i) {
			t.Fatalf("completion %d is of %d", i, c.ID)
		}
	}
	if a.done.Consumer() != a.done.Producer() {
		t.Error("there is one more")
	}
}
