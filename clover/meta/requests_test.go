package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A request that its client has given up, and has sent others since, is a late copy: also an OpHello that
// names a number of the client, its owner number, or the number before the one that it got.
func TestLateRequests(t *testing.T) {
	const id, owner, former = 20, 10, 5
	for name, c := range map[string]struct {
		r    rpc.Request
		want bool
	}{
		"the next one":              {rpc.Request{Op: rpc.OpBeat, Client: id, Seq: 10}, false},
		"the last one again":        {rpc.Request{Op: rpc.OpBeat, Client: id, Seq: 8}, true},
		"an earlier one":            {rpc.Request{Op: rpc.OpBeat, Client: id, Seq: 6}, true},
		"of no client":              {rpc.Request{Op: rpc.OpBeat, Client: 99, Seq: 6}, false},
		"hello, later":              {rpc.Request{Op: rpc.OpHello, Client: id, Seq: 10}, false},
		"hello, earlier":            {rpc.Request{Op: rpc.OpHello, Client: id, Seq: 6}, true},
		"hello by its owner number": {rpc.Request{Op: rpc.OpHello, Owner: owner, Seq: 6}, true},
		"hello that was answered":   {rpc.Request{Op: rpc.OpHello, Client: former, Seq: 8}, true},
		"hello of a new client":     {rpc.Request{Op: rpc.OpHello, Seq: 2}, false},
		"hello of another client":   {rpc.Request{Op: rpc.OpHello, Client: 99, Owner: 98, Seq: 2}, false},
	} {
		s := alone()
		s.pool.clients[id] = &client{id: id, owner: owner, former: former, seq: 8}
		if got := s.late(&c.r); got != c.want {
			t.Errorf("%s: late %v", name, got)
		}
	}
}

// A client that says hello again ends its earlier numbers: the one that it names, needs a fence unless the client
// is quiet, and one that it never learnt needs none. Other clients stay.
func TestEarlierNumbersEnd(t *testing.T) {
	for name, c := range map[string]struct {
		quiet, fenced bool
	}{"quiet": {quiet: true}, "not quiet": {}, "quiet, to be fenced": {quiet: true, fenced: true}, "to be fenced": {fenced: true}} {
		s := alone()
		own, lost, other := &client{id: 20, owner: 20}, &client{id: 21, owner: 21, former: 20}, &client{id: 22, owner: 22, former: 9}
		for _, cl := range []*client{own, lost, other} {
			s.pool.clients[cl.id] = cl
		}
		if c.fenced {
			own.fence = s.pool.fences.Add(20)
		}
		r := rpc.Request{Op: rpc.OpHello, Client: 20, Owner: 20, Seq: 6, Quiet: c.quiet}
		s.renumber(&r)
		want := uint32(20)
		if c.quiet && c.fenced { // the fence has begun
			want = 0
		}
		if !own.gone || own.quiet != c.quiet || own.seq != 6 || !lost.gone || lost.quiet || lost.seq != 6 || other.gone || other.seq != 0 || r.Owner != want {
			t.Errorf("%s: %+v, %+v, %+v, owner %d", name, own, lost, other, r.Owner)
		}
	}
}

