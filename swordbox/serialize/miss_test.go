package serialize

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// missRule is atomicsRule with a setting for how failing CAS are answered.
func missRule(how rules.Answerer) []rules.Rule {
	set := atomicsRule(1)
	set[0].Misses = how
	return set
}

// free releases the lock by a WRITE of 0 to the word at 64.
func (c *conn) free() { c.post(c.write(64, 16, 8)) }

// locked returns a rig whose first client holds the lock at 64, and whose other clients have tried
// to take it.
func locked(t *testing.T, rc rigConfig) (*rig, []*conn) {
	t.Helper()
	r, conns := known(t, rc)
	c := conns[0]
	c.free()
	r.run(time.Millisecond)
	c.done(verbs.Success)
	c.post(c.cas(64, 0, 1, 0))
	r.settle()
	c.done(verbs.Success)
	return r, conns
}

// The switch answers a failing CAS if the server has acknowledged the value; otherwise the CAS is
// sent to the server.
func TestMissesAreAnsweredByTheSwitch(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 2, rules: missRule(rules.AnswerSwitch)})
	a, b := conns[0], conns[1]
	for i := range 3 {
		b.post(b.cas(64, 0, 2, 8))
		r.settle()
		b.done(verbs.Success)
		if got := b.n.word(8); got != 1 {
			t.Errorf("CAS %d: was %d, want 1", i, got)
		}
	}
	before := r.m.Stats()
	if before.Told != 3 || before.ReplacedEmpty != 0 {
		t.Errorf("%+v", before)
	}
	a.post(a.cas(64, 1, 7, 0)) // it arrives at the switch just before the CAS that fails because of it
	b.post(b.cas(64, 0, 2, 8))
	r.settle()
	a.done(verbs.Success)
	b.done(verbs.Success)
	if s := r.m.Stats(); s.Told != before.Told || s.ReplacedEmpty != 1 || b.n.word(8) != 7 || r.server.word(64) != 7 {
		t.Errorf("was %d, memory %d; %+v", b.n.word(8), r.server.word(64), s)
	}
	// The server has sent nothing for long, so the CAS is sent to it.
	r.run(time.Millisecond)
	b.post(b.cas(64, 0, 2, 8))
	r.settle()
	b.done(verbs.Success)
	if s := r.m.Stats(); s.Told != before.Told || s.ReplacedEmpty != 2 {
		t.Errorf("%+v", s)
	}
	// A retransmission is answered like the first copy, whatever value the word has by then.
	b.post(b.cas(64, 0, 2, 8))
	lost := false
	r.tap = func(up bool, port int, _ []byte) bool {
		first := !up && port == b.n.port && !lost
		lost = lost || first
		return !first
	}
	r.settle()
	a.free()
	r.run(50 * time.Millisecond)
	a.done(verbs.Success)
	b.done(verbs.Success)
	if b.n.word(8) != 7 || !lost {
		t.Errorf("was %d, want 7", b.n.word(8))
	}
}

// Clients that wait for a lock get it in the order of arrival, directly after the release.
func TestWaitersGetTheLockInOrder(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 4, rules: missRule(rules.AnswerWait)})
	binary.NativeEndian.PutUint64(conns[0].n.buf[16:], 0)
	for i, c := range conns[1:] {
		c.post(c.cas(64, 0, uint64(i)+2, 8))
		r.settle()
		if r.server.word(64) != 1 {
			t.Fatalf("the lock is taken: %d", r.server.word(64))
		}
	}
	if r.m.held.inUse != 3 {
		t.Errorf("%d wait, want 3", r.m.held.inUse)
	}
	for i, c := range conns {
		c.free()
		r.settle()
		c.done(verbs.Success)
		want := uint64(i) + 2
		if i+1 == len(conns) {
			want = 0
		} else if next := conns[i+1]; next.n.word(8) != 0 {
			t.Errorf("client %d was told %d", i+1, next.n.word(8))
		} else {
			next.done(verbs.Success)
		}
		if got := r.server.word(64); got != want {
			t.Errorf("after the release of client %d the word is %d, want %d", i, got, want)
		}
	}
	if n := r.m.servers[0].links[0].conn.Stats().SeqNaks; n != 0 {
		t.Errorf("%d sequence NAKs: the release was overtaken", n)
	}
}

// A CAS that has waited for its full time is answered with the value.
func TestWaitersAreToldInTheEnd(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 3, rules: missRule(rules.AnswerWait)})
	for _, c := range conns[1:] {
		c.post(c.cas(64, 0, 9, 8))
	}
	r.run(500 * time.Microsecond)
	if r.m.held.inUse != 2 {
		t.Errorf("%d wait, want 2", r.m.held.inUse)
	}
	r.run(time.Millisecond)
	for _, c := range conns[1:] {
		c.done(verbs.Success)
		if c.n.word(8) != 1 {
			t.Errorf("was %d, want 1", c.n.word(8))
		}
	}
	if r.m.held.inUse != 0 || r.server.word(64) != 1 {
		t.Errorf("%d wait, the word is %d", r.m.held.inUse, r.server.word(64))
	}
}

// A waiting client that has died does not keep other clients from getting the lock.
func TestWaiterThatIsGone(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 3, rules: missRule(rules.AnswerWait)})
	for i, c := range conns[1:] {
		c.post(c.cas(64, 0, uint64(i)+2, 8))
		r.settle()
	}
	gone := r.m.blocked.list[0]
	gone.flow.Ext = nil
	gone.close()
	conns[0].free()
	r.settle()
	conns[2].done(verbs.Success)
	if got := r.server.word(64); got != 3 || conns[2].n.word(8) != 0 {
		t.Errorf("the word is %d", got)
	}
}

// When a NIC retransmits a waiting CAS, the switch answers it, because the NIC would otherwise use
// up its retries. The client's connection stays up for however long the rule lets a CAS wait.
func TestWaiterThatAsksAgainIsTold(t *testing.T) {
	set := missRule(rules.AnswerWait)
	set[0].MissTime = rules.MaxMissTime
	r, conns := locked(t, rigConfig{clients: 2, rules: set})
	c := conns[1]
	c.post(c.cas(64, 0, 9, 8))
	r.run(time.Millisecond)
	if r.m.held.inUse != 1 {
		t.Fatalf("%d wait, want 1", r.m.held.inUse)
	}
	r.run(100 * time.Millisecond)
	c.done(verbs.Success)
	if c.n.word(8) != 1 || r.m.held.inUse != 0 {
		t.Errorf("was %d, want 1; %d wait", c.n.word(8), r.m.held.inUse)
	}
}

// A client releases a lock behind a waiting CAS on the same connection, for example from another
// thread. The switch sends the release at once, because the CAS waits for it.
func TestReleaseIsNotKeptByAWaiter(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 2, rules: missRule(rules.AnswerWait)})
	a, b := conns[0], conns[1]
	b.post(b.cas(64, 0, 3, 8))
	r.settle()
	a.post(a.cas(64, 0, 2, 8))
	r.settle()
	if r.m.held.inUse != 2 {
		t.Fatalf("%d wait, want 2", r.m.held.inUse)
	}
	a.free()
	r.settle()
	a.done(verbs.Success, verbs.Success)
	b.done(verbs.Success)
	if got := r.server.word(64); got != 3 || a.n.word(8) != 1 || b.n.word(8) != 0 {
		t.Errorf("the word is %d; told %d and %d", got, a.n.word(8), b.n.word(8))
	}
}
