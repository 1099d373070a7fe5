package cloversteer

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Zero and negative fields of a configuration stand for the documented defaults.
func TestDefaults(t *testing.T) {
	for _, c := range []Config{{}, {-1, -1, -1, -1, -1, -1}} {
		want := Config{Nodes: 65536, Keys: 4096, Waiting: 512, Hold: time.Millisecond, Ring: 128, Decay: 65536}
		if got := c.withDefaults(); got != want {
			t.Errorf("%+v", got)
		}
	}
	if c := (Config{1, 1, 1, 1, 1, 1}); c.withDefaults() != c {
		t.Errorf("%+v", c.withDefaults())
	}
}

// The hash is the finaliser of MurmurHash3, and the incarnation is a part of it.
func TestHashOfEntries(t *testing.T) {
	for x, want := range map[id]uint64{{0, 0}: 0, {1, 0}: 0xb456bcfc34c2cb2c, {2, 0}: 0x3abf2a20650683e7} {
		if got := x.hash(); got != want {
			t.Errorf("hash of %+v is %#x, want %#x", x, got, want)
		}
	}
	if (id{1, 1}).hash() != (id{1 ^ 1<<48, 0}).hash() {
		t.Error("the incarnation is not in the upper bits")
	}
}

// A table has room for at least as many entries as were asked for.
func TestCapacity(t *testing.T) {
	for n, want := range map[int]int{0: 4, 1: 4, 4: 4, 5: 8, 8: 8, 9: 16, 64: 64, 65: 128, 1 << 16: 1 << 16} {
		if got := capacity(n); got != want {
			t.Errorf("%d entries: %d slots, want %d", n, got, want)
		}
	}
}

// A new entry takes the place of the least recently used of its four that is not pinned.
func TestTableEvictsTheOldest(t *testing.T) {
	tab := newTable[int](4)
	none := func(*int) bool { return false }
	for i := range uint64(4) {
		v, evicted := tab.put(id{i, 1}, none)
		if v == nil || *v != 0 || evicted {
			t.Fatalf("entry %d: %v, %v", i, v, evicted)
		}
		*v = int(10 + i)
	}
	if v, evicted := tab.put(id{2, 1}, none); *v != 12 || evicted {
		t.Errorf("an entry that is there: %d, %v", *v, evicted)
	}
	tab.find(id{0, 1}) // 1 is now the oldest
	if v, evicted := tab.put(id{9, 1}, none); *v != 0 || !evicted {
		t.Errorf("a fifth entry: %d, %v", *v, evicted)
	}
	for i, want := range map[uint64]bool{0: true, 1: false, 2: true, 3: true, 9: true} {
		if (tab.find(id{i, 1}) != nil) != want {
			t.Errorf("entry %d is there: %v", i, !want)
		}
	}
	if tab.find(id{0, 2}) != nil {
		t.Error("an entry of another incarnation is found")
	}
	tab = newTable[int](4)
	for i := range uint64(4) {
		v, _ := tab.put(id{i, 1}, nil)
		*v = int(i)
	}
	notLast := func(v *int) bool { return *v != 2 }
	if _, evicted := tab.put(id{8, 1}, notLast); !evicted || tab.find(id{2, 1}) != nil || tab.find(id{0, 1}) == nil {
		t.Error("a pinned entry is evicted")
	}
	if v, evicted := tab.put(id{9, 1}, func(*int) bool { return true }); v != nil || evicted {
		t.Errorf("all are pinned: %v, %v", v, evicted)
	}
	tab.remove(id{0, 1})
	tab.remove(id{0, 1})
	if tab.find(id{0, 1}) != nil || tab.find(id{1, 1}) == nil {
		t.Error("one entry is removed, once")
	}
	if v, evicted := tab.put(id{10, 1}, func(*int) bool { return true }); v == nil || evicted {
		t.Errorf("a free slot: %v, %v", v, evicted)
	}
}

