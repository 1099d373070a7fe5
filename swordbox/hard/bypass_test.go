package hard

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// While there are no rules, connections that are new then change words, and nobody looks. When rules come back, what the
// switch knew of the words is of no use.
func TestWordsAreForgottenWithTheRules(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	r.m.SetRules(nil)
	other := r.connect(1)
	other.post(other.faa(64, 1000, 0))
	r.run(time.Millisecond)
	other.done(verbs.Success)
	set, err := rules.NewSet(atomicsRule(1))
	if err != nil {
		t.Fatal(err)
	}
	r.m.SetRules(set)
	c := conns[0]
	c.post(c.faa(64, 1, 0))
	r.run(10 * time.Millisecond)
	c.done(verbs.Success)
	if was, is := c.n.word(0), r.server.word(64); was < 1000 || is != was+1 {
		t.Errorf("was %d, is %d: the addition of 1000 is lost", was, is)
	}
}

// A request that stands for an atomic may still be on its way when the last rule goes: a connection that is new then must
// not get in before it.
func TestNobodyOvertakesWhenTheRulesGo(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	lost, lose := 0, true
	c := conns[0]
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.SrcAddr() == ipOf(switchIP) && lose {
			lost++
			return false
		}
		return true
	}
	c.post(c.faa(64, 1, 0))
	r.step(r.now + hop)
	r.m.SetRules(nil)
	other := r.connect(1)
	other.post(other.faa(64, 1000, 0))
	r.settle()
	lose = false
	r.run(20 * time.Millisecond)
	c.done(verbs.Success)
	other.done(verbs.Success)
	if lost == 0 {
		t.Error("nothing was under way when the rules went")
	}
	if got := r.server.word(64); got < 1000 {
		t.Errorf("the word is %d: the addition of 1000 is lost", got)
	}
}

// A NIC that tries longer than the budget says sends a request once more when the word does not count on it any more: the
// word is asked about again.
func TestRetransmissionBehindTheBudget(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2, cfg: Config{
		Words: words.Config{Budget: time.Millisecond, Patience: 100 * time.Microsecond, HoldOff: 200 * time.Microsecond},
	}})
	slow, fast := conns[0], conns[1]
	lose := true
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		return !lose || up || port != r.server.port || f.SrcAddr() != ipOf(1)
	}
	slow.post(slow.faa(128, 1000, 0)) // the first of its word: on its own connection
	r.run(100 * time.Microsecond)
	lose = false
	for range 12 {
		fast.post(fast.faa(128, 1, 0))
		r.run(time.Millisecond)
		fast.done(verbs.Success)
	}
	r.run(20 * time.Millisecond)
	slow.done(verbs.Success)
	fast.post(fast.faa(128, 1, 0))
	r.run(5 * time.Millisecond)
	fast.done(verbs.Success)
	if got := r.server.word(128); got != 1013 || r.m.Stats().Replaced == 0 {
		t.Errorf("the word is %d: %+v", got, r.m.Stats())
	}
}
