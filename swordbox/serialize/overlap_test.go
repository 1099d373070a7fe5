package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// useRules replaces the machine's rules.
func (r *rig) useRules(list ...rules.Rule) {
	r.t.Helper()
	set, err := rules.NewSet(list)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m.SetRules(set)
}

// prove sends requests until the switch has proven a client's key and connection.
func (c *conn) prove(wrs ...verbs.SendWR) {
	c.r.t.Helper()
	for _, wr := range wrs {
		c.post(wr)
		c.r.run(time.Millisecond)
		c.done(verbs.Success)
	}
}

// loseOnce loses the first packet to the server for which hit is true. The result becomes true
// then.
func (r *rig) loseOnce(hit func(f *wire.Frame) bool) (lost *bool) {
	lost = new(bool)
	r.tap = func(up bool, port int, data []byte) bool {
		if up || port != r.server.port || *lost {
			return true
		}
		f := parse(data)
		*lost = hit(&f)
		return !*lost
	}
	return lost
}

// additions adds 1 to a word n times, as fast as answers allow, and returns how many were answered.
func (c *conn) additions(off, n int) (answered int) {
	c.r.t.Helper()
	for range n {
		c.post(c.faa(off, 1, 0))
		c.r.run(15 * time.Microsecond)
		answered += len(c.n.poll())
	}
	c.r.run(20 * time.Millisecond)
	return answered + len(c.n.poll())
}

// fill sets bytes of the client's memory, which WRITEs take from offset 512 on.
func (n *node) fill(b byte, length int) {
	for i := range length {
		n.buf[512+i] = b
	}
}

const filled = 0x3333333333333333

// checkOverlap is called after b has made 200 additions to the word at off, while a WRITE of a was
// in flight that set the word to filled. The additions that the server executed after the WRITE
// must count, at whatever point it executed the WRITE.
func checkOverlap(t *testing.T, off int, a, b *conn, answered int) {
	t.Helper()
	a.done(verbs.Success)
	if got := b.r.server.word(off); answered != 200 || got < filled || got > filled+200 || b.n.word(0) >= filled && got != b.n.word(0)+1 {
		t.Errorf("word at %d: %d additions answered, the last one with %#x; the word is %#x: an acknowledged WRITE of %#x is lost",
			off, answered, b.n.word(0), got, uint64(filled))
	}
}

// A WRITE of 16 bytes covers a word that the switch knows and its neighbour, which it does not know
// yet. The WRITE is lost once; meanwhile another client adds to the neighbour, whose atomics may
// travel on another shared connection. None of them is replaced before the WRITE has ended.
func TestWriteOverAnUnknownNeighbour(t *testing.T) {
	eachWindow(t, func(t *testing.T, _ int, nics func(*engine.Config)) {
		for off := 64; off < 64+16*16; off += 16 {
			r := newRig(t, rigConfig{clients: 2, shards: 2, rules: atomicsRule(2), engine: nics})
			a, b := r.connect(0), r.connect(1)
			for _, c := range []*conn{a, b} {
				for range 3 { // the first of the two words becomes known
					c.prove(c.faa(off, 0, 0))
				}
			}
			b.prove(b.faa(2048, 0, 0))
			checkWriteOver(t, off, 16, off+8, a, b)
		}
	})
}

// Atomics of one range are replaced, and everything else moves. A WRITE ends beyond the range,
// where it covers a word that the switch knows: it takes that word's shared connection. None of the
// words before that is replaced before the WRITE has ended.
func TestWriteAcrossTheEndOfARange(t *testing.T) {
	eachWindow(t, func(t *testing.T, _ int, nics func(*engine.Config)) {
		for off := 64; off < 64+8*8; off += 8 {
			r := newRig(t, rigConfig{clients: 2, shards: 2, rules: moveRule(2), engine: nics})
			atomics := rules.Rule{Server: ipOf(serverIP), Action: rules.Atomics, From: r.server.base, To: r.server.base + 1024, Shards: 2}
			r.useRules(append([]rules.Rule{atomics}, moveRule(2)...)...)
			a, b := r.connect(0), r.connect(1)
			for _, c := range []*conn{a, b} {
				c.prove(c.faa(2048, 0, 0), c.faa(0, 0, 0), c.write(4096, 0, 8))
				r.run(20 * time.Millisecond)
				c.prove(c.faa(1016, 0, 0), c.faa(1016, 0, 0), c.faa(1016, 0, 0))
			}
			checkWriteOver(t, off, 1024-off+8, off, a, b)
		}
	})
}

// checkWriteOver loses a WRITE of n bytes once, which a has sent and the switch has moved.
// Meanwhile b adds to one of the words that the WRITE covers.
func checkWriteOver(t *testing.T, off, n, word int, a, b *conn) {
	t.Helper()
	r := a.r
	lost := r.loseOnce(func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCWriteOnly && len(f.Payload) == n })
	a.n.fill(0x33, n)
	before := r.m.Stats()
	a.post(a.write(off, 512, n))
	r.settle()
	if !*lost || r.m.Stats().Moved == before.Moved {
		t.Fatalf("word at %d: the WRITE was lost: %v, and has moved: %v", off, *lost, r.m.Stats().Moved > before.Moved)
	}
	answered := b.additions(word, 200)
	if n := r.m.Stats().Replaced - before.Replaced; n < 20 {
		t.Fatalf("word at %d: %d additions were replaced", off, n)
	}
	checkOverlap(t, word, a, b, answered)
}
