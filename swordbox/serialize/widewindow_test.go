package serialize

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// windows are numbers of packets that the NICs of these tests may have in flight: the default of
// the soft NIC, and as many as hardware NICs allow.
var windows = []int{128, 1024, 16384}

// wideRig makes a rig of one client, whose NIC has up to window packets in flight, and its
// connection, for which the key is proven.
func wideRig(t *testing.T, window int, list []rules.Rule) (*rig, *conn) {
	t.Helper()
	r := newRig(t, rigConfig{clients: 1, rules: list, engine: func(c *engine.Config) { c.Window = window }})
	n := r.clients[0]
	q, err := n.e.CreateQP(n.pd, n.cq, n.cq, verbs.QPInit{MaxSendWR: window, MaxRecvWR: 16})
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{r: r, n: n, qp: q, server: r.server.newQP(t)}
	r.ready(c.qp, serverIP, c.server.Num(), r.psn, 16)
	r.ready(c.server, 1, c.qp.Num(), r.psn, 16)
	for range 2 {
		c.prove(c.write(0, 0, 2000), c.read(0, 0, 2000), c.write(0, 0, 8), c.write(regionLen-8, 0, 8), c.faa(0, 0, 0), c.faa(regionLen-8, 0, 0), c.read(0, 0, 8), c.read(regionLen-8, 0, 8))
	}
	return r, c
}

// allSucceed checks that n requests end successfully.
func (c *conn) allSucceed(n int) {
	c.r.t.Helper()
	ended := map[verbs.Status]int{}
	for _, wc := range c.n.poll() {
		ended[wc.Status]++
	}
	if len(ended) != 1 || ended[verbs.Success] != n {
		c.r.t.Errorf("%d requests have ended: %v\n%+v", n, ended, c.r.m.Stats())
	}
}

// eachWindow runs a test with each window. nics gives the NICs of a rig that window.
func eachWindow(t *testing.T, test func(t *testing.T, window int, nics func(*engine.Config))) {
	for _, window := range windows {
		t.Run(fmt.Sprint("window=", window), func(t *testing.T) {
			test(t, window, func(c *engine.Config) { c.Window = window })
		})
	}
}

// eachWindowAndAction runs a test with each window, without a rule and with each action.
func eachWindowAndAction(t *testing.T, test func(t *testing.T, window int, list []rules.Rule)) {
	eachWindow(t, func(t *testing.T, window int, _ func(*engine.Config)) {
		for name, list := range map[string][]rules.Rule{"none": nil, "move": moveRule(1), "atomics": atomicsRule(1)} {
			t.Run(name, func(t *testing.T) { test(t, window, list) })
		}
	})
}

// The answer to an atomic or a READ is lost between the switch and the client, and as many WRITEs
// as fit into the client's window are executed behind it. The client retransmits all of them.
func TestLostAnswerBeforeManyWrites(t *testing.T) {
	for _, op := range []wire.Opcode{wire.RCAtomicAck, wire.RCReadResponseOnly} {
		t.Run(op.String(), func(t *testing.T) {
			eachWindowAndAction(t, func(t *testing.T, window int, list []rules.Rule) {
				r, c := wideRig(t, window, list)
				lost := false
				r.tap = func(up bool, port int, data []byte) bool {
					if f := parse(data); !up && port == 0 && !lost && f.BTH.Opcode == op {
						lost = true
						return false
					}
					return true
				}
				first := c.faa(64, 1, 0)
				if op != wire.RCAtomicAck {
					first = c.read(64, 0, 8)
				}
				c.post(first)
				for i := range window - 1 {
					c.post(c.write(8192+8*(i%64), 64, 8))
				}
				r.run(3 * time.Second)
				if c.allSucceed(window); !lost {
					t.Error("no answer was lost")
				}
				if got := r.server.word(64); op == wire.RCAtomicAck && got != 1 {
					t.Errorf("the word is %d", got)
				}
			})
		})
	}
}

// deafen sends n requests of the client while every packet to the client is lost.
func (c *conn) deafen(n int, wr func(i int) verbs.SendWR) {
	c.r.t.Helper()
	c.r.tap = func(up bool, port int, _ []byte) bool { return up || port != 0 }
	for i := range n {
		c.post(wr(i))
		if i%64 == 0 {
			c.r.run(10 * time.Microsecond)
		}
	}
	c.r.run(14 * time.Millisecond)
	c.r.tap = nil
	c.r.run(3 * time.Second)
}

// Every packet to the client is lost until the client has sent as much as its window allows.
func TestSilenceForAWindow(t *testing.T) {
	eachWindowAndAction(t, func(t *testing.T, window int, list []rules.Rule) {
		_, c := wideRig(t, window, list)
		c.deafen(window, func(i int) verbs.SendWR { return c.write(8192+8*(i%64), 64, 8) })
		c.allSucceed(window)
	})
}

// The same, while the client's requests alternate between its own connection and the shared one,
// more often than the switch has segments to remember.
func TestSilenceOverManyChangesOfPlace(t *testing.T) {
	eachWindowAndAction(t, func(t *testing.T, window int, list []rules.Rule) {
		r, c := wideRig(t, window, list)
		n := min(window/2, 1500)
		c.deafen(n, func(i int) verbs.SendWR {
			switch {
			case i%3 == 0 && i < 20:
				return c.faa(64, 1, 0)
			case i%3 == 1 && i < 20:
				return c.read(64, 0, 2000)
			case i%2 == 0:
				return c.write(8192, 64, 2000)
			}
			return c.write(8192+8*(i%64), 64, 8)
		})
		c.allSucceed(n)
		if got := r.server.word(64); got != 7 {
			t.Errorf("the word is %d", got)
		}
	})
}

// A request is lost after the switch, and as many requests follow it as a NIC can have in flight,
// all on the client's connection. The retransmission still reaches the server, and its answer the
// client.
func TestRepeatedFarBehindInFlight(t *testing.T) {
	for _, behind := range []int{1 << 20, 1<<21 + 5, 1<<23 - 2} {
		r, c := wideRig(t, 128, moveRule(1))
		c.prove(c.faa(64, 1, 0)) // some requests have moved before
		l := r.sequencerOf(c)
		shift := l.conn.psns.shift()
		r.useRules() // nothing moves any more
		r.loseOnce(func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCWriteOnly && f.SrcAddr() == ipOf(1) })
		c.post(c.write(128, 64, 8))
		r.settle()
		if l.conn.acked == l.conn.psns.own {
			t.Fatal("the WRITE has moved")
		}
		for left := behind; left > 0; left -= min(left, 1<<19) {
			l.assign(min(left, 1<<19), false)
			l.advance(min(left, 1<<19))
			l.conn.reaches()
		}
		r.run(30 * time.Millisecond)
		if c.allSucceed(1); l.conn.psns.shift() != shift || shift == 0 {
			t.Errorf("%d behind: %d requests have moved, and %d before", behind, l.conn.psns.shift(), shift)
		}
	}
}
