package serialize

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// heldRelease returns a rig with two connections. Client 0 has set the lock at 64 to 1, and
// releases it behind a WRITE of data. The server executes the WRITE of data, but its link is cut
// before the acknowledgement, until restore is called. So the switch holds the release.
func heldRelease(t *testing.T) (r *rig, a, b *conn, restore func()) {
	t.Helper()
	r, conns := known(t, rigConfig{clients: 2})
	a, b = conns[0], conns[1]
	binary.NativeEndian.PutUint64(a.n.buf[512:], 0)
	a.one(a.write(64, 512, 8))
	a.one(a.cas(64, 0, 1, 0))
	cut := true
	r.tap = func(up bool, port int, _ []byte) bool { return !cut || !up || port != r.server.port }
	a.post(a.write(4096, 512, 8), a.write(64, 512, 8))
	r.run(100 * time.Microsecond)
	if n := r.sequencerOf(a).waits.held.n; n != 1 || r.server.word(64) != 1 {
		t.Fatalf("%d requests are held, the lock is %d", n, r.server.word(64))
	}
	return r, a, b, func() { cut = false }
}

// one posts a request that succeeds.
func (c *conn) one(wr verbs.SendWR) {
	c.r.t.Helper()
	c.post(wr)
	c.r.run(time.Millisecond)
	c.done(verbs.Success)
}

// releases are events that free the place of a held request, each in another way.
var releases = map[string]func(r *rig){
	"nothing":                 func(*rig) {},
	"a new shared connection": func(r *rig) { r.do(func(c *pipeline.Ctx) { r.attach(c, 0, 16) }) },
	"other rules": func(r *rig) {
		other := atomicsRule(1)[0]
		other.From, other.To = r.server.base+4096, r.server.base+8192
		r.useRules(other)
	},
	"no rules": func(r *rig) { r.useRules() },
}

// A client's queue pair fails while the switch holds its release of a lock. The client releases the
// lock on a new connection, and client 1 takes it. Whatever happens then, the server does not
// execute the first release.
func TestAbandonedReleaseIsDropped(t *testing.T) {
	for name, happen := range releases {
		t.Run(name, func(t *testing.T) {
			r, a, b, restore := heldRelease(t)
			for q, _ := a.n.cq.Queue(); q.Len() < 2; {
				r.run(100 * time.Microsecond)
			}
			a.done(verbs.RetryExcErr, verbs.WRFlushErr)
			restore()
			next := r.connect(0)
			next.one(next.cas(64, 1, 0, 0))
			b.one(b.cas(64, 0, 2, 0))
			happen(r)
			b.one(b.faa(128, 0, 0))
			r.run(3 * time.Second)
			if got := r.server.word(64); got != 2 {
				t.Errorf("the lock is %d, client 1 has set it to 2", got)
			}
		})
	}
}

// A client's host dies while the switch holds its release of a lock, and client 1 takes the lock
// over.
func TestReleaseOfADeadClientIsDropped(t *testing.T) {
	for name, happen := range releases {
		t.Run(name, func(t *testing.T) {
			r, a, b, restore := heldRelease(t)
			a.n.dead = true
			restore()
			r.run(40 * time.Millisecond)
			b.one(b.cas(64, 1, 2, 0))
			happen(r)
			b.one(b.faa(128, 0, 0))
			r.run(3 * time.Second)
			if got := r.server.word(64); got != 2 {
				t.Errorf("the lock is %d, client 1 has set it to 2", got)
			}
		})
	}
}

// A request that the switch has held for too long counts as not received: the switch expects it.
func TestDroppedRequestIsExpected(t *testing.T) {
	r, a, _, _ := heldRelease(t)
	l := r.sequencerOf(a)
	release := l.next.Add(-1)
	a.n.dead = true
	r.run(40 * time.Millisecond)
	if l.waits.held.n != 0 || l.next != release || l.flow.Expected != release {
		t.Errorf("%d requests are held, the switch expects PSN %v, the flow PSN %v; the dropped one has %v", l.waits.held.n, l.next, l.flow.Expected, release)
	}
}

// A client that lives loses nothing by a request that the switch holds for longer than the timeout
// of the client's NIC.
func TestHeldRequestOfALivingClientIsExecuted(t *testing.T) {
	r, a, b, restore := heldRelease(t)
	r.run(25 * time.Millisecond)
	restore()
	r.run(10 * time.Millisecond)
	a.done(verbs.Success, verbs.Success)
	b.one(b.cas(64, 0, 2, 0))
	if got := r.server.word(64); got != 2 {
		t.Errorf("the lock is %d, client 1 has set it to 2", got)
	}
}

// Only intervals that a NIC's timeout can cause count, and only those between transmissions of one
// request.
func TestIntervalBetweenTransmissions(t *testing.T) {
	const ms = 1000 * 1000
	var h heard
	for _, step := range []struct {
		at   int
		psn  wire.PSN
		want time.Duration
	}{
		{1, 7, 0},
		{10, 7, 9 * ms},
		{18, 7, 8 * ms},
		{19, 7, 8 * ms},
		{29, 7, 8 * ms},
		{31, 8, 0},
		{33, 8, 2 * ms},
	} {
		if h.transmitted(clock.Time(step.at*ms), step.psn); h.interval != step.want {
			t.Errorf("after %d ms: %v, want %v", step.at, h.interval, step.want)
		}
	}
}