// Nodes that a client returns are free in the version in which it had them, or would have used them; those of
// other clients, and of former versions, are not.
// A client that leaves says whether requests of it are in flight.
func TestReturnedNodes(t *testing.T) {
	s, cl := lossy()
	at := func(n int, v layout.Version) layout.Location { return node(s, 1, n, v) }
	s.pool.nodes.held.put(at(2, 1).Handle, held{client: 8, version: 1})
	r := rpc.Request{Op: rpc.OpReturn, N: 4}
	s.pool.nodes.held.put(at(1, 2).Handle, held{client: cl.id, version: 3})
	for i, l := range []layout.Location{at(0, 2), at(1, 2), at(2, 1), at(3, 1)} {
		r.Records[i].New = l
	}
	r.N = 3 // the last record is none
	s.dispatch(cl, &r, new(rpc.Answer))
	if l, ok := s.pool.nodes.free[0].Pop(1); !ok || l != at(0, 2) || s.pool.nodes.free[0].Len(anywhere) != 0 || s.pool.nodes.held.len() != 7 {
		t.Errorf("%v is free, %d more; %d are held", l, s.pool.nodes.free[0].Len(anywhere), s.pool.nodes.held.len())
	}
	for _, quiet := range []bool{true, false} {
		cl.gone = false
		if s.dispatch(cl, &rpc.Request{Op: rpc.OpBye, Quiet: quiet}, new(rpc.Answer)); !cl.gone || cl.quiet != quiet {
			t.Errorf("gone %v, quiet %v", cl.gone, cl.quiet)
		}
	}
}

// A step along a chain: the node before is passed, and no client holds the next one. A node of lost memory
// ends the key.
func TestStepAlongAChain(t *testing.T) {
	for name, c := range map[string]struct {
		next held
		none bool
		lost bool
	}{
		"reported":       {next: held{client: 7, version: 1, entry: new(entry)}},
		"not reported":   {next: held{client: 7, version: 1}},
		"not held":       {none: true},
		"of lost memory": {next: held{void: true}, lost: true},
	} {
		s, _ := lossy()
		from, to := node(s, 1, 0, 1), node(s, 1, 1, 1)
		s.pool.nodes.held.put(to.Handle, c.next)
		if c.none {
			s.pool.nodes.held.drop(to.Handle)
		}
		e, clock := &entry{key: 1, at: from, recorded: true}, s.pool.clock
		s.chains.pass(e, to)
		_, is := s.pool.nodes.held.at(to.Handle)
		switch {
		case c.lost:
			if !e.lost || e.at != from || e.recorded || !is {
				t.Errorf("%s: %+v", name, e)
			}
		case e.lost || e.at != to || len(e.passed) != 1 || e.passed[0] != from || e.recorded || is || e.since <= clock || e.since > s.pool.clock:
			t.Errorf("%s: %+v, held %v", name, e, is)
		}
	}
}

// What an entry has passed becomes free when the directory does not name it any more; then a deleted key is
// forgotten, and its slot is free, if nodes have keys.
func TestEntriesSettle(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(e *entry)
		unkeyed     bool
		free, slots int
		known       bool
	}{
		"recorded":          {func(*entry) {}, false, 1, 2, true},
		"not recorded":      {func(e *entry) { e.recorded = false }, false, 0, 2, true},
		"not mirrored":      {func(e *entry) { e.mirrored = false }, false, 0, 2, true},
		"deleted":           {func(e *entry) { e.dead = true }, false, 2, 3, false},
		"deleted, unkeyed":  {func(e *entry) { e.dead = true }, true, 2, 2, false},
		"lost":              {func(e *entry) { e.lost = true }, false, 2, 2, true},
		"deleted, then not": {func(e *entry) { e.dead, e.mirrored = true, false }, false, 0, 2, true},
	} {
		s, _ := lossy()
		s.pool.nodes.held = heldNodes{}
		if c.unkeyed {
			s.mem.format = layout.Published
		}
		e := &entry{key: 1, slot: 1, at: node(s, 1, 1, 1), passed: []layout.Location{node(s, 1, 0, 1)}, recorded: true, mirrored: true}
		s.chains.keys[1] = e
		c.change(e)
		s.chains.settle(e)
		if n := s.pool.nodes.free[0].Len(anywhere); n != c.free || len(s.chains.slots) != c.slots || (s.chains.keys[1] == e) != c.known || (len(e.passed) == 0) != (c.free > 0) {
			t.Errorf("%s: %d nodes and %d slots are free, known %v", name, n, len(s.chains.slots), s.chains.keys[1] == e)
		}
	}
	s, _ := lossy()
	s.chains.keys[1] = &entry{key: 1}
	if s.chains.forget(&entry{key: 1, slot: 1}); s.chains.keys[1] == nil || len(s.chains.slots) != 2 {
		t.Error("an entry that is not in the table any more takes the key with it")
	}
}

