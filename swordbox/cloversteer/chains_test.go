package cloversteer

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// known is a chain of key 7 with nodes 1, 2 and 3, of which 3 is the tail, and a node 4 whose place is
// not known.
type known struct {
	chains
	count Stats
	k     *chain
	node  [5]*node
}

func newKnown() *known {
	r := &known{}
	r.chains = chains{nodes: newTable[node](64), byKey: newTable[chain](4), stats: &r.count}
	r.k = r.chain(id{7, 1})
	for i := uint64(1); i <= 4; i++ {
		n, _ := r.nodes.put(id{i, 1}, nil)
		*n = node{key: 7, ref: ref{i, 1, r.next()}, rkey: 5, length: 128, version: 1}
		if r.node[i] = n; i < 4 {
			r.k.seq++
			n.place = r.k.place
			r.k.tail = n.ref
		}
	}
	return r
}

// A node has a place in a chain under the present number of the chain alone.
func TestPlacesInAChain(t *testing.T) {
	k := &chain{place: place{gen: 3, seq: 9}}
	for p, want := range map[place]bool{{3, 1}: true, {3, 9}: true, {3, 0}: false, {2, 1}: false, {0, 0}: false} {
		if k.has(&node{place: p}) != want {
			t.Errorf("%+v is in the chain: %v", p, !want)
		}
	}
	for _, c := range []struct {
		busy  bool
		first int32
		want  bool
	}{{false, none, false}, {true, none, true}, {false, 0, true}, {true, 3, true}} {
		if (&chain{flight: flight{busy: c.busy}, first: c.first}).pinned() != c.want {
			t.Errorf("%+v is pinned: %v", c, !c.want)
		}
	}
}

// The switch follows as many chains as it has room for. Those with requests in flight stay.
func TestRoomForChains(t *testing.T) {
	r := newKnown()
	for i := range uint64(3) {
		if k := r.chain(id{100 + i, 1}); k == nil || k.gen == 0 || k.first != none || k.last != none || r.count.KeysEvicted != 0 {
			t.Errorf("chain %d: %+v, %+v", i, k, r.count)
		}
	}
	if same := r.chain(id{7, 1}); same != r.k || same.seq != 3 {
		t.Errorf("the chain that is there: %+v", same)
	}
	r.k.busy = true
	for i := range uint64(3) {
		r.chain(id{200 + i, 1}).busy = true
		if r.count.KeysEvicted != i+1 {
			t.Errorf("%+v", r.count)
		}
	}
	if r.chain(id{300, 1}) != nil || r.count.NoRoom != 1 || r.count.KeysEvicted != 3 {
		t.Errorf("%+v", r.count)
	}
}

// A request for an older node is steered to the tail if the client cannot tell it from the node that
// it has named.
func TestWhereRequestsAreSteered(t *testing.T) {
	for name, c := range map[string]struct {
		from              int
		rkey              uint32
		version           layout.Version
		change            func(r *known)
		want              bool
		unlike, elsewhere uint64
	}{
		"the oldest":          {1, 5, 1, nil, true, 0, 0},
		"the one before":      {2, 5, 1, nil, true, 0, 0},
		"the tail":            {3, 5, 1, nil, false, 0, 0},
		"an unknown place":    {4, 5, 1, nil, false, 0, 0},
		"another key":         {1, 6, 1, nil, false, 1, 0},
		"a higher version":    {1, 5, 2, nil, false, 1, 0},
		"another length":      {1, 5, 1, func(r *known) { r.node[3].length = 256 }, false, 1, 0},
		"a newer tail":        {1, 5, 1, func(r *known) { r.node[3].version = 2 }, true, 0, 0},
		"another server":      {1, 5, 1, func(r *known) { r.node[1].incarnation = 2 }, false, 0, 1},
		"no tail":             {1, 5, 1, func(r *known) { r.k.tail = ref{} }, false, 0, 0},
		"the tail is changed": {1, 5, 1, func(r *known) { r.node[3].serial = 99 }, false, 0, 0},
	} {
		r := newKnown()
		if c.change != nil {
			c.change(r)
		}
		got := r.beyond(r.k, r.node[c.from], c.rkey, c.version)
		if (got != nil) != c.want || c.want && got != r.node[3] || r.count.Unlike != c.unlike || r.count.Elsewhere != c.elsewhere {
			t.Errorf("%s: %+v, %+v", name, got, r.count)
		}
	}
}

// An append to an entry that was reused goes to the tail, unless the client could tell, or the node
// is in the chain already.
func TestAppendsToReusedEntries(t *testing.T) {
	for name, c := range map[string]struct {
		node    int
		version layout.Version
		change  func(r *known, d *decision)
		want    bool
		count   Stats
	}{
		"as it is":            {4, 1, nil, true, Stats{Stale: 1}},
		"a lower version":     {4, 1, func(r *known, _ *decision) { r.node[3].version = 2 }, true, Stats{Stale: 1}},
		"a higher version":    {4, 2, nil, false, Stats{Unlike: 1}},
		"another key":         {4, 1, func(_ *known, d *decision) { d.rkey = 6 }, false, Stats{Unlike: 1}},
		"another server":      {4, 1, func(_ *known, d *decision) { d.to.incarnation = 2 }, false, Stats{Elsewhere: 1}},
		"in the chain":        {2, 1, nil, false, Stats{}},
		"no tail":             {4, 1, func(r *known, _ *decision) { r.k.tail = ref{} }, false, Stats{}},
		"a node that is gone": {4, 1, func(r *known, _ *decision) { r.node[4].serial = 99 }, false, Stats{}},
	} {
		r := newKnown()
		d := &decision{rkey: 5}
		d.node, d.to = r.node[c.node].ref, ref{va: 50, incarnation: 1}
		if c.change != nil {
			c.change(r, d)
		}
		if got := r.instead(r.k, d, c.version); (got != nil) != c.want || c.want && got != r.node[3] || r.count != c.count {
			t.Errorf("%s: %+v, %+v", name, got, r.count)
		}
	}
}

