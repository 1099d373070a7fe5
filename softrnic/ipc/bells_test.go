package ipc_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Programs ring more bells than one step of the daemon serves, and the daemon reads all their
// wake-ups at once, so no wake-up is left for the other bells. The posts are receives, for which no
// completion follows that could wake the daemon.
func TestManyBellsAtOnce(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, spin, nil)
			a := h.attack(t, 0)
			var pd proto.Handle
			must(t, a.call(proto.OpAllocPD, proto.None{}, &pd))
			const queues = 30
			var bells [queues]uint32
			var rings [queues]*ring.Queue
			for i := range rings {
				var s proto.Queue
				must(t, a.call(proto.OpCreateSRQ, proto.CreateSRQ{PD: pd.H}, &s))
				b, err := a.mapLast(s.Length)
				must(t, err)
				bells[i], rings[i] = s.Bell, ring.NewQueue(b, s.Slots, s.RecvSlot)
			}
			for round := uint64(1); round <= 20; round++ {
				until(t, "the pump sleeps", func() bool { return a.ctl.Asleep.Load() != 0 })
				for i, q := range rings {
					ring.PutRecv(q.Slot(round-1), &verbs.RecvWR{ID: round})
					q.Tail.Store(round)
					a.ctl.Ring(bells[i])
				}
				must(t, unix.Sendto(a.wake, []byte{1}, unix.MSG_NOSIGNAL, nil))
				for _, q := range rings {
					until(t, "a bell is served", func() bool { return q.Head.Load() == round })
				}
			}
		})
	}
}

// until waits for a condition that must become true.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("waited without result: %s", what)
		}
	}
}