// The requests of a chain wait in the order in which they came, whichever of them leave.
func TestListOfWaiters(t *testing.T) {
	for _, leave := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}, {0, 3, 1, 2}} {
		w, k := newWaiting(4), &chain{id: id{7, 1}, first: none, last: none}
		flows := make([]*flow, 4)
		var order []*flow
		for i := range flows {
			if w.full() {
				t.Fatal("no room")
			}
			flows[i] = &flow{held: none}
			w.add(k, &waiter{flow: flows[i], psn: wire.PSN(i), frame: wire.Frame{Packet: wire.Packet{Payload: []byte{1}}}})
			order = append(order, flows[i])
		}
		if !w.full() {
			t.Error("a fifth request may wait")
		}
		check := func() {
			t.Helper()
			var got []*flow
			last := int32(none)
			for i := k.first; i != none; i = w.list[i].next {
				got, last = append(got, w.list[i].flow), i
				if w.list[i].chain != k.id || w.list[i].frame.Payload != nil || w.list[i].flow.held != i {
					t.Errorf("%+v", w.list[i])
				}
			}
			if !slices.Equal(got, order) || k.last != last {
				t.Errorf("leaving as %v: %d wait, want %d; the last is %d, want %d", leave, len(got), len(order), k.last, last)
			}
		}
		check()
		for n, i := range leave {
			w.remove(k, flows[i].held)
			order = slices.DeleteFunc(order, func(f *flow) bool { return f == flows[i] })
			if check(); flows[i].held != none || w.full() || len(w.free) != n+1 {
				t.Errorf("%d are free", len(w.free))
			}
		}
		// The place is used again, and the switch may have forgotten the chain.
		w.add(k, &waiter{flow: flows[2]})
		order = append(order, flows[2])
		check()
		if w.remove(nil, flows[2].held); flows[2].held != none || len(w.free) != 4 {
			t.Errorf("%d are free", len(w.free))
		}
	}
}

// A flow remembers its last decisions by PSN, also over the end of the PSNs.
func TestRingOfDecisions(t *testing.T) {
	fl := &flow{ring: make([]decision, 4)}
	for _, psn := range []wire.PSN{0xfffffe, 0xffffff, 0, 1} {
		if fl.find(psn) != nil {
			t.Errorf("%d is known", psn)
		}
		fl.add(psn, kindAppend).rkey = uint32(psn)
	}
	for _, psn := range []wire.PSN{0xfffffe, 0xffffff, 0, 1} {
		if d := fl.find(psn); d == nil || d.rkey != uint32(psn) {
			t.Errorf("%d: %+v", psn, d)
		}
	}
	fl.add(4, kindRead)
	if d := fl.find(4); fl.find(0) != nil || d == nil || d.rkey != 0 {
		t.Errorf("%+v", d)
	}
	if fl.add(1, kindNone); fl.find(1) != nil {
		t.Error("a request of no kind has a decision")
	}
}

func host(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }

// superOf is the superblock of one of two servers of a store.
func superOf(server int, change func(s *layout.Superblock)) []byte {
	s := layout.Superblock{
		Format: layout.Hardened, Server: server, Generation: 9, Store: 3,
		Space: layout.Space{Servers: 2, Entries: layout.Counts{0: 4, 1: 2}, Shortcuts: 4},
	}
	if change != nil {
		change(&s)
	}
	b := make([]byte, layout.SuperblockLen)
	s.Put(b)
	return b
}

