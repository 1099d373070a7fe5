package uverbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The rights that the transition to RTS sets are those that the queue pair has.
func TestAccessOnTheWayToRTS(t *testing.T) {
	const remoteRead = 4
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	modify, _ := modifier(h, t)
	for _, state := range []uint8{1, 2, 3} {
		errno := modify(b, allBits, func(m *uverbs.ModifyQPArgs) {
			m.State, m.Port, m.Access, m.PathMTU, m.DestQPN, m.MaxDestRdAtomic, m.MaxRdAtomic = state, 1, allow&^1, 3, a.qp.QPN, 4, 4
			m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[0]), 1, 1
			m.Timeout, m.RetryCount, m.RNRRetry = b.timeout, 7, 7
			if state == 3 {
				m.Access = remoteRead
			}
		})
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	a.connect(b, 1)
	a.post(opRead, 0, 8, addr(b.buf), b.mr.RKey)
	a.succeeds()
	a.post(opWrite, 0, 8, addr(b.buf), b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemInvReqErr {
		t.Errorf("WRITE without the right: %v", verbs.Status(c.Status))
	}
}

// A program that puts a malformed receive into its ring breaks the rules of the rings: it is cut
// off when the receive is needed, and its peer is told that there is none.
func TestMalformedReceive(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	slot := b.recv.Slot(b.recv.Producer())
	b.receive(0, 100)
	slot[28] = 0xff // the number of pieces
	a.post(opSend, 0, 100, 0, 0)
	if _, _, _, ok := receive(t, b.conn); ok {
		t.Error("the daemon has sent something")
	}
	h.works(t)
}

// A completion queue may have a single entry, also by a resize.
func TestSmallestCompletionQueue(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	for _, n := range []uint32{1, 5} {
		cq := do[madeCQ](c, uverbs.CreateCQ, uverbs.CQArgs{CQE: n, Channel: -1})
		if size := do[uverbs.CQSize](c, uverbs.ResizeCQ, uverbs.ResizeCQArgs{H: cq.CQ.H, CQE: 1}); size.CQE != 1 {
			t.Errorf("from %d entries: %d, want 1", n, size.CQE)
		}
	}
	if _, errno := c.raw(uverbs.CreateCQ, uverbs.NoChannel, uverbs.Encode(uverbs.CQArgs{Channel: -1})); errno != unix.EINVAL {
		t.Errorf("without entries: %v", errno)
	}
}
