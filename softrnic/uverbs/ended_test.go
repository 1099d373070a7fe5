package uverbs_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The answer to the end of an object names the object as the program does, its completion channel,
// and the words of the answer that count events which the program may not have read.
func TestAnswersToTheEndOfObjects(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	srq := do[uverbs.SRQ](e.client, uverbs.CreateSRQ, uverbs.SRQArgs{User: 11, PD: e.pd, MaxWR: 4, MaxSGE: 1})
	for range 2 { // the second channel has number 1
		do[uverbs.Handle](e.client, uverbs.CreateCompChannel)
	}
	channel := int32(e.fds[len(e.fds)-1])
	data, errno := e.raw(uverbs.CreateCQ, 1, uverbs.Encode(uverbs.CQArgs{User: 13, CQE: 7, Channel: channel}))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, c := range []struct {
		op      uverbs.Op
		handle  uint32
		element uint64 // the tag of the object: the how many-th it was
		drain   uint32
		channel uint32
		words   int
	}{
		{uverbs.DestroyQP, e.qp.H, 2, 1, uverbs.NoChannel, 1},
		{uverbs.DestroySRQ, srq.H, 3, 1, uverbs.NoChannel, 1},
		{uverbs.DestroyCQ, e.cq, 1, 2, uverbs.NoChannel, 2},
		{uverbs.DestroyCQ, binary.NativeEndian.Uint32(data), 4, 3, 1, 2},
	} {
		msg := uverbs.Encode(uverbs.NoChannel, uint32(0), uint32(c.op), uint32(0), uint64(0), uverbs.Handle{H: c.handle}, uint32(0))
		_, err := e.conn.Write(msg)
		must(t, err)
		b := make([]byte, 256)
		n, err := e.conn.Read(b)
		must(t, err)
		u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
		if n != uverbs.AnswerLen+4*c.words || u32(0) != 0 || u32(4) != c.drain || u32(8) != c.channel || binary.NativeEndian.Uint64(b[16:]) != c.element {
			t.Errorf("command %d: % x, want drain %d, channel %d, element %d and %d words", c.op, b[:n], c.drain, c.channel, c.element, c.words)
		}
	}
}

// The memory of rings is there again when their object has ended, was not made, or has got other
// rings: a program that makes and ends objects for ever always finds room.
func TestRoomForRingsComesBack(t *testing.T) {
	h := newHouse(t, serve.Limits{QueueBytes: 1 << 19}) // the area has twice of that
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	cq := do[uverbs.Handle](e.client, uverbs.CreateCQ, uverbs.CQArgs{CQE: 15, Channel: -1})
	qp := uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 100, MaxRecv: 1000, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC}
	for i := range 100 {
		end := func(op, by uverbs.Op, args any) {
			t.Helper()
			data, errno := e.raw(op, uverbs.NoChannel, uverbs.Encode(args))
			if errno != 0 {
				t.Fatalf("object %d: %v", i, errno)
			}
			e.end(by, binary.NativeEndian.Uint32(data), 0)
		}
		end(uverbs.CreateCQ, uverbs.DestroyCQ, uverbs.CQArgs{CQE: 1000, Channel: -1})
		end(uverbs.CreateSRQ, uverbs.DestroySRQ, uverbs.SRQArgs{PD: e.pd, MaxWR: 1000, MaxSGE: 1})
		end(uverbs.CreateQP, uverbs.DestroyQP, qp)
		for _, n := range []uint32{1000, 15} {
			if _, errno := e.raw(uverbs.ResizeCQ, uverbs.NoChannel, uverbs.Encode(uverbs.ResizeCQArgs{H: cq.H, CQE: n})); errno != 0 {
				t.Fatalf("resize %d to %d: %v", i, n, errno)
			}
		}
	}
}

// The port of the device is active, with the GIDs of the NIC and the one that every port has; there
// is no other port.
func TestPortOfTheDevice(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	p := do[uverbs.Port](c, uverbs.QueryPort, uverbs.PortArgs{Port: 1})
	d := h.devices[0].Context().Device()
	want := uverbs.Port{
		CapFlags: 1 << 26, MaxMsg: d.MaxMsgSize, GIDs: 2, PKeys: 2, MaxVL: 1,
		PortState: uverbs.PortState{State: 4, MaxMTU: 5, ActiveMTU: 3},
		PortLink:  uverbs.PortLink{Width: 1, Speed: 32, Phys: 5, LinkLayer: 2},
	}
	switch d.ActiveMTU {
	case verbs.MTU2048:
		want.ActiveMTU = 4
	case verbs.MTU4096:
		want.ActiveMTU = 5
	}
	if p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	for _, n := range []uint8{0, 2} {
		if _, errno := c.raw(uverbs.QueryPort, uverbs.NoChannel, uverbs.Encode(uverbs.PortArgs{Port: n})); errno != unix.EINVAL {
			t.Errorf("port %d: %v", n, errno)
		}
	}
	if dev := do[uverbs.Device](c, uverbs.QueryDevice); dev.Port != 1 || dev.AckDelay != 15 || dev.QPRd != uint32(d.MaxRdAtomic) || dev.ResRd != dev.QPRd*dev.MaxQP || dev.AtomicCap != 1 {
		t.Errorf("%+v", dev)
	}
}
