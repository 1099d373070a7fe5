package steer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// node is one life of an entry of the store, as its data WRITE showed it.
type node struct {
	key uint64
	ref
	rkey    uint32
	length  uint32
	version layout.Version
	// dead says that it is a tombstone.
	dead bool
	// gen and seq are its place in the chain: of two nodes of the chain's present gen the one with the lower seq comes first.
	// A node of another gen, or without seq, has a place that is not known.
	gen uint64
	seq uint32
}

// ref names one life of an entry: its address, the life of the memory that the address means something in, and a number that
// is another one for each data WRITE; 0: none.
type ref struct {
	va     uint64
	life   uint32
	serial uint64
}

// chain is what is known of the nodes of a key.
type chain struct {
	key  uint64
	life uint32 // of the store
	// gen is another number whenever everything was forgotten; seq is the highest of the nodes in it.
	gen uint64
	seq uint32
	// tail is the newest node known to be linked; serial 0: none is known.
	tail ref
	// busy says that an append is under way, the one with the number sent, since a time.
	busy bool
	sent uint64
	// going is the node of that append.
	going ref
	at    clock.Time
	// first and last are the appends, and the READs, that wait for it.
	first, last int32
}

// stays says that a chain may not be given up: an append is under way, or waits.
func stays(k *chain) bool { return k.busy || k.first != none }

// chainOf finds or makes the chain of a key; nil if there is no room.
func (m *Machine) chainOf(key uint64, life uint32) *chain {
	k, evicted := m.chains.put(id{key, life}, stays)
	switch {
	case k == nil:
		m.stats.NoRoom++
	case k.gen == 0:
		*k = chain{key: key, life: life, gen: m.next(), first: none, last: none}
	}
	if evicted {
		m.stats.KeysEvicted++
	}
	return k
}

// forget makes nothing known of a chain.
func (m *Machine) forget(k *chain) {
	if k.tail.serial != 0 {
		m.stats.Forgotten++
	}
	k.gen, k.seq, k.tail = m.next(), 0, ref{}
}

// forgetKey is forget for a key that may have no chain.
func (m *Machine) forgetKey(key uint64, life uint32) {
	if k := m.chains.find(id{key, life}); k != nil {
		m.forget(k)
	}
}

// nodeAt is the node that r names; nil if it is forgotten, or was written again (hole 33).
func (m *Machine) nodeAt(r ref) *node {
	if r.serial == 0 {
		return nil
	}
	n := m.nodes.find(id{r.va, r.life})
	if n == nil || n.serial != r.serial {
		return nil
	}
	return n
}

// beyond is the node to which a request for n is steered: the tail of its key, if it is known to come later and can be made to
// look the same to the client. version is the one that the client expects.
func (m *Machine) beyond(k *chain, n *node, rkey uint32, version layout.Version) *node {
	t := m.nodeAt(k.tail)
	switch {
	case t == nil || n.gen != k.gen || n.seq == 0 || n.seq >= t.seq:
		return nil
	case t.life != n.life:
		m.stats.Elsewhere++ // hole 27: the client's connection does not lead there
		return nil
	case t.version < version || t.rkey != rkey || t.length != n.length:
		m.stats.Unlike++
		return nil
	}
	return t
}

// instead is the node to which an append goes that must fail where its client sent it: the tail of its key, if that can be made to
// look the same to the client.
func (m *Machine) instead(k *chain, d *decision, version layout.Version) *node {
	t := m.nodeAt(k.tail)
	switch n := m.nodeAt(d.node); {
	case t == nil || n == nil || n.gen == k.gen && n.seq != 0:
		return nil
	case t.life != d.to.life:
		m.stats.Elsewhere++
		return nil
	case t.version < version || t.rkey != d.rkey:
		m.stats.Unlike++
		return nil
	}
	m.stats.Stale++
	return t
}

// answered learns from the answer of an append: original is the header that it met.
func (m *Machine) answered(c *pipeline.Ctx, d *decision, original uint64) {
	k := m.chains.find(id{d.key, d.chainLife})
	if k == nil {
		return
	}
	turn := k.busy && k.sent == d.sent
	switch {
	case original == d.compare && d.node.serial == 0:
		m.forget(k) // the chain goes on where it is not followed
	case original == d.compare:
		m.stats.Linked++
		m.linked(k, d)
	case d.steered || d.to == k.tail:
		m.stats.Failed++
		m.forget(k) // hole 29
	default:
		m.stats.Lost++
	}
	if turn {
		k.busy = false
		m.goOn(c, k)
	}
}

// linked notes that the node of an append is in its chain, behind the one that it went to. It becomes the tail if it certainly
// comes behind the present one: the append went to that, or was sent when the server had linked it already (seq).
func (m *Machine) linked(k *chain, d *decision) {
	n := m.nodeAt(d.node)
	if n == nil || n.dead {
		m.forget(k)
		return
	}
	if k.gen != d.gen {
		m.stats.Late++
		return
	}
	before := m.nodeAt(d.to)
	if d.to != k.tail {
		switch {
		case d.seq != k.seq:
			m.stats.Late++ // its place among those that were linked since is not known
			return
		case before != nil && before.gen == k.gen && before.seq != 0:
			m.forget(k) // it cannot have been the end
			return
		case before != nil:
			k.seq++
			before.gen, before.seq = k.gen, k.seq
		}
	}
	if n.gen == k.gen && n.seq != 0 {
		m.stats.Late++ // somebody has appended to it already
		return
	}
	k.seq++
	n.gen, n.seq = k.gen, k.seq
	k.tail = n.ref
}