// What the response to an append shows: the node becomes the tail if it certainly comes after the
// present one; a failure at the tail makes the switch forget it.
func TestResponsesToAppends(t *testing.T) {
	const compare = 0x800
	for name, c := range map[string]struct {
		change   func(r *known, d *decision)
		original uint64
		tail     int // 0: forgotten
		count    Stats
	}{
		"to the tail":               {nil, compare, 4, Stats{Linked: 1}},
		"to a node without a place": {func(r *known, d *decision) { r.node[3].place = place{}; r.k.tail = r.node[2].ref; d.to = r.node[3].ref }, compare, 4, Stats{Linked: 1}},
		"to an unknown node":        {func(_ *known, d *decision) { d.to = ref{va: 99, incarnation: 1} }, compare, 4, Stats{Linked: 1}},
		"to an unknown node, late":  {func(r *known, d *decision) { d.to = ref{va: 99, incarnation: 1}; d.seq-- }, compare, 3, Stats{Linked: 1, Late: 1}},
		"to a node in the chain":    {func(r *known, d *decision) { d.to = r.node[2].ref }, compare, 0, Stats{Linked: 1, Forgotten: 1}},
		"of a node in the chain":    {func(r *known, d *decision) { d.node = r.node[2].ref }, compare, 3, Stats{Linked: 1, Late: 1}},
		"before it was forgotten":   {func(r *known, d *decision) { d.gen = 0 }, compare, 3, Stats{Linked: 1, Late: 1}},
		"of a tombstone":            {func(r *known, _ *decision) { r.node[4].dead = true }, compare, 0, Stats{Linked: 1, Forgotten: 1}},
		"of an unknown node":        {func(_ *known, d *decision) { d.node = ref{} }, compare, 0, Stats{Forgotten: 1}},
		"failed at the tail":        {nil, 1, 0, Stats{Failed: 1, Forgotten: 1}},
		"failed, steered":           {func(_ *known, d *decision) { d.steered = true; d.to = ref{va: 99, incarnation: 1} }, 1, 0, Stats{Failed: 1, Forgotten: 1}},
		"failed elsewhere":          {func(_ *known, d *decision) { d.to = ref{va: 99, incarnation: 1} }, 1, 3, Stats{Lost: 1}},
		"failed, without a node":    {func(_ *known, d *decision) { d.to, d.node = ref{va: 99, incarnation: 1}, ref{} }, 1, 3, Stats{Lost: 1}},
	} {
		r := newKnown()
		d := &decision{}
		d.chain, d.place, d.node, d.to, d.compare = r.k.id, r.k.place, r.node[4].ref, r.node[3].ref, compare
		if c.change != nil {
			c.change(r, d)
		}
		r.launch(5, r.k, d)
		if landed := r.answered(r.k, d, c.original); !landed || r.k.busy {
			t.Errorf("%s: landed %v, busy %v", name, landed, r.k.busy)
		}
		want := ref{}
		if c.tail != 0 {
			want = r.node[c.tail].ref
		}
		if r.k.tail != want || r.count != c.count || c.tail == 4 && !r.k.has(r.node[4]) {
			t.Errorf("%s: tail %+v, want %+v; %+v", name, r.k.tail, want, r.count)
		}
	}
	// The response to an append that is not the one in flight leaves that one in flight.
	r := newKnown()
	first, second := &decision{}, &decision{}
	for _, d := range []*decision{first, second} {
		d.chain, d.place, d.node, d.to, d.compare = r.k.id, r.k.place, r.node[4].ref, r.node[3].ref, compare
	}
	r.launch(5, r.k, first)
	if r.answered(r.k, second, 1) || !r.k.busy {
		t.Error("another append has landed")
	}
}

// Of an append that was absorbed the switch knows the place when the server has accepted it.
func TestResponsesToAbsorbedAppends(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(r *known, d *decision)
		original uint64
		known    bool
		count    Stats
	}{
		"accepted":            {nil, 0x800, true, Stats{Absorbed: 1}},
		"refused":             {nil, 1, false, Stats{Lost: 1}},
		"before it forgot":    {func(_ *known, d *decision) { d.gen = 0 }, 0x800, false, Stats{Absorbed: 1}},
		"of no known place":   {func(_ *known, d *decision) { d.seq = 0 }, 0x800, false, Stats{Absorbed: 1}},
		"the node is changed": {func(r *known, _ *decision) { r.node[4].serial = 99 }, 0x800, false, Stats{Absorbed: 1}},
	} {
		r := newKnown()
		d := &decision{}
		d.absorbed, d.compare, d.node, d.place = true, 0x800, r.node[4].ref, place{r.k.gen, 2}
		if c.change != nil {
			c.change(r, d)
		}
		if r.answered(r.k, d, c.original) || r.k.has(r.node[4]) != c.known || r.count != c.count || r.k.tail != r.node[3].ref {
			t.Errorf("%s: %+v, %+v", name, r.node[4].place, r.count)
		}
	}
}

// A READ may be steered if its response is one packet, or if its packets are known and take at most
// a quarter of the ring.
func TestKnownParts(t *testing.T) {
	for p, want := range map[parts]bool{{0, 0}: false, {0, 1024}: false, {1, 0}: true, {1, 1024}: true, {2, 0}: false, {2, 1}: true, {32, 1024}: true, {33, 1024}: false} {
		if p.areKnown(128) != want {
			t.Errorf("%+v are known: %v", p, !want)
		}
	}
}
