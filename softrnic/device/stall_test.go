package device

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A NIC that was not scheduled for longer than the ACK timeout finds the ACKs in its receive ring,
// in more than one receive batch. It handles all of them before its timers fire, and retransmits
// nothing.
func TestNoTimerBeforeTheRing(t *testing.T) {
	const qps = 300 // more than a receive batch of frames
	d := openPair(t, 0, memcable.Config{Depth: 4 * qps})
	a, b := newNode(t, d[0].Context()), newNode(t, d[1].Context())
	var all []verbs.QP
	for range qps {
		own, err := a.pd.CreateQP(verbs.QPInit{SendCQ: a.cq, RecvCQ: a.cq})
		must(t, err)
		peer, err := b.pd.CreateQP(verbs.QPInit{SendCQ: b.cq, RecvCQ: b.cq})
		must(t, err)
		connectPatiently(t, &node{ctx: a.ctx, qp: own}, &node{ctx: b.ctx, qp: peer}, 14) // 67 ms
		all = append(all, own)
	}
	for _, qp := range all {
		must(t, qp.PostSend(verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
		}))
	}
	var before metrics.NIC // timeouts during the posts, which may wait for a processor, do not count
	d[0].With(func(e *engine.Engine) {
		before = *e.Counters()
		for end := time.Now().Add(time.Minute); d[1].Counters().RxWriteRequests < qps; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Error("the peer did not execute the WRITEs")
				return
			}
		}
		time.Sleep(200 * time.Millisecond) // the stall: three ACK timeouts
	})
	for range all {
		if wc := a.one(t); wc.Status != verbs.Success {
			t.Fatalf("%+v", wc)
		}
	}
	after := d[0].Counters()
	if n := after.LocalAckTimeoutErr - before.LocalAckTimeoutErr; n != 0 {
		t.Errorf("%d ACK timeouts and %d packets sent again, though every ACK was in the ring", n, after.RetransPkts-before.RetransPkts)
	}
}
