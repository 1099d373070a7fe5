package uverbs_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// The transitions that a modify command can make are those of ib_modify_qp; any other one is EINVAL
// and changes nothing. SQE is a state that only the NIC enters.
func TestTransitions(t *testing.T) {
	const reset, initial, rtr, rts, sqd, sqe, failed = 0, 1, 2, 3, 4, 5, 6
	allowed := map[[2]uint8]bool{
		{initial, initial}: true, {reset, initial}: true, {initial, rtr}: true, {rtr, rts}: true, {rts, rts}: true, {rts, sqd}: true,
		{sqd, rts}: true, {sqd, sqd}: true, {reset, reset}: true, {failed, failed}: true, {rtr, rtr}: true,
	}
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	cq := do[uverbs.Handle](c, uverbs.CreateCQ, uverbs.CQArgs{CQE: 7, Channel: -1}).H
	way := []uint8{initial, rtr, rts, sqd}
	for from := range uint8(failed + 1) {
		if from == sqe {
			continue
		}
		for to := range uint8(failed + 2) {
			qp := do[uverbs.QP](c, uverbs.CreateQP, uverbs.QPArgs{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, Type: uverbs.TypeRC})
			at := uint8(reset)
			modify := func(state uint8) unix.Errno {
				m := valid(qp.H, 9, 14)
				m.Mask, m.State = needs(uverbs.TypeRC, at, state), state
				_, errno := c.raw(uverbs.ModifyQP, uverbs.NoChannel, uverbs.Encode(m))
				return errno
			}
			for _, s := range way {
				if from == failed && at == initial {
					s = failed
				}
				if s > from || from == reset {
					break
				}
				if errno := modify(s); errno != 0 {
					t.Fatalf("on the way to %d: to %d: %v", from, s, errno)
				}
				at = s
				if s == failed {
					break
				}
			}
			want, state := unix.EINVAL, from
			if allowed[[2]uint8{from, to}] || to == reset || to == failed && from != reset {
				want, state = 0, to
			}
			if from == rtr && to == rtr || from == failed && to == sqe {
				want = unix.EINVAL
			}
			if errno := modify(to); errno != want {
				t.Errorf("from %d to %d: %v, want %v", from, to, errno, want)
			}
			if q := do[uverbs.QPAttr](c, uverbs.QueryQP, uverbs.QueryQPArgs{H: qp.H}); q.State != state || q.Current != state {
				t.Errorf("from %d to %d: the state is %d, want %d", from, to, q.State, state)
			}
			c.end(uverbs.DestroyQP, qp.H, 0)
		}
	}
}

// The first address of a zero-based region is 0 for peers, whatever address the program asks for.
func TestZeroBasedRegion(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	for name, c := range map[string]struct {
		access uint32
		va     uint64
		at     uint64 // of the eleventh byte
	}{
		"zero-based":           {allow | uverbs.ZeroBased, addr(b.buf), 10},
		"at its own address":   {allow, addr(b.buf), addr(b.buf) + 10},
		"at another address":   {allow, 1 << 40, 1<<40 + 10},
		"optional rights more": {allow | uverbs.ZeroBased | 1<<20 | 1<<29, 77, 10},
	} {
		mr := do[uverbs.MR](b.client, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(b.buf), Length: 4096, VA: c.va, PD: b.pd, Access: c.access})
		fill(a.buf[:100], byte(len(name)))
		a.post(opWrite, 0, 100, c.at, mr.RKey)
		a.succeeds()
		if string(b.buf[10:110]) != string(a.buf[:100]) {
			t.Errorf("%s: other bytes are there", name)
		}
		b.end(uverbs.DeregMR, mr.H, 0)
	}
}

// A completion channel may have the descriptor 0 in the program; any negative one is none.
func TestDescriptorOfAChannel(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	do[uverbs.Handle](c, uverbs.CreateCompChannel)
	channel := c.fds[len(c.fds)-1]
	must(t, unix.SetNonblock(channel, true))
	for fd, events := range map[int32]int{0: 1, 5: 1, -1: 0, -7: 0} {
		data, errno := c.raw(uverbs.CreateCQ, 0, uverbs.Encode(uverbs.CQArgs{User: 3, CQE: 10, Channel: fd}))
		if errno != 0 {
			t.Fatal(errno)
		}
		cq := binary.NativeEndian.Uint32(data)
		e, m := c.receiving(cq)
		m.State = 6
		do[none](c, uverbs.ModifyQP, m) // flushes the receive
		c.end(uverbs.DestroyQP, e.qp.H, 0)
		if r := do[uverbs.CQReported](c, uverbs.DestroyCQ, uverbs.Handle{H: cq}, uint32(0)); int(r.Completions) != events {
			t.Errorf("descriptor %d: %d events, want %d", fd, r.Completions, events)
		}
		var ev [8]byte
		for n := range events + 1 {
			if _, err := unix.Read(channel, ev[:]); (err == nil) != (n < events) {
				t.Errorf("descriptor %d: event %d: %v", fd, n, err)
			}
		}
	}
}

