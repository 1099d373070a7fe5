package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// If the switch knows that a CAS will fail, it sends the server a WRITE of no bytes. A rule may
// choose otherwise. With misses=switch the switch answers the CAS, once the server has acknowledged
// the value that makes it fail (atomiccache.Word.Tell). With misses=wait the switch holds the CAS
// until the word has the value that the CAS compares with. Clients that wait for a lock then get it
// in the order of arrival, without polling.

// waiting says which value the first held request of a flow waits for. It is set only for a CAS
// that would fail.
type waiting struct {
	word    *atomiccache.Word // nil means that it waits for no value
	key     atomiccache.Key   // word.Key when the wait began; it changes if the Word is reused
	rkey    uint32            // R_Key of the CAS
	compare uint64            // the value that the CAS compares with
	time    time.Duration     // how long after its arrival the CAS waits at most
}

// stillFails reports whether the switch knows that the CAS would fail now. If so, Table.Changed
// returns the word when its value has changed.
func (a *waiting) stillFails(now clock.Time) bool {
	return a.word.Key == a.key && a.word.Await(now, a.rkey, a.compare)
}

// miss answers a CAS that will fail, or makes it wait, if a rule says so. All earlier requests of
// the flow have been answered. The result sentShared means that the caller must send the CAS.
func (g *placing) miss(w *atomiccache.Word, shard int) outcome {
	rule := g.l.s.ruleOf(w.VA)
	if rule == nil || rule.Misses == rules.AnswerServer {
		return sentShared
	}
	a := waiting{w, w.Key, g.f.AtomicETH.RKey, g.f.AtomicETH.Compare, rule.MissPatience()}
	if rule.Misses == rules.AnswerWait && g.mayAwait(g.c.Now, a.time) && a.stillFails(g.c.Now) {
		g.l.waits.awaits = a
		return mustWait
	}
	if prior, ok := w.Tell(g.c.Now, a.rkey, a.compare); ok {
		return g.tell(shard, prior)
	}
	return sentShared
}

// mayAwait reports whether the next request may go on waiting for a value: its patience is not
// over, and its host uses less than half of its share of the held requests. now is the present
// time.
func (g *placing) mayAwait(now clock.Time, patience time.Duration) bool {
	m := g.l.m
	m.held.fit(g.c.Ports())
	switch {
	case 2*m.held.hosts[g.l.flow.Port+1].held >= m.held.limit(g.l.flow.Port):
		return false
	case g.arrived:
		return true // the request has just arrived
	}
	h := &m.held.slots[g.l.waits.held.first]
	return !h.hurried && now < h.at.Add(patience)
}

// tell answers a CAS that fails, instead of the server. prior is the value of the word.
func (g *placing) tell(shard int, prior uint64) outcome {
	r := g.l.replies.window.remember(g.f, 1, shard)
	r.prior = prior
	g.leave()
	g.l.m.stats.Told++
	g.l.replies.window.finish(r)
	g.l.answered()
	g.l.deliver(g.c, r, requester.Answer{Kind: requester.Acked})
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
