package hard

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// A CAS that is known to fail goes to the server as a WRITE of no bytes. It need not, if a rule says so: the switch can answer it once the
// server has acknowledged the value that it fails for (words.Word.Tell), or keep it until the word has the value that it
// compares with. Who waits for a lock then gets it in the order of arrival, without asking again and again.

// waiting is what a lane with a held CAS waits for.
type waiting struct {
	word    *words.Word // nil: nothing
	key     words.Key
	rkey    uint32
	compare uint64
	time    time.Duration
}

// still reports whether the CAS would fail all the same.
func (a *waiting) still(now clock.Time) bool {
	return a.word.Key == a.key && a.word.Await(now, a.rkey, a.compare)
}

// dispatchMiss answers a CAS that fails, or has it wait, if a rule says so; sentShared: it is to be sent. Everything of the lane before
// it has been answered.
func (l *lane) dispatchMiss(c *pipeline.Ctx, f *wire.Frame, w *words.Word, shard int) outcome {
	rule := l.s.ruleOf(w.VA)
	if rule == nil || rule.Misses == rules.AnswerServer {
		return sentShared
	}
	a := waiting{w, w.Key, f.AtomicETH.RKey, f.AtomicETH.Compare, rule.MissPatience()}
	if rule.Misses == rules.AnswerWait && l.mayAwait(c.Now, a.time) && a.still(c.Now) {
		l.awaits = a
		return mustWait
	}
	if prior, ok := w.Tell(c.Now, a.rkey, a.compare); ok {
		return l.tell(c, f, shard, prior)
	}
	return sentShared
}

// mayAwait reports whether the next request has waited for less than it may, and there is room to keep many.
func (l *lane) mayAwait(now clock.Time, patience time.Duration) bool {
	m := l.m
	switch {
	case m.held.inUse >= m.cfg.Held/2:
		return false
	case m.inPlace:
		return true // it has just come
	}
	h := &m.held.slots[l.held.first]
	return !h.hurried && now < h.at.Add(patience)
}

// hurry ends the wait for a value: the NIC has asked again, and would give up one day, or something follows that may be what all wait
// for, the release of the lock by another thread on the same connection.
func (l *lane) hurry() {
	if l.awaits.word == nil || l.held.n == 0 {
		return
	}
	l.m.held.slots[l.held.first].hurried = true
	l.awaits = waiting{}
	l.m.kick = true
}

// missUntil is when the first held packet has waited for long enough for a value.
func (l *lane) missUntil() clock.Time {
	return l.m.held.slots[l.held.first].at.Add(l.awaits.time)
}

// tell answers a CAS that fails, in place of the server.
func (l *lane) tell(c *pipeline.Ctx, f *wire.Frame, shard int, prior uint64) outcome {
	r := l.record(f, 1)
	r.moved, r.shard, r.prior = true, uint8(shard), prior
	l.leave()
	l.m.stats.Told++
	l.window.finish(r)
	l.answered()
	l.deliver(c, r, shared.Answer{Kind: shared.Acked})
	return told
}

// leave counts a request that does not go on the own connection.
func (l *lane) leave() {
	l.row.Pinned = true
	l.client, l.clientQPN = l.row.Requester, l.row.ReqQPN
	l.psns.add(1, true)
	l.moved++
}

// ruleOf is the rule that replaces the atomics of a word; nil if there is none.
func (s *server) ruleOf(va uint64) *rules.Rule {
	for _, r := range s.rules {
		if r.Action == rules.Atomics && r.Covers(va, rewrite.WordLen) {
			return r
		}
	}
	return nil
}
