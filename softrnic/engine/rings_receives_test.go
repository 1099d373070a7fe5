package engine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A RECV_ENABLE whose count is far ahead lets each receive be used once, one that is behind does nothing,
// also where 16 bits count: the flush of the queue pair completes as many receives as were posted.
func TestRecvEnableBounds(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		for _, count := range []uint32{1 << 30, 4 + 1<<14, 1 << 31, 0, 3} {
			r := newRinged(t)
			q := r.add(ringA, sendring.Config{Counts16: narrow})
			other, err := r.e.CreateQP(r.pd, r.cq, r.cq, verbs.QPInit{MaxRecvWR: 4})
			if err != nil {
				t.Fatal(err)
			}
			connect(t, r.now, other, q, 0, verbs.MTU1024)
			if err := other.PostRecv(make([]verbs.RecvWR, 4)); err != nil {
				t.Fatal(err)
			}
			r.put(ringA, 0, sendring.Entry{Op: sendring.RecvEnable, Object: uint32(other.Num()), Count: count})
			if err := q.Doorbell(r.now, 1); err != nil {
				t.Fatal(err)
			}
			r.run(1e6)
			if err := other.ToError(r.now, &r.out); err != nil {
				t.Fatal(err)
			}
			c, err := r.cq.Queue()
			if err != nil {
				t.Fatal(err)
			}
			if n := c.Counted(); n != 4 || r.e.Counters().RingRefused != 0 {
				t.Errorf("count %d, narrow %t: %d receives, %d entries refused", count, narrow, n, r.e.Counters().RingRefused)
			}
		}
	}
}
