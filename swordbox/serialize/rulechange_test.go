package serialize

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// An atomic that was moved unchanged (action move) is lost on its way to the server, and then the
// rule becomes one that replaces atomics. The switch retransmits the atomic while another client
// changes the word: no addition is lost.
func TestMoveBecomesAtomics(t *testing.T) {
	eachWindow(t, func(t *testing.T, _ int, nics func(*engine.Config)) {
		for off := 64; off < 64+8*8; off += 8 {
			r := newRig(t, rigConfig{clients: 2, shards: 2, rules: moveRule(2), engine: nics})
			a, b := r.connect(0), r.connect(1)
			for _, c := range []*conn{a, b} {
				c.prove(c.faa(0, 0, 0), c.faa(1024, 0, 0))
			}
			lost := r.loseOnce(func(f *wire.Frame) bool {
				return f.BTH.Opcode == wire.RCFetchAdd && f.SrcAddr() == ipOf(switchIP)
			})
			a.post(a.faa(off, 1000, 0))
			r.settle()
			r.useRules(atomicsRule(2)...)
			r.do(func(*pipeline.Ctx) {})
			answered := b.additions(off, 200)
			r.run(20 * time.Millisecond)
			got := len(a.n.poll())
			if want := uint64(1000*got + answered); !*lost || answered != 200 || r.server.word(off) != want {
				t.Errorf("word at %d: lost: %v; %d and %d additions answered, the word is %d, want %d; %d replaced",
					off, *lost, got, answered, r.server.word(off), want, r.m.Stats().Replaced)
			}
		}
	})
}

// A WRITE passes the switch while no rule selects the server, and takes longer to reach the server
// than three atomics of another client. A rule is added meanwhile: no atomic is replaced before the
// WRITE has arrived.
func TestWriteFromBeforeTheRules(t *testing.T) { writeFromBeforeTheRules(t, 0) }

// The same for a WRITE that a fault rule of the operator delays after the switch, for longer than
// packets take otherwise. Meanwhile its client dies, and does not retransmit it.
func TestWriteThatAnOperatorDelays(t *testing.T) { writeFromBeforeTheRules(t, 30*time.Millisecond) }

func writeFromBeforeTheRules(t *testing.T, delay time.Duration) {
	t.Helper()
	r := newRig(t, rigConfig{clients: 2, rules: moveRule(1)})
	r.useRules()
	r.settle()
	a, b := r.connect(0), r.connect(1)
	a.n.fill(0x33, 8)
	var late []byte
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); up || port != r.server.port || late != nil || f.BTH.Opcode != wire.RCWriteOnly {
			return true
		}
		late = bytes.Clone(data)
		r.sw.Delayed(r.now.Add(delay))
		return false
	}
	a.post(a.write(64, 512, 8))
	r.settle()
	a.n.dead = delay > 0
	r.useRules(atomicsRule(1)...)
	answered := 0
	for range 20 {
		b.post(b.faa(64, 1, 0))
		r.run(15*time.Microsecond + delay/25)
		answered += len(b.n.poll())
	}
	r.launch(false, r.server.port, late, false)
	r.settle()
	b.post(b.faa(64, 1, 0))
	r.run(time.Millisecond)
	b.done(verbs.Success)
	if answered != 20 || b.n.word(0) != filled || r.server.word(64) != filled+1 {
		t.Errorf("%d additions answered, the last one with %#x; the word is %#x", answered, b.n.word(0), r.server.word(64))
	}
	if delay == 0 {
		a.done(verbs.Success)
	}
	r.run(20 * time.Millisecond)
	for range 3 {
		b.prove(b.faa(64, 1, 0))
	}
	if r.m.Stats().Replaced == 0 {
		t.Error("nothing is replaced afterwards")
	}
}

// The switch forgets a flow while a WRITE of it is on its way to the server, to a word that the
// switch does not know. No atomic on the word is replaced before the WRITE has arrived.
func TestForgottenFlowWithARequestInFlight(t *testing.T) {
	r := newRig(t, rigConfig{clients: 2, rules: atomicsRule(1)})
	a, b := r.connect(0), r.connect(1)
	b.prove(b.faa(2048, 0, 0), b.faa(2048, 0, 0), b.faa(2048, 0, 0))
	r.run(20 * time.Millisecond)
	a.n.fill(0x33, 8)
	var late []byte
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); up || port != r.server.port || late != nil || f.BTH.Opcode != wire.RCWriteOnly {
			return true
		}
		late = bytes.Clone(data)
		return false
	}
	a.post(a.write(64, 512, 8))
	r.settle()
	r.do(func(c *pipeline.Ctx) { r.m.Closed(c, r.sequencerOf(a).flow) })
	r.clients[0].dead = true
	answered := 0
	for range 20 {
		b.post(b.faa(64, 1, 0))
		r.run(15 * time.Microsecond)
		answered += len(b.n.poll())
	}
	r.launch(false, r.server.port, late, false)
	r.settle()
	b.post(b.faa(64, 1, 0))
	r.run(time.Millisecond)
	b.done(verbs.Success)
	if answered != 20 || b.n.word(0) != filled || r.server.word(64) != filled+1 {
		t.Errorf("%d additions answered, the last one with %#x; the word is %#x", answered, b.n.word(0), r.server.word(64))
	}
}