// A part of a store is known from its superblock. Each change of it makes another incarnation; the
// same superblock again makes none.
func TestStoresAreLearnt(t *testing.T) {
	for name, c := range map[string]struct {
		va, rkey uint32
		change   func(s *layout.Superblock)
		known    bool // afterwards
		same     bool // the incarnation
	}{
		"the same":             {0x1000, 5, nil, true, true},
		"another owner":        {0x1000, 5, func(s *layout.Superblock) { s.Owner++ }, true, true},
		"another generation":   {0x1000, 5, func(s *layout.Superblock) { s.Generation++ }, true, false},
		"another space":        {0x1000, 5, func(s *layout.Superblock) { s.Space.Shortcuts++ }, true, false},
		"another store":        {0x1000, 5, func(s *layout.Superblock) { s.Store++ }, true, false},
		"another server":       {0x1000, 5, func(s *layout.Superblock) { s.Server = 1 }, true, false},
		"elsewhere":            {0x2000, 5, nil, true, false},
		"under another key":    {0x1000, 6, nil, true, false},
		"copies":               {0x1000, 5, func(s *layout.Superblock) { s.Space.Backups = 1 }, false, false},
		"no keys in its nodes": {0x1000, 5, func(s *layout.Superblock) { s.Format, s.Generation = layout.Published, 10 }, false, false},
		"no space":             {0x1000, 5, func(s *layout.Superblock) { s.Space.Servers = 0 }, false, false},
		"no superblock":        {0x1000, 5, func(s *layout.Superblock) { s.Generation = 0 }, false, false},
		"none, elsewhere":      {0x2000, 5, func(s *layout.Superblock) { s.Generation = 0 }, true, true},
		"none, another key":    {0x1000, 6, func(s *layout.Superblock) { s.Generation = 0 }, true, true},
	} {
		var stats Stats
		st := newStores(&stats)
		st.learn(host(1), 0x1000, 5, superOf(0, nil))
		p := st.parts[host(1)]
		if p == nil || p.base != 0x1000 || p.rkey != 5 || p.length != uint64(p.super.Space.RegionLen()) || p.store.parts[0] != p || p.store.incarnation == 0 {
			t.Fatalf("%+v", p)
		}
		was, of := p.incarnation, p.store.incarnation
		st.learn(host(1), uint64(c.va), c.rkey, superOf(0, c.change))
		now := st.parts[host(1)]
		if (now != nil) != c.known || c.known && (now.incarnation == was) != c.same || c.same && now.store.incarnation != of {
			t.Errorf("%s: %+v", name, now)
		}
		want := uint64(2)
		if c.same || !c.known {
			want = 1
		}
		if stats.Stores != want || stats.Unusable > 1 || stats.Unusable == 1 && c.known {
			t.Errorf("%s: %+v", name, stats)
		}
	}
}

// The parts of a store on several servers belong together by the store's number, unless they
// contradict each other. A part that leaves changes the incarnation of the others.
func TestPartsOfStores(t *testing.T) {
	var stats Stats
	st := newStores(&stats)
	learn := func(i, server int, change func(s *layout.Superblock)) *part {
		st.learn(host(i), 0x1000, 5, superOf(server, change))
		return st.parts[host(i)]
	}
	a, b := learn(1, 0, nil), learn(2, 1, nil)
	if a.store != b.store || a.store.parts[0] != a || a.store.parts[1] != b || a.incarnation == b.incarnation {
		t.Errorf("%+v, %+v", a.store, b.store)
	}
	for name, p := range map[string]*part{
		"the same place":  learn(3, 1, nil),
		"another space":   learn(4, 1, func(s *layout.Superblock) { s.Space.Shortcuts = 9 }),
		"another store":   learn(5, 1, func(s *layout.Superblock) { s.Store = 4 }),
		"no store number": learn(6, 1, func(s *layout.Superblock) { s.Store = 0 }),
	} {
		if p.store == a.store || p.store.parts[1] != p || p.store.parts[0] != nil {
			t.Errorf("%s: %+v", name, p.store)
		}
	}
	if learn(7, 0, func(s *layout.Superblock) { s.Store = 0 }).store == st.parts[host(6)].store {
		t.Error("two stores without a number are one")
	}
	// Handles name nodes on every known server of the store.
	for h, want := range map[layout.Handle]id{1: {0x1000 + 256, a.incarnation}, 7: {0x1000 + 256, b.incarnation}, 5: {0x1000 + 256 + 512, a.incarnation}} {
		if k, _, ok := a.place(h); !ok || k != want {
			t.Errorf("handle %d is %+v, %v; want %+v", h, k, ok, want)
		}
	}
	for _, h := range []layout.Handle{0, 13} {
		if _, _, ok := a.place(h); ok {
			t.Errorf("there is a handle %d", h)
		}
	}
	before := a.store.incarnation
	st.drop(host(2))
	if st.parts[host(2)] != nil || a.store.incarnation == before || a.store.parts[1] != nil {
		t.Errorf("%+v", a.store)
	}
	if _, _, ok := a.place(7); ok {
		t.Error("a handle into the part that is gone names a node")
	}
	st.drop(host(2)) // nothing is there
	old := a.store
	st.drop(host(1))
	if st.byID[3] != nil {
		t.Error("a store without parts is remembered")
	}
	if learn(1, 0, nil).store == old {
		t.Error("the store is the former one")
	}
}

