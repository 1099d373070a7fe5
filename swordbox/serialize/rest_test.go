package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A WRITE of many packets has been acknowledged in part, and the last packet is lost once before
// the switch. Meanwhile another client begins to add to a word in that packet: no addition that the
// server has answered is lost.
func TestWordInTheRestOfALongWrite(t *testing.T) {
	for _, n := range []int{2 << 10, 20 << 10, 32 << 10, 33 << 10, 40 << 10, 100 << 10} {
		r := newRig(t, rigConfig{clients: 2, rules: atomicsRule(1)})
		a, b := r.connect(0), r.connect(1)
		for _, c := range []*conn{a, b} {
			c.prove(c.faa(regionLen-64, 0, 0), c.faa(regionLen-64, 0, 0), c.faa(regionLen-64, 0, 0))
		}
		r.run(20 * time.Millisecond)
		a.n.fill(0x33, n)
		lost := false
		r.tap = func(up bool, port int, data []byte) bool {
			if up && port == 0 && !lost && parse(data).BTH.Opcode == wire.RCWriteLast {
				lost = true
				return false
			}
			return true
		}
		a.post(a.write(0, 512, n))
		answered := b.additions(n-8, 600)
		r.run(20 * time.Millisecond)
		a.done(verbs.Success)
		if got := r.server.word(n - 8); !lost || answered != 600 || got < filled {
			t.Errorf("%d bytes: %d additions answered, the word is %#x", n, answered, got)
		}
	}
}
