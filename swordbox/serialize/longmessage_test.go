package serialize

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// slowPair connects a client to the server with the smallest path MTU, for messages of many
// packets, and with a timeout that is long against every wait in the switch. The switch learns the
// connection from its packets.
func (r *rig) slowPair(client int, retries uint8) *conn {
	r.t.Helper()
	n := r.clients[client]
	c := &conn{r: r, n: n, qp: n.newQP(r.t), server: r.server.newQP(r.t)}
	for _, end := range []struct {
		of, to interface{ Num() wire.QPN }
		peer   int
	}{{c.qp, c.server, serverIP}, {c.server, c.qp, client + 1}} {
		q := c.qp
		if end.of != q {
			q = c.server
		}
		for _, err := range []error{
			q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}),
			q.ToRTR(r.now, verbs.ToRTR{
				DestQPN: end.to.Num(), DestGID: verbs.GIDOf(ipOf(end.peer)), RecvPSN: r.psn, PathMTU: verbs.MTU256, MinRNRTimer: 12, MaxDestRdAtomic: 4,
			}),
			q.ToRTS(r.now, verbs.ToRTS{SendPSN: r.psn, Timeout: 15, RetryCount: retries, RNRRetry: 7, MaxRdAtomic: 4}),
		} {
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
	return c
}

// writesImm posts WRITEs with immediate data of these sizes, for which the server has receives.
func (c *conn) writesImm(sizes ...int) {
	c.r.t.Helper()
	if err := c.server.PostRecv(make([]verbs.RecvWR, len(sizes))); err != nil {
		c.r.t.Fatal(err)
	}
	for _, n := range sizes {
		w := c.write(0, 0, n)
		w.Op = verbs.OpWriteImm
		c.post(w)
	}
}

// succeed expects n completions without error.
func (c *conn) succeed(n int) {
	c.r.t.Helper()
	wcs := c.n.poll()
	for _, wc := range wcs {
		if wc.Status != verbs.Success {
			c.r.t.Errorf("%v", wc.Status)
		}
	}
	if len(wcs) != n {
		c.r.t.Errorf("%d completions, want %d", len(wcs), n)
	}
}

// The switch learns a connection from its acknowledgements, in the middle of a long message. It
// forwards the rest of the message, however much of the first part it has counted.
func TestMessageInWhichTheFlowIsLearnt(t *testing.T) {
	for _, size := range []int{2 << 10, 32 << 10, 64 << 10, 250 << 10} {
		r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1)})
		c := r.slowPair(0, 0)
		c.writesImm(size)
		r.run(time.Second)
		c.succeed(1)
	}
}

// The same on a link that loses, duplicates and reorders packets, also after the rule that replaces
// atomics was removed. A client uses up its retries only if it would do so without rules, too.
func TestLongMessagesOnALossyLink(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := newRig(t, rigConfig{clients: 1, seed: seed, rules: atomicsRule(1)})
			if seed%2 == 1 {
				r.useRules(moveRule(1)...)
			}
			c := r.slowPair(0, 7)
			r.tap = func(_ bool, port int, _ []byte) bool { return port != r.server.port || r.r.IntN(10) > 0 }
			r.faults = chance{dup: 25, late: 25}
			c.writesImm(0, 1, 3, 255, 256, 257, 4*256+5, 64<<10)
			r.run(20 * time.Second)
			c.succeed(8)
		})
	}
}

// While a message of very many packets is in progress, words that its rest covers become known:
// more of them than the flow can have operations. The rest does not wait for room that only the end
// of the message would make.
func TestWordsAppearInFrontOfAMessage(t *testing.T) {
	const size = 128 << 10
	r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1), cfg: Config{OwnOps: 8}, engine: func(c *engine.Config) { c.Window = 2 }})
	c := r.slowPair(0, 0)
	for range 4 { // until the switch knows the connection
		c.writesImm(64)
		r.run(time.Second)
		c.succeed(1)
	}
	packets := 0
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.BTH.Opcode.Is(wire.OpWrite) {
			packets++
			r.m.words.Get(r.now, atomiccache.Key{VA: r.server.base + uint64(256*packets+8)})
		}
		return true
	}
	c.writesImm(size)
	r.run(time.Second)
	c.succeed(1)
	if packets != size/256 {
		t.Errorf("%d packets for a message of %d", packets, size/256)
	}
}

