package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// While there are no rules, new connections change words, and the switch does not see that. When
// rules are added again, the switch does not use the earlier values of the words.
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

// A replaced atomic may still be in flight when the last rule is removed: no request of a new
// connection may change the word before it.
func TestNoRequestOvertakesWhenTheRulesGo(t *testing.T) {
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
		t.Error("no request was in flight when the rules were removed")
	}
	if got := r.server.word(64); got < 1000 {
		t.Errorf("the word is %d: the addition of 1000 is lost", got)
	}
}

// A NIC that retries for longer than Config.Words.Budget retransmits a request for which its word
// does not wait any more. The switch announces the request to the word again.
func TestRetransmissionBehindTheBudget(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2, cfg: Config{
		Words: atomiccache.Config{Budget: time.Millisecond, Patience: 100 * time.Microsecond, HoldOff: 200 * time.Microsecond},
	}})
	slow, fast := conns[0], conns[1]
	lose := true
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		return !lose || up || port != r.server.port || f.SrcAddr() != ipOf(1)
	}
	slow.post(slow.faa(128, 1000, 0)) // the first atomic on its word, which travels on the client's connection
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