// A switch knows at most 256 parts.
func TestBoundOfParts(t *testing.T) {
	var stats Stats
	st := newStores(&stats)
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }
	for i := range maxParts + 1 {
		st.learn(at(i), 0x1000, 5, superOf(0, func(s *layout.Superblock) { s.Store = 0 }))
	}
	if len(st.parts) != maxParts || stats.Unusable != 1 || stats.Stores != maxParts {
		t.Errorf("%d parts, %+v", len(st.parts), stats)
	}
	if st.learn(at(0), 0x2000, 5, superOf(0, nil)); st.parts[at(0)].base != 0x2000 {
		t.Error("a known part cannot move")
	}
}

// partAt is a part at 0x1000.
func partAt(space layout.Space) *part {
	var stats Stats
	st := newStores(&stats)
	st.learn(host(1), 0x1000, 5, superOf(0, func(s *layout.Superblock) { s.Space = space }))
	return st.parts[host(1)]
}

// A request touches the superblock if it changes a byte of it, or writes a superblock elsewhere.
func TestRequestsThatChangeASuperblock(t *testing.T) {
	p := partAt(layout.Space{Servers: 1, Entries: layout.Counts{4}, Shortcuts: 4})
	for _, c := range []struct {
		op   wire.Opcode
		va   uint64
		n    uint32
		data []byte
		want bool
	}{
		{wire.RCWriteOnly, 0x1000, 1, nil, true},
		{wire.RCWriteOnly, 0xfff, 1, nil, false},
		{wire.RCWriteOnly, 0xfff, 2, nil, true},
		{wire.RCWriteOnly, 0x1000 + superLen - 1, 1, nil, true},
		{wire.RCWriteOnly, 0x1000 + superLen, 1, nil, false},
		{wire.RCWriteOnly, 0x1010, 0, nil, false},
		{wire.RCCmpSwap, 0x1000 + superLen - 8, 0, nil, true},
		{wire.RCCmpSwap, 0x1000 + superLen, 0, nil, false},
		{wire.RCFetchAdd, 0xff8, 0, nil, false},
		{wire.RCWriteOnly, 0x5000, superLen, superOf(0, nil), true},
		{wire.RCWriteOnly, 0x5000, superLen, make([]byte, superLen), false},
		{wire.RCWriteFirst, 0x5000, superLen, superOf(0, nil), false},
		{wire.RCWriteOnly, 0x5000, superLen + 1, append(superOf(0, nil), 0), false},
	} {
		f := &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: c.op}, Payload: c.data}}
		f.RETH.VA, f.RETH.Length, f.AtomicETH.VA = c.va, c.n, c.va
		if got := p.overwrites(f); got != c.want {
			t.Errorf("%v of %d bytes at %#x: %v", c.op, c.n, c.va, got)
		}
	}
}

// An address belongs to the entry around it, whatever its class.
func TestEntryAroundAnAddress(t *testing.T) {
	// Nodes begin at 0x1000 + 256: four of 128 bytes, two of 256 bytes, one of 1024.
	p := partAt(layout.Space{Servers: 1, Entries: layout.Counts{0: 4, 1: 2, 3: 1}, Shortcuts: 4})
	const begin = 0x1000 + 256
	for at, want := range map[uint64]uint64{
		begin: begin, begin + 1: begin, begin + 127: begin, begin + 128: begin + 128, begin + 511: begin + 384,
		begin + 512: begin + 512, begin + 512 + 255: begin + 512, begin + 768: begin + 768, begin + 768 + 130: begin + 768,
		begin + 1024: begin + 1024, begin + 1024 + 1: begin + 1024, begin + 2047: begin + 1024,
		begin - 1: 0, 0x1000: 0, begin + 2048: 0,
	} {
		if got, ok := p.slab(at); ok != (want != 0) || got != want {
			t.Errorf("%#x is in the entry at %#x, %v; want %#x", at, got, ok, want)
		}
	}
	for _, c := range []struct {
		va   uint64
		rkey uint32
		want bool
	}{{0x1000, 5, true}, {0xfff, 5, false}, {0x1000 + p.length - 1, 5, true}, {0x1000 + p.length, 5, false}, {0x1000, 6, false}} {
		if p.contains(c.va, c.rkey) != c.want {
			t.Errorf("%#x under key %d is in the part: %v", c.va, c.rkey, !c.want)
		}
	}
}

