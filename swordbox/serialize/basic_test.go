package serialize

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// atomicsRule replaces the atomics on the whole region of the server.
func atomicsRule(shards int) []rules.Rule {
	return []rules.Rule{{Server: ipOf(serverIP), Action: rules.Atomics, Shards: shards}}
}

// moveRule moves everything.
func moveRule(shards int) []rules.Rule {
	return []rules.Rule{{Server: ipOf(serverIP), Action: rules.Move, Shards: shards}}
}

// cas and faa are atomics on a word of the server.
func (c *conn) cas(off int, compare, swap uint64, to int) verbs.SendWR {
	return verbs.SendWR{
		Op: verbs.OpCmpSwap, SGL: c.n.sge(to, 8), RemoteAddr: c.r.server.base + uint64(off), RKey: c.r.server.key,
		CompareAdd: compare, Swap: swap,
	}
}

func (c *conn) faa(off int, add uint64, to int) verbs.SendWR {
	return verbs.SendWR{
		Op: verbs.OpFetchAdd, SGL: c.n.sge(to, 8), RemoteAddr: c.r.server.base + uint64(off), RKey: c.r.server.key, CompareAdd: add,
	}
}

func (c *conn) write(off, from, n int) verbs.SendWR {
	return verbs.SendWR{Op: verbs.OpWrite, SGL: c.n.sge(from, n), RemoteAddr: c.r.server.base + uint64(off), RKey: c.r.server.key}
}

func (c *conn) read(off, to, n int) verbs.SendWR {
	return verbs.SendWR{Op: verbs.OpRead, SGL: c.n.sge(to, n), RemoteAddr: c.r.server.base + uint64(off), RKey: c.r.server.key}
}

func (n *node) word(off int) uint64 { return binary.NativeEndian.Uint64(n.buf[off:]) }

// The first atomic is sent on the client's connection, the second one unchanged on the shared one,
// and later ones as WRITEs.
func TestAtomicsBecomeWrites(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1)})
	c := r.connect(0)
	for i := range 5 {
		c.post(c.cas(64, uint64(i), uint64(i+1), 0))
		r.run(time.Millisecond)
		c.done(verbs.Success)
		if got := c.n.word(0); got != uint64(i) {
			t.Errorf("CAS %d: was %d", i, got)
		}
	}
	c.post(c.cas(64, 99, 100, 0))
	r.run(time.Millisecond)
	c.done(verbs.Success)
	if got := c.n.word(0); got != 5 || r.server.word(64) != 5 {
		t.Errorf("failing CAS: was %d, memory %d", got, r.server.word(64))
	}
	if s := r.m.Stats(); s.Moved != 5 || s.Replaced != 3 || s.ReplacedEmpty != 1 {
		t.Errorf("%+v", s)
	}
}
