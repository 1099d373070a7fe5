package device

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// slowMotion makes the devices of openPair slow by a factor, with the costs of m.
func slowMotion(factor int, m *cost.Model) func(*Config) {
	return func(c *Config) { c.Clock, c.Costs, c.Spin = real.NewSlow(factor), m, -1 }
}

// A NIC in slow motion takes the times of its cost model, by its clock, which is slow by the factor.
// Its timers are as slow: none expires, although a round trip takes longer in real time than the ACK
// timeout without slow motion.
func TestSlowMotion(t *testing.T) {
	const factor, reads = 1000, 20
	m := &cost.Model{Link: cost.Link{Delay: 2 * time.Microsecond}, NIC: cost.NIC{Doorbell: time.Microsecond, Completion: 2 * time.Microsecond}}
	m.NIC.Read = cost.Verb{QP: cost.Place[cost.Rate]{Host: 100_000}, Latency: cost.Place[time.Duration]{Host: 5 * time.Microsecond}}
	d := openPair(t, -1, memcable.Config{}, slowMotion(factor, m))
	a, b := newNode(t, d[0].Context()), newNode(t, d[1].Context())
	connectPatiently(t, a, b, 8) // 1 ms by the slow clock, 1 s of real time; a round trip takes 16 ms of that
	began, start := a.ctx.Runtime().Now(), time.Now()
	for i := range reads {
		must(t, a.qp.PostSend(verbs.SendWR{
			ID: uint64(i), Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
		}))
		if wc := a.one(t); wc.Status != verbs.Success {
			t.Fatalf("READ %d: %v", i, wc.Status)
		}
	}
	took, passed := a.ctx.Runtime().Now().Sub(began), time.Since(start)
	if least := reads * 12 * time.Microsecond; took < least || took > factor*least {
		t.Errorf("%d READs one after another took %v by the slow clock, want at least %v", reads, took, least)
	}
	if passed < factor*(took-time.Microsecond) || passed > factor*(took+time.Microsecond)+time.Second {
		t.Errorf("%v of real time passed in %v by a clock that is slow by %d", passed, took, factor)
	}
	if c := d[0].Counters(); c.RetransPkts > 0 {
		t.Errorf("%d packets were sent again", c.RetransPkts)
	}
}
