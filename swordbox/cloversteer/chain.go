package cloversteer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// node is one version of a key's value. The switch learns it from the WRITE of its data.
type node struct {
	key uint64
	ref
	rkey    uint32
	length  uint32
	version layout.Version
	dead    bool // a tombstone
	place
}

// place says where a node is in its chain. Of two nodes with the present gen of the chain, the one
// with the lower seq comes first. If a node has another gen, or seq 0, the switch does not know its
// place.
type place struct {
	gen uint64
	seq uint32
}

// ref names one use of an entry of the store, which is a place for a node: the address, the
// incarnation of the memory, and a serial number that differs for each data WRITE. If serial is 0,
// the ref names no node.
type ref struct {
	va          uint64
	incarnation uint32
	serial      uint64
}

// id returns the key under which the table of nodes has the node.
func (r ref) id() id { return id{r.va, r.incarnation} }

// chain is what the switch knows of the nodes of a key.
type chain struct {
	id // the key, and the incarnation of the store
	// gen changes when the switch forgets the places of all nodes of the chain. seq is the highest
	// seq of a node with the present gen.
	place
	// tail is the newest node that the switch knows to be in the chain; serial 0 means that it
	// knows none.
	tail ref
	flight
	// first and last are the ends of the list of appends and READs that wait for the append in
	// flight; none: the list is empty.
	first, last int32
}

// flight describes the append to the chain that is in flight. There is one only if busy is true.
type flight struct {
	busy bool
	sent uint64     // a number that no other flight has
	node ref        // the appended node
	at   clock.Time // when the append was sent
}

// has reports whether the switch knows the place of a node in the chain.
func (k *chain) has(n *node) bool { return n.gen == k.gen && n.seq != 0 }

// pinned reports whether the chain must not be evicted: an append is in flight or waits.
func (k *chain) pinned() bool { return k.busy || k.first != none }

// chains holds the nodes and chains that the switch knows.
type chains struct {
	nodes  table[node]
	byKey  table[chain]
	serial uint64 // the last number that next has returned
	stats  *Stats
}

// next returns a number that it has not returned before, for ref.serial, place.gen, flight.sent or
// an incarnation.
func (t *chains) next() uint64 {
	t.serial++
	return t.serial
}

// chain finds or makes the chain of a key; nil if there is no room.
func (t *chains) chain(key id) *chain {
	k, evicted := t.byKey.put(key, (*chain).pinned)
	switch {
	case k == nil:
		t.stats.NoRoom++
	case k.gen == 0:
		*k = chain{id: key, place: place{gen: t.next()}, first: none, last: none}
	}
	if evicted {
		t.stats.KeysEvicted++
	}
	return k
}

// forget makes the switch forget the tail of a chain and the places of its nodes.
func (t *chains) forget(k *chain) {
	if k.tail.serial != 0 {
		t.stats.Forgotten++
	}
	k.place, k.tail = place{gen: t.next()}, ref{}
}

// forgetKey calls forget for the chain of a key, if the key has one.
func (t *chains) forgetKey(key id) {
	if k := t.byKey.find(key); k != nil {
		t.forget(k)
	}
}

// node returns the node that r names; nil if the switch has forgotten it, or if its entry was
// written again (hole 33).
func (t *chains) node(r ref) *node {
	if r.serial == 0 {
		return nil
	}
	n := t.nodes.find(r.id())
	if n == nil || n.serial != r.serial {
		return nil
	}
	return n
}

// beyond returns the node to which a request for n is steered, or nil if the request stays as it
// is. The result is the tail of the key, if the tail certainly comes after n and the client cannot
// tell the tail from n. version is the version that the client expects.
func (t *chains) beyond(k *chain, n *node, rkey uint32, version layout.Version) *node {
	to := t.node(k.tail)
	switch {
	case to == nil || !k.has(n) || n.seq >= to.seq:
		return nil
	case to.incarnation != n.incarnation:
		t.stats.Elsewhere++ // hole 27: the client's connection does not reach the server of the tail
		return nil
	case to.version < version || to.rkey != rkey || to.length != n.length:
		t.stats.Unlike++
		return nil
	}
	return to
}