// A record names the newest node and the generation of its memory; that of a lost key says so, that of a
// deleted one is empty. A mirror says that the key would be lost.
func TestRecordsOfEntries(t *testing.T) {
	s, _ := lossy()
	s.mem.memory[1].generation = 1<<40 | 5
	at := node(s, 1, 0, 3)
	for name, c := range map[string]struct {
		e              entry
		backups        int
		record, mirror layout.KeyRecord
	}{
		"a key":            {entry{key: 9, at: at}, 0, layout.KeyRecord{Key: 9, At: at, Generation: 5}, layout.KeyRecord{Key: 9, Lost: true}},
		"with copies":      {entry{key: 9, at: at}, 1, layout.KeyRecord{Key: 9, At: at}, layout.KeyRecord{Key: 9, Lost: true}},
		"a deleted key":    {entry{key: 9, at: at, dead: true}, 0, layout.KeyRecord{}, layout.KeyRecord{}},
		"a lost key":       {entry{key: 9, lost: true}, 0, layout.KeyRecord{Key: 9, Lost: true}, layout.KeyRecord{Key: 9, Lost: true}},
		"deleted and lost": {entry{key: 9, lost: true, dead: true}, 0, layout.KeyRecord{Key: 9, Lost: true}, layout.KeyRecord{Key: 9, Lost: true}},
	} {
		s.mem.space.Backups = c.backups
		if rec, mir := s.chains.recordOf(&c.e), c.e.mirror(); rec != c.record || mir != c.mirror {
			t.Errorf("%s: record %+v, mirror %+v", name, rec, mir)
		}
	}
	s.mem.space.Backups = 0
	// A restarted server takes a record at its word, unless the node's memory was formatted since.
	for name, c := range map[string]struct {
		rec  layout.KeyRecord
		lost bool
	}{
		"present":             {layout.KeyRecord{Key: 9, At: at, Generation: 5}, false},
		"another generation":  {layout.KeyRecord{Key: 9, At: at, Generation: 4}, true},
		"lost":                {layout.KeyRecord{Key: 9, Lost: true}, true},
		"a node that is none": {layout.KeyRecord{Key: 9, At: layout.Location{Handle: 1 << 20, Version: 1}, Generation: 5}, true},
	} {
		e := s.chains.entryOf(c.rec, 3)
		if e.lost != c.lost || e.key != 9 || e.slot != 3 || !e.mirrored || e.recorded != (!c.lost || c.rec.Lost) || (e.at == at) == c.lost || e.opened != e.at {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A new key takes a slot whose shortcut is on the server of its node, if one of the last free ones is there.
func TestSlotNearItsNode(t *testing.T) {
	s, _ := lossy()
	for _, c := range []struct {
		slots []uint32
		on    int
		want  uint32
	}{{[]uint32{0, 2, 4}, 0, 4}, {[]uint32{1, 2, 4}, 1, 1}, {[]uint32{1, 3, 4}, 1, 3}, {[]uint32{0, 2}, 1, 2}, {[]uint32{1}, 1, 1}} {
		nearSlot(&s.mem.space, c.slots, node(s, c.on, 0, 1))
		if got := c.slots[len(c.slots)-1]; got != c.want {
			t.Errorf("%v for server %d: slot %d, want %d", c.slots, c.on, got, c.want)
		}
	}
	many := make([]uint32, slotsSearched+2)
	for i := range many {
		many[i] = uint32(2 * i)
	}
	for first, want := range map[int]bool{0: false, 1: true} { // how many slots are looked at
		list := append([]uint32(nil), many...)
		list[first] = 1
		if nearSlot(&layout.Space{Servers: 2, Shortcuts: 2 * len(list), Entries: s.mem.space.Entries}, list, node(s, 1, 0, 1)); (list[len(list)-1] == 1) != want {
			t.Errorf("slot %d of %d is found: %v", first, len(list), !want)
		}
	}
}

// An entry is behind while nodes of its chain were reported and not reached, or its records are not written.
func TestEntriesBehind(t *testing.T) {
	for name, c := range map[string]struct {
		e    entry
		want bool
	}{
		"up to date":   {entry{recorded: true, mirrored: true}, false},
		"a node ahead": {entry{recorded: true, mirrored: true, reported: []reported{{}}}, true},
		"no record":    {entry{mirrored: true}, true},
		"no mirror":    {entry{recorded: true}, true},
	} {
		s, _ := lossy()
		e := &c.e
		e.key, e.slot, s.chains.keys[1] = 1, 1, e
		s.mem.space.Backups, s.mem.memory[0].out, s.mem.memory[1].out = 1, true, true // nothing can be read
		for range 2 {
			s.chains.note(e)
		}
		if got := len(s.mem.walk.behind) == 1; got != c.want || e.waiting != c.want {
			t.Errorf("%s: %d entries are behind", name, len(s.mem.walk.behind))
		}
		s.chains.keys[1] = &entry{key: 1}
		if s.chains.catchUp(false); len(s.mem.walk.behind) != 0 || e.waiting {
			t.Errorf("%s: after the key has another entry, %d are behind", name, len(s.mem.walk.behind))
		}
	}
	for e, want := range map[*entry]bool{{recorded: true, ended: true}: true, {recorded: true, lost: true}: true, {recorded: true}: false, {ended: true}: false, {lost: true}: false} {
		if e.whole() != want {
			t.Errorf("%+v is whole: %v", e, !want)
		}
	}
}

// An entry that is behind again gets another period before its chain is followed node by node.
func TestEntryThatIsBehindAgain(t *testing.T) {
	s, _ := lossy()
	s.mem.space.Backups, s.mem.memory[0].out, s.mem.memory[1].out = 1, true, true // nothing can be read
	e := &entry{key: 1, slot: 1, at: node(s, 1, 0, 1), mirrored: true, recorded: true, reported: []reported{{}}}
	s.chains.keys[1], e.seen = e, e.at // since it was behind before
	s.chains.note(e)
	for i, followed := range []bool{false, true} {
		e.ended = true
		if s.chains.catchUp(false); e.ended == followed {
			t.Errorf("call %d: its chain is followed: %v", i+1, !followed)
		}
	}
	e.seen, e.ended = node(s, 1, 1, 1), true
	if s.chains.catchUp(true); e.ended {
		t.Error("its chain is not followed though all are")
	}
}

// A client asks again to open a key with a node that it holds no more: it is told that the node was linked, and
// the key's slot if this very node has opened it.
func TestRepeatedOpen(t *testing.T) {
	s, cl := lossy()
	at := node(s, 1, 0, 1)
	s.pool.nodes.held.drop(at.Handle)
	for name, c := range map[string]struct {
		e    *entry
		want rpc.Status
		slot uint32
	}{
		"the key is unknown":        {nil, rpc.Done, 0},
		"another node opened it":    {&entry{key: 1, slot: 3, opened: node(s, 1, 1, 1)}, rpc.Done, 0},
		"this node opened it":       {&entry{key: 1, slot: 3, opened: at}, rpc.OK, 3},
		"a later version opened it": {&entry{key: 1, slot: 3, opened: node(s, 1, 0, 2)}, rpc.Done, 0},
	} {
		if delete(s.chains.keys, 1); c.e != nil {
			s.chains.keys[1] = c.e
		}
		var a rpc.Answer
		if s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: 1, At: at}, &a); a.Status != c.want || a.Slot != c.slot {
			t.Errorf("%s: %v, slot %d", name, a.Status, a.Slot)
		}
	}
}
