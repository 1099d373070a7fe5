package cloversteer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// node is one use of an entry of the store, as its data WRITE showed it.
type node struct {
	key uint64
	ref
	rkey    uint32
	length  uint32
	version layout.Version
	dead    bool // a tombstone
	place
}

// place is where a node is in its chain: of two nodes with the chain's present gen, the one with
// the lower seq comes first. The place of a node of another gen, or with seq 0, is not known.
type place struct {
	gen uint64
	seq uint32
}

// ref names one use of an entry: its address, the incarnation of the memory, and a number that
// differs for each data WRITE; serial 0: none.
type ref struct {
	va          uint64
	incarnation uint32
	serial      uint64
}

// id is the id under which the entry's node is stored.
func (r ref) id() id { return id{r.va, r.incarnation} }

// chain is what is known of the nodes of a key.
type chain struct {
	id // the key, and the incarnation of the store
	// gen changes whenever the places of all nodes are forgotten; seq is the highest of the nodes
	// in it.
	place
	// tail is the newest node known to be linked; serial 0: none is known.
	tail ref
	flight
	// first and last are the ends of the list of appends and READs that wait for the append in
	// flight; none: the list is empty.
	first, last int32
}

// flight is the append to a chain that is in flight, if busy.
type flight struct {
	busy bool
	sent uint64 // its number
	node ref    // the appended node
	at   clock.Time
}

// has reports whether a node has a place in the chain.
func (k *chain) has(n *node) bool { return n.gen == k.gen && n.seq != 0 }

// pinned reports whether the chain must not be evicted: an append is in flight or waits.
func pinned(k *chain) bool { return k.busy || k.first != none }

// chains is the nodes and chains that are known.
type chains struct {
	nodes  table[node]
	byKey  table[chain]
	serial uint64 // the last number of a node, a gen or a flight
	stats  *Stats
}

// next is a number that was not used before.
func (t *chains) next() uint64 {
	t.serial++
	return t.serial
}

// chain finds or makes the chain of a key; nil if there is no room.
func (t *chains) chain(key id) *chain {
	k, evicted := t.byKey.put(key, pinned)
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

// forget drops what is known of a chain.
func (t *chains) forget(k *chain) {
	if k.tail.serial != 0 {
		t.stats.Forgotten++
	}
	k.place, k.tail = place{gen: t.next()}, ref{}
}

// forgetKey is forget for a key that may have no chain.
func (t *chains) forgetKey(key id) {
	if k := t.byKey.find(key); k != nil {
		t.forget(k)
	}
}

// node is the node that r names; nil if it is not known any more, or its entry was written again
// (hole 33).
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

// beyond is the node to which a request for n is steered: the tail of its key, if it is known to
// come later and can look the same to the client; else nil. version is the one that the client
// expects.
func (t *chains) beyond(k *chain, n *node, rkey uint32, version layout.Version) *node {
	to := t.node(k.tail)
	switch {
	case to == nil || !k.has(n) || n.seq >= to.seq:
		return nil
	case to.incarnation != n.incarnation:
		t.stats.Elsewhere++ // hole 27: the tail is on a server that the client's connection does not lead to
		return nil
	case to.version < version || to.rkey != rkey || to.length != n.length:
		t.stats.Unlike++
		return nil
	}
	return to
}

// instead is the node to which an append is steered that must fail at the entry that its client
// named, because that was reused: the tail of its key, if it can look the same to the client; else
// nil.
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

// decide notes an append that goes to the node that its client named, in memory of an incarnation.
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

// launch makes an append the one in flight of its chain.
func (t *chains) launch(now clock.Time, k *chain, d *decision) {
	d.sent = t.next()
	k.flight = flight{busy: true, sent: d.sent, at: now, node: d.node}
}

// steer gives an append another target and reports whether there is a better one.
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

// answered learns from the response of an append; original is the header that it found. landed
// reports that the append was the one in flight of its chain.
func (t *chains) answered(k *chain, d *decision, original uint64) (landed bool) {
	if d.absorbed {
		t.joined(k, d, original)
		return false
	}
	landed = k.busy && k.sent == d.sent
	switch {
	case original == d.compare && d.node.serial == 0:
		t.forget(k) // the chain continues with a node that is not known
	case original == d.compare:
		t.stats.Linked++
		t.linked(k, d)
	case d.steered || d.to == k.tail:
		t.stats.Failed++
		t.forget(k) // hole 29
	default:
		t.stats.Lost++
	}
	if landed {
		k.busy = false
	}
	return landed
}

// linked notes that the node of an append is in its chain, after the node that the append went to.
// It becomes the tail if it certainly comes after the present one: the append went to that one, or
// was sent after the server had linked that one (seq).
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
			t.stats.Late++ // other nodes were linked since; their order is not known
			return
		case before != nil && k.has(before):
			t.forget(k) // that node had a successor: the append cannot have succeeded there
			return
		case before != nil:
			k.seq++
			before.place = k.place
		}
	}
	if k.has(n) {
		t.stats.Late++ // another append to this node was answered first
		return
	}
	k.seq++
	n.place = k.place
	k.tail = n.ref
}