// What a program learns about the device: the extended answer holds the plain one and says how long
// it is; there is one vector for completions.
func TestExtendedDevice(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	type answer struct {
		uverbs.Device
		uverbs.ExDevice
	}
	a := do[answer](c, uverbs.QueryDevice|uverbs.Extended)
	d := do[uverbs.Device](c, uverbs.QueryDevice)
	const flush, atomicWrite = 1 << 38, 1 << 40
	if a.Device != d || a.Length != uint32(len(uverbs.Encode(answer{}))) || a.CapFlagsEx != uint64(d.CapFlags)|flush|atomicWrite {
		t.Errorf("%+v, want a part %+v", a, d)
	}
	if d.CapFlags == 0 || d.PageSizeCap != 0xfffff000 || d.VendorID != 0xffffff || d.MaxSGERd != d.MaxSGE || d.NodeGUID == [8]byte{} || d.SysImageGUID != d.NodeGUID {
		t.Errorf("%+v", d)
	}
	if x := do[uverbs.Context](c, uverbs.GetContext); x.Vectors != 1 {
		t.Errorf("%+v", x)
	}
}

// A command that arms a completion queue first brings all completions that the NIC has to the ring,
// because the program looks there once more after the command.
func TestArmingBringsCompletions(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	cq := do[madeCQ](a.client, uverbs.CreateCQ, uverbs.CQArgs{CQE: 3, Channel: -1})
	qp := do[made](a.client, uverbs.CreateQP, uverbs.QPArgs{
		PD: a.pd, SendCQ: cq.CQ.H, RecvCQ: cq.CQ.H, MaxSend: testWRs, MaxRecv: 1, MaxSGE: testSGEs, MaxRecvSGE: 1, SignalAll: 1, Type: uverbs.TypeRC,
	})
	a.qp, a.send, a.done = qp.QP, a.view(qp.Send), a.view(cq.At)
	a.connect(b, 1)
	b.connect(a, 0)
	for half := range 2 { // three completions fit into the ring, three into the NIC's queue
		for i := range 3 {
			a.post(opWrite, 3*half+i, 8, addr(b.buf), b.mr.RKey)
		}
		for end := time.Now().Add(20 * time.Second); a.send.Consumer() != a.send.Producer(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("the sends do not end")
			}
		}
	}
	for i := range 6 {
		if i == 3 {
			do[none](a.client, uverbs.ReqNotifyCQ, uverbs.Notify{H: cq.CQ.H})
			if n := a.done.Between(a.done.Consumer(), a.done.Producer()); n != 3 {
				t.Errorf("%d completions are in the ring after the command, want 3", n)
			}
		}
		if got := a.succeeds(); got.ID != uint64(i) {
			t.Errorf("completion %d is of %d", i, got.ID)
		}
	}
}

// The end of a queue pair or of a completion queue leaves the others of the program as they are: an
// entry of a ring is free when its completion is seen, and a receive when it was taken.
func TestTheEndOfANeighbour(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	gone, a := c.queuePair(uverbs.TypeRC), c.queuePair(uverbs.TypeRC)
	b := h.attach(t, 1).queuePair(uverbs.TypeRC)
	a.connect(b, 1)
	b.connect(a, 0)
	c.end(uverbs.DestroyQP, gone.qp.H, 0)
	c.end(uverbs.DestroyCQ, gone.cq, 0)
	for i := range 5 {
		b.receive(0, 100)
		a.post(opSend, 0, 100, 0, 0)
		b.succeeds()
		if b.recv.Consumer() != b.recv.Producer() {
			t.Errorf("message %d: the receive is not free: %d of %d", i, b.recv.Consumer(), b.recv.Producer())
		}
		a.succeeds()
		if a.send.Consumer() != a.send.Producer() {
			t.Errorf("message %d: the entry is not free: %d of %d", i, a.send.Consumer(), a.send.Producer())
		}
	}
}