// instead handles an append that names a place in the pool which another node has taken since. The
// append would fail there. instead returns the tail of the key, to which the switch steers the
// append. It returns nil if the client could notice that the tail is not the node that it has
// named, or if the appended node is already in the chain.
func (t *chains) instead(k *chain, d *decision, version layout.Version) *node {
	to := t.node(k.tail)
	switch n := t.node(d.node); {
	case to == nil || n == nil || k.has(n):
		return nil
	case to.incarnation != d.to.incarnation:
		t.stats.Elsewhere++
		return nil
	case to.version < version || to.rkey != d.rkey:
		t.stats.Unlike++
		return nil
	}
	t.stats.Stale++
	return to
}

// decide records the decision to send an append to the node that its client named. The caller may
// then steer it to another node. incarnation is the incarnation of the memory of the named node.
func (t *chains) decide(fl *flow, f *wire.Frame, incarnation uint32, k *chain, n *node) *decision {
	d := fl.add(f.BTH.PSN, kindAppend)
	e := &f.AtomicETH
	d.asked, d.rkey, d.compare, d.askedCompare = e.VA, e.RKey, e.Compare, e.Compare
	d.chain, d.place = k.id, k.place
	d.node, d.to = n.ref, ref{va: e.VA, incarnation: incarnation}
	d.location, _ = layout.Word(e.SwapOrAdd).Next()
	d.seen = layout.Word(e.Compare).EntryVersion()
	d.version = d.seen
	switch to := t.nodes.find(d.to.id()); {
	case to == nil:
	case to.key == k.n && to.version == d.seen:
		d.to = to.ref
	default:
		d.stale = true
	}
	return d
}

// launch records that the append of decision d is in flight to chain k.
func (t *chains) launch(now clock.Time, k *chain, d *decision) {
	d.sent = t.next()
	k.flight = flight{busy: true, sent: d.sent, at: now, node: d.node}
}

// steer makes the tail of the key the target of an append. false means that the append goes to the
// node that its client named.
func (t *chains) steer(k *chain, d *decision, version layout.Version) bool {
	var to *node
	if named := t.node(d.to); named != nil {
		to = t.beyond(k, named, d.rkey, version)
	} else if d.stale {
		to = t.instead(k, d, version)
	}
	if to == nil || to.ref == d.node {
		return false
	}
	t.stats.SteeredAppends++
	d.steered, d.to, d.version = true, to.ref, to.version
	d.compare = uint64(layout.Header(to.version))
	if d.version != d.seen {
		t.stats.Translated++
	}
	return true
}

// answered handles the response to an append. original is the header that the append found. landed
// is true if the append was the one in flight to its chain.
func (t *chains) answered(k *chain, d *decision, original uint64) (landed bool) {
	if d.absorbed {
		t.joined(k, d, original)
		return false
	}
	landed = k.busy && k.sent == d.sent
	switch {
	case original == d.compare && d.node.serial == 0:
		t.forget(k) // the chain continues with a node that the switch does not know
	case original == d.compare:
		t.stats.Linked++
		t.linked(k, d)
	case d.steered || d.to == k.tail:
		t.stats.Failed++
		t.forget(k) // what the switch knows of the chain is wrong (hole 29)
	default:
		t.stats.Lost++
	}
	if landed {
		k.busy = false
	}
	return landed
}

// linked records that the appended node of d is in the chain, behind the node to which the append
// went. The node becomes the tail if it certainly comes after the present tail: the append went to
// the tail, or no node was linked since the switch sent the append (d.seq is k.seq).
func (t *chains) linked(k *chain, d *decision) {
	n := t.node(d.node)
	if n == nil || n.dead {
		t.forget(k)
		return
	}
	if k.gen != d.gen {
		t.stats.Late++
		return
	}
	before := t.node(d.to)
	if d.to != k.tail {
		switch {
		case d.seq != k.seq:
			t.stats.Late++ // other nodes were linked meanwhile, and their order is not known
			return
		case before != nil && k.has(before):
			t.forget(k) // the switch was wrong: a node with a successor cannot have accepted the append
			return
		case before != nil:
			k.seq++
			before.place = k.place
		}
	}
	if k.has(n) {
		t.stats.Late++ // another append of the same node was answered first
		return
	}
	k.seq++
	n.place = k.place
	k.tail = n.ref
}
