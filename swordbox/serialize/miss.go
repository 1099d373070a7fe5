package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// A CAS that is known to fail is sent to the server as a WRITE of no bytes. If a rule says so, the
// switch does not send it: it answers the CAS once the server has acknowledged the value because of
// which it fails (atomiccache.Word.Tell), or holds it until the word has the value of the CAS's
// compare operand. Clients that wait for a lock then get it in the order of arrival, without
// polling.

// waiting says for which value the first held request of a flow waits, if it is a CAS that would
// fail.
type waiting struct {
	word    *atomiccache.Word // nil: it waits for no value
	key     atomiccache.Key
	rkey    uint32
	compare uint64
	time    time.Duration
}

// stillFails reports whether the CAS would fail now.
func (a *waiting) stillFails(now clock.Time) bool {
	return a.word.Key == a.key && a.word.Await(now, a.rkey, a.compare)
}

// miss answers a CAS that fails, or makes it wait, if a rule says so. The result sentShared means
// that the caller must send the CAS. All earlier requests of the flow have been answered.
func (g *placing) miss(w *atomiccache.Word, shard int) outcome {
	rule := g.s.ruleOf(w.VA)
	if rule == nil || rule.Misses == rules.AnswerServer {
		return sentShared
	}
	a := waiting{w, w.Key, g.f.AtomicETH.RKey, g.f.AtomicETH.Compare, rule.MissPatience()}
	if rule.Misses == rules.AnswerWait && g.mayAwait(g.c.Now, a.time) && a.stillFails(g.c.Now) {
		g.awaits = a
		return mustWait
	}
	if prior, ok := w.Tell(g.c.Now, a.rkey, a.compare); ok {
		return g.tell(shard, prior)
	}
	return sentShared
}

// mayAwait reports whether the next request may go on waiting for a value: its patience is not
// over, and its host uses less than half of its share of the held requests.
func (g *placing) mayAwait(now clock.Time, patience time.Duration) bool {
	m := g.m
	m.held.fit(g.c.Ports())
	switch {
	case 2*m.held.hosts[g.flow.Port+1].held >= m.held.limit(g.flow.Port):
		return false
	case g.arrived:
		return true // the request has just arrived
	}
	h := &m.held.slots[g.held.first]
	return !h.hurried && now < h.at.Add(patience)
}

// tell answers a CAS that fails, in place of the server.
func (g *placing) tell(shard int, prior uint64) outcome {
	r := g.window.remember(g.f, 1, shard)
	r.prior = prior
	g.leave()
	g.m.stats.Told++
	g.window.finish(r)
	g.answered()
	g.deliver(g.c, r, requester.Answer{Kind: requester.Acked})
	return told
}

// ruleOf returns the rule under which the atomics of a word are replaced; nil if there is none.
func (s *server) ruleOf(va uint64) *rules.Rule {
	for _, r := range s.rules {
		if r.Action == rules.Atomics && r.Covers(va, transform.WordLen) {
			return r
		}
	}
	return nil
}
