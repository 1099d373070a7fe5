package transport

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// When the packet that was lost arrives, and those behind it are held, the ACK of all of them leaves, however
// many requests an ACK may answer.
func TestTheAckOfHeldPacketsLeaves(t *testing.T) {
	for _, kind := range []selective.Kind{selective.GoBackN, selective.IRN, selective.RACK} {
		for _, acks := range []int{0, 1, 4, MaxAcks} {
			t.Run(fmt.Sprintf("%v/%d", kind, acks), func(t *testing.T) {
				c := Config{QPN: 0x11, Recovery: Recovery{Kind: kind}}
				a := newSide(t, "a", 1, 1<<16, c)
				c.QPN, c.CoalesceAcks, c.Acks = 0x12, true, acks
				b := newSide(t, "b", 2, 1<<16, c)
				l := defaultLink
				l.rtr.Ahead = c.Recovery.Reach(0)
				connect(t, a, b, l)
				post(t, a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 10*256)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
				lost := a.out.Tx[3]
				first := slices.Delete(slices.Clone(a.out.Tx), 3, 4)
				again := slices.Insert(slices.Clone(first[3:]), 0, lost)
				now := clock.Time(0)
				for i := range first {
					b.qp.Handle(now, &first[i].Packet, &b.out)
				}
				b.qp.FlushAcks(now, &b.out)
				b.out.Reset()
				now = now.Add(10 * time.Microsecond)
				b.qp.Tick(now, &b.out)
				b.out.Reset()
				if kind != selective.GoBackN {
					again = again[:1]
				}
				for i := range again {
					b.qp.Handle(now, &again[i].Packet, &b.out)
				}
				b.qp.FlushAcks(now, &b.out)
				for end := now.Add(2 * AckHold); now < end && b.qp.Deadline() <= end; {
					now = max(now, b.qp.Deadline())
					b.qp.Tick(now, &b.out)
				}
				if n := len(b.out.Tx); n != 1 || len(b.qp.rsp.answers.owed) > 0 {
					t.Errorf("%d ACKs, %d answers owed", n, len(b.qp.rsp.answers.owed))
				}
			})
		}
	}
}