// Rules come in the middle of a message, and the client requests no acknowledgement before it has
// sent more packets of the rest than a flow has room for operations. Every word waits for the packets whose
// addresses the switch does not know.
func TestRulesComeInALongMessage(t *testing.T) {
	for _, ops := range []int{1, 2, 128} {
		r := newRig(t, rigConfig{
			clients: 2, rules: atomicsRule(1), cfg: Config{OwnOps: ops},
			engine: func(c *engine.Config) { c.Window, c.Acks.Every = 400, 4096 },
		})
		r.connect(0)
		for i := range 20 {
			r.m.words.Get(r.now, atomiccache.Key{VA: r.server.base + 4096*uint64(i)})
		}
		c := r.slowPair(1, 0)
		r.useRules()
		for range 4 {
			c.writesImm(64)
			r.run(time.Second)
			c.succeed(1)
		}
		packets := 0
		r.tap = func(up bool, port int, _ []byte) bool {
			if up && port == 1 {
				if packets++; packets == 401 { // the first one of the second window
					r.g.todo = append(r.g.todo, func(*pipeline.Ctx) { r.useRules(atomicsRule(1)...) })
				}
			}
			return true
		}
		c.writesImm(200 << 10)
		r.run(100 * time.Millisecond)
		c.succeed(1)
		if s := r.m.Stats(); s.LooseDropped+s.HoldTimeouts > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestPacketJoinsNoOtherMessage loses packets of two WRITEs of the same length on a flow that is not
// learnt yet: the last packet of the second one must not join the operation of the first, or the word
// that it covers would stay known and the next replaced atomic would overwrite the WRITE.
func TestPacketJoinsNoOtherMessage(t *testing.T) {
	const size, m = 2000, 32 << 10 // A at 0, M at m: two packets each
	r := newRig(t, rigConfig{clients: 2, rules: atomicsRule(1), cfg: Config{Transit: 100 * time.Microsecond}, engine: func(c *engine.Config) { c.Acks.Every = 1 }})
	r.useRules()
	a, b := r.connect(0), r.connect(1)
	a.n.fill(0x33, size)
	loseACK, deaf, firsts, lasts := true, false, 0, 0
	r.tap = func(up bool, port int, data []byte) bool {
		switch f := parse(data); {
		case up && port == r.server.port && loseACK && f.BTH.Opcode == wire.RCAck: // so that the flow stays in a loose phase
			loseACK = false
			return false
		case !up && port == 0 && deaf: // the ACKs are lost between switch and client, so the client retransmits A and M
			return false
		case up && port == 0 && f.BTH.Opcode == wire.RCWriteFirst && f.RETH.VA == r.server.base+m:
			firsts++
			return firsts != 2
		case up && port == 0 && f.BTH.Opcode == wire.RCWriteLast && firsts > 0:
			lasts++
			return lasts != 1 // the last packet of M has not reached the server yet
		}
		return true
	}
	a.post(a.write(regionLen-8, 512, 8))
	r.settle()
	r.useRules(atomicsRule(1)...)
	b.post(b.faa(0, 0, 0)) // a word in A
	r.settle()
	deaf = true
	a.post(a.write(0, 512, size), a.write(m, 512, size))
	r.run(100 * time.Microsecond)
	for i := range 400 {
		b.post(b.faa(m+size-8, 1, 8*i))
		r.run(50 * time.Microsecond)
		deaf = lasts < 3
	}
	r.run(40 * time.Millisecond)
	if got, n := r.server.word(m+size-8), len(a.n.poll()); n != 3 || got < filled {
		t.Errorf("%d WRITEs acknowledged, the word is %#x", n, got)
	}
}
