package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// checkLongWrite adds 1 to a word n times while a WRITE over it is in flight. Each addition returns
// a value that no other one returns, from before the WRITE or after it. The last addition leaves
// the final value of the word.
func checkLongWrite(t *testing.T, a, b *conn, word, n int) {
	t.Helper()
	answered := 0
	for i := range n + 2 {
		b.post(b.faa(word, 1, 8*i))
		b.r.run(250 * time.Microsecond)
		if i >= n-1 {
			b.r.run(40 * time.Millisecond)
		}
		answered += len(b.n.poll())
	}
	for _, wc := range a.n.poll() {
		if wc.Status != verbs.Success {
			t.Errorf("the WRITE: %v", wc.Status)
		}
	}
	was := make(map[uint64]bool)
	for i := range answered {
		was[b.n.word(8*i)] = true
	}
	last := b.n.word(8 * (answered - 1))
	if got := b.r.server.word(word); answered != n+2 || got != last+1 || got < filled || len(was) != answered {
		t.Errorf("word at %d: %d additions were answered with %d values, the last one with %#x; the word is %#x; %d were replaced",
			word, answered, len(was), last, got, b.r.m.Stats().Replaced)
	}
	if b.r.m.Stats().Replaced == 0 {
		t.Error("nothing was replaced")
	}
}

// The packets of a WRITE after the first one are lost before the server, and their words no longer
// wait for them when the client's NIC retransmits them. The switch announces the WRITE to the words
// again, although these packets name no address.
func TestRestOfAWriteBehindTheBudget(t *testing.T) {
	for _, word := range []int{1024 + 1200, 1024 + 2304} { // in the middle packet, in the last one
		r, conns := known(t, rigConfig{clients: 2, engine: func(c *engine.Config) { c.Acks.Every = 1 }, cfg: Config{
			Words: atomiccache.Config{Budget: time.Millisecond, Patience: 100 * time.Microsecond, HoldOff: 200 * time.Microsecond},
		}})
		a, b := conns[0], conns[1]
		a.n.fill(0x33, 2500)
		sent := 0
		r.tap = func(up bool, port int, data []byte) bool {
			f := parse(data)
			if up || port != r.server.port || f.SrcAddr() != ipOf(1) || !f.BTH.Opcode.Is(wire.OpWrite) {
				return true
			}
			sent++
			return sent == 1 || sent > 3
		}
		a.post(a.write(1024, 512, 2500))
		checkLongWrite(t, a, b, word, 60)
	}
}

// The last packet of a long WRITE is lost before the switch, while the switch does not know the PSN
// that the server expects. The server has acknowledged the packets before it, but the words go on
// waiting for the rest.
func TestRestOfAWriteOfALooseFlow(t *testing.T) {
	const size = 20 << 10
	r := newRig(t, rigConfig{
		clients: 2, rules: atomicsRule(1), cfg: Config{Transit: 100 * time.Microsecond},
		engine: func(c *engine.Config) { c.Acks.Every = 1 },
	})
	r.useRules()
	a, b := r.connect(0), r.connect(1)
	a.n.fill(0x33, size)
	loseACK, loseLast := true, true
	r.tap = func(up bool, port int, data []byte) bool {
		switch f := parse(data); {
		case up && port == r.server.port && loseACK && f.BTH.Opcode == wire.RCAck:
			loseACK = false
			return false
		case up && port == 0 && loseLast && f.BTH.Opcode == wire.RCWriteLast:
			loseLast = false
			return false
		}
		return true
	}
	a.post(a.write(regionLen-8, 512, 8))
	r.settle()
	r.useRules(atomicsRule(1)...)
	a.post(a.write(0, 512, size))
	checkLongWrite(t, a, b, size-8, 60)
}

// A rule is added during a WRITE whose address the switch has not seen: no word is known while the
// rest of the WRITE is in flight.
func TestRulesComeInAWrite(t *testing.T) {
	const size = 20 << 10
	r := newRig(t, rigConfig{clients: 2, rules: atomicsRule(1), cfg: Config{Transit: 100 * time.Microsecond}})
	r.useRules()
	a, b := r.connect(0), r.connect(1)
	a.n.fill(0x33, size)
	lost := false
	r.tap = func(up bool, port int, data []byte) bool {
		if up && port == 0 && !lost && parse(data).BTH.Opcode == wire.RCWriteLast {
			lost = true
			return false
		}
		return true
	}
	a.post(a.write(0, 512, size))
	r.run(200 * time.Microsecond)
	r.useRules(atomicsRule(1)...)
	checkLongWrite(t, a, b, size-8, 60)
}