// The machine sees all requests for a part if the first rule for its memory steers, and is for all
// of it.
func TestRulesThatShowAPart(t *testing.T) {
	p := partAt(layout.Space{Servers: 1, Entries: layout.Counts{4}, Shortcuts: 4})
	end := p.base + p.length
	steer := rules.Rule{Server: host(1), Action: rules.Steer, Mode: rules.Hardened}
	with := func(change func(r *rules.Rule)) *rules.Rule {
		r := steer
		change(&r)
		return &r
	}
	for name, c := range map[string]struct {
		list []*rules.Rule
		want bool
	}{
		"no rule":                {nil, false},
		"all memory":             {[]*rules.Rule{&steer}, true},
		"its key":                {[]*rules.Rule{with(func(r *rules.Rule) { r.RKey = 5 })}, true},
		"another key":            {[]*rules.Rule{with(func(r *rules.Rule) { r.RKey = 6 })}, false},
		"another key, then all":  {[]*rules.Rule{with(func(r *rules.Rule) { r.RKey = 6 }), &steer}, true},
		"exactly the part":       {[]*rules.Rule{with(func(r *rules.Rule) { r.From, r.To = p.base, end })}, true},
		"from behind its start":  {[]*rules.Rule{with(func(r *rules.Rule) { r.From, r.To = p.base+8, end }), &steer}, false},
		"to before its end":      {[]*rules.Rule{with(func(r *rules.Rule) { r.From, r.To = p.base, end-8 }), &steer}, false},
		"other memory, then all": {[]*rules.Rule{with(func(r *rules.Rule) { r.From, r.To = end, end+64 }), &steer}, true},
		"another action first":   {[]*rules.Rule{with(func(r *rules.Rule) { r.Action = rules.Track }), &steer}, false},
		"another server":         {[]*rules.Rule{with(func(r *rules.Rule) { r.Server = host(2) })}, false},
	} {
		if got := p.shown(c.list); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A warm key counts its requests, and has the rate of the last whole second.
func TestCountsOfKeys(t *testing.T) {
	var h hot
	h.begin(1 << 14)
	now := clock.Time(time.Second)
	key := id{7, 1}
	for i := range 30 {
		h.count(now, key, i%3 == 0)
	}
	w := h.find(key)
	if w == nil || w.reads != 20 || w.appends != 10 || w.estimate != 30 || h.find(id{7, 2}) != nil || h.find(id{8, 1}) != nil {
		t.Fatalf("%+v", w)
	}
	h.measure(now) // the first interval ends
	mark := h.since
	for range 50 {
		h.count(now, key, false)
	}
	h.measure(mark.Add(rateEvery - 1))
	if h.since != mark {
		t.Errorf("an interval of %v", h.since.Sub(mark))
	}
	total := w.reads + w.appends - w.mark
	if h.measure(mark.Add(2 * time.Second)); w.rate != float64(total)/2 || h.since != mark.Add(2*time.Second) {
		t.Errorf("rate %v of %d requests in 2 s", w.rate, total)
	}
	if h.measure(mark.Add(4 * time.Second)); w.rate != 0 {
		t.Errorf("rate %v without requests", w.rate)
	}
	w.steer()
	(*warm)(nil).steer()
	if w.steered != 1 {
		t.Errorf("%d steered", w.steered)
	}
	// Counts are halved after a number of requests.
	h = hot{}
	h.begin(40)
	for range 39 {
		h.count(now, key, false)
	}
	if e := h.find(key).estimate; e != 39 {
		t.Errorf("estimate %d before", e)
	}
	h.count(now, key, false)
	if e := h.find(key).estimate; e != 20 || h.find(key).reads != 40 {
		t.Errorf("estimate %d, %d READs", e, h.find(key).reads)
	}
	if h.count(now, key, false); h.find(key).estimate != 21 {
		t.Errorf("estimate %d after one more", h.find(key).estimate)
	}
}

// Keys are ranked by their estimates, and equal ones by their numbers. A rule for the hottest steers
// those alone; any other rule its keys.
func TestRanks(t *testing.T) {
	var h hot
	h.begin(1 << 14)
	for i, n := range []int{3, 9, 5, 5} {
		for range n {
			h.count(0, id{uint64(10 + i), 1}, false)
		}
	}
	h.rank()
	var got []uint64
	for _, w := range h.order {
		got = append(got, w.n)
	}
	if !slices.Equal(got, []uint64{11, 12, 13, 10}) {
		t.Errorf("ranks %v", got)
	}
	for hottest, want := range map[int]int{1: 1, 2: 2, 3: 3, 8: 4} {
		n := 0
		for i := range h.warm {
			if h.steers(&rules.Rule{Hot: hottest}, 0, &h.warm[i]) {
				n++
			}
		}
		if n != want || h.steers(&rules.Rule{Hot: hottest}, 0, nil) {
			t.Errorf("%d of the %d hottest keys are steered", n, hottest)
		}
	}
	if !h.steers(&rules.Rule{}, 5, nil) {
		t.Error("a rule for all keys does not steer")
	}
	// The first ranking comes after 16 requests, the next one after 32 more.
	h = hot{}
	h.begin(1 << 14)
	ranked := []int{}
	for i := range 200 {
		if h.count(0, id{1, 1}, false); h.ranked == 0 {
			ranked = append(ranked, i+1)
		}
	}
	if !slices.Equal(ranked, []int{16, 48, 112}) {
		t.Errorf("rankings after %v requests", ranked)
	}
}

// What the parts of the program would need of a chip, in bits: the sizes are those of the fields that
// the comments of Spec name.
func TestSpecOfTheMachine(t *testing.T) {
	m := New(Config{Nodes: 100, Keys: 10, Waiting: 7})
	s := m.Spec()
	type size struct{ key, value, entries int }
	want := map[string]size{
		"steer nodes":    {96, 297, 128},
		"steer keys":     {96, 385, 16},
		"steer stores":   {128, 672, 256},
		"steer hot keys": {96, 368, 512},
	}
	for _, x := range s.Tables {
		if got := (size{x.KeyBits, x.ValueBits, x.Entries}); got != want[x.Name] || !x.Learned {
			t.Errorf("%s: %+v, want %+v", x.Name, got, want[x.Name])
		}
	}
	if len(s.Tables) != len(want) || len(s.Registers) != 1 || s.Registers[0].Width != 32 || s.Registers[0].Entries != 4*4096 {
		t.Errorf("%+v", s)
	}
	for i, n := range []struct{ count, bits int }{{7, 576}, {7, 0}, {0, 0}} {
		if s.Needs[i].Count != n.count || s.Needs[i].Bits != n.bits {
			t.Errorf("%+v", s.Needs[i])
		}
	}
	if m.Keys(0) != nil {
		t.Error("a machine without a store has keys")
	}
}

// The listing has a line for each key; without keys it says how to get some.
func TestListingOfKeys(t *testing.T) {
	var b strings.Builder
	name := func(netip.Addr) string { return "ms0" }
	if err := printKeys(&b, name, []Key{
		{Key: 7, Reads: 10, Appends: 5, Steered: 3, Rate: 1234.4, Waiting: 2, Tail: &Tail{VA: 0x1000, Length: 128, Version: 4, Sequence: 9}},
		{Key: 8, Reads: 1},
	}); err != nil {
		t.Fatal(err)
	}
	const want = "" +
		"KEY  RATE/s  READS  APPENDS  STEERED  WAITING  TAIL        LENGTH  VERSION  SEQUENCE\n" +
		"7    1234    10     5        3        2        ms0:0x1000  128     4        9\n" +
		"8    0       1      0        0        0        -           -       -        -\n"
	if b.String() != want {
		t.Errorf("\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	if err := printKeys(&b, name, nil); err != nil || !strings.HasPrefix(b.String(), "no key of Clover") || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q, %v", b.String(), err)
	}
}
