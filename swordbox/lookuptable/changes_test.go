package lookuptable

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func flowsOf(n int) (list []string) {
	for i := range n {
		list = append(list, pinged(fmt.Sprint(1000+i))+fmt.Sprintf(" dscp=%d", i%64))
	}
	return list
}

// Entries of many flows are spread over the servers. The operator lists each once, and packets find them;
// those that were removed are gone from both.
func TestEntriesAreAddedListedAndRemoved(t *testing.T) {
	s := newServed(t, "table=ms0,ms1 capacity=100 cells=8 cell=512 cache=16 miss=drop")
	s.attach()
	flows := flowsOf(120)
	if out := s.add(false, flows...); out.Taken != 120 {
		t.Fatalf("%+v", out)
	}
	if out := s.add(false); out.Written != 120 || out.Waiting != 0 || out.Refused != 0 || out.Why != "" {
		t.Errorf("%+v", out)
	}
	check := func(want []string) {
		t.Helper()
		got := s.entries()
		slices.Sort(got)
		want = slices.Sorted(slices.Values(want))
		if !slices.Equal(got, want) {
			t.Errorf("%d entries are listed, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		}
	}
	check(flows)
	for i := range 2 {
		if n := s.server(i).count(wire.RCWriteOnly); n < 40 {
			t.Errorf("server %d gets %d entries", i, n)
		}
	}
	for i := range flows {
		s.left = nil
		if s.send(ping(uint16(1000+i), byte(i), 9)); len(s.left) == 0 || s.left[0].Data[15] != byte(i%64)<<2 {
			t.Errorf("flow %d: %d frames leave", i, len(s.left))
		}
	}
	s.add(true, flows[:60]...)
	check(flows[60:])
	for i := range flows {
		s.left = nil
		if s.send(ping(uint16(1000+i), byte(i), 9)); (len(s.left) > 0) != (i >= 60) {
			t.Errorf("flow %d after the removal: %d frames leave", i, len(s.left))
		}
	}
	if out := s.add(true, flows[0]); out.Taken != 1 {
		t.Errorf("%+v", out)
	}
	if out := s.add(false); out.Removed != 60 || out.Refused != 1 || !strings.Contains(out.Why, "no entry with this key") {
		t.Errorf("%+v", out)
	}
}

// Of several changes of one key, the last one counts, and each of them takes place after the one before.
func TestChangesOfOneKeyInOrder(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=100 cells=8 cell=512 depth=8")
	s.attach()
	s.held = true
	s.add(false, pinged("80")+" dscp=1", pinged("80")+" dscp=2", pinged("81")+" drop")
	s.add(true, pinged("81"))
	s.add(false, pinged("80")+" dscp=3")
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	if got := s.entries(); !slices.Equal(got, []string{pinged("80") + " dscp=3"}) {
		t.Errorf("entries %q", got)
	}
	if st := s.m.Stats(); st.Written != 4 || st.Removed != 1 || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

// homes returns the text of two flows whose home slots are d slots apart.
func homes(l *Layout, d int) (one, other string) {
	home := func(i int) int {
		e, _ := (&Layout{Flow: true}).ParseEntry(flowsOf(i + 1)[i], nil, nil)
		_, h := l.Place(e.Key.Hash())
		return h
	}
	at := make([]int, 400)
	for i := range at {
		at[i] = home(i)
		for j := range i {
			if at[i]-at[j] == d || at[j]-at[i] == d {
				return flowsOf(j + 1)[j], flowsOf(i + 1)[i]
			}
		}
	}
	return "", ""
}

// Changes whose slots may be the same are made one after the other; others at the same time, at most half
// as many as READs may be in flight.
func TestChangesAtTheSameTime(t *testing.T) {
	for _, tc := range []struct{ apart, depth, reads int }{
		{maxSpan - 1, 8, 1}, {maxSpan, 8, 2}, {maxSpan, 2, 1}, {maxSpan, 4, 2}, {0, 8, 1}, {maxSpan, 1, 1},
	} {
		s := newServed(t, fmt.Sprintf("table=ms0 capacity=400 cells=8 cell=512 depth=%d", tc.depth))
		s.attach()
		one, other := homes(&s.m.tables[0].Layout, tc.apart)
		for _, list := range [][]string{{one, other}, {other, one}} {
			k := s.server(0)
			k.requests = nil
			s.held = true
			s.add(false, list...)
			if n := len(k.requests); n != tc.reads {
				t.Errorf("%+v: %d READs of slots at the same time", tc, n)
			}
			s.held = false
			s.step(func(*pipeline.Ctx) {})
			if out := s.add(false); out.Waiting != 0 || out.Refused != 0 {
				t.Errorf("%+v: %+v", tc, out)
			}
		}
	}
}

// At the end of the table, and with a small path MTU, fewer slots are read for a change: never bytes behind
// the last slot, and never more than a packet.
func TestSlotsThatAreReadForAChange(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=70 cells=8 cell=512 base=64")
	l := s.m.Links.All[0]
	s.offer(l, 1024)
	k, all := s.server(0), s.m.tables[0].Slots()
	shorter := 0
	for _, x := range flowsOf(60) {
		k.requests = nil
		s.add(false, x)
		r := k.requests[0].RETH
		home := int(r.VA-regionAddr-64) / SlotLen
		if n := int(r.Length) / SlotLen; n != min(16, all-home) || r.Length%SlotLen != 0 {
			t.Errorf("%d bytes from slot %d of %d on are read", r.Length, home, all)
		} else if n < 16 {
			shorter++
		}
	}
	if shorter == 0 {
		t.Error("no change was at the end of the table")
	}
}

// An entry whose slots are all in use is refused, with the reason, and the others stay.
func TestTableWithoutRoom(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=1 cells=8 cell=512")
	s.attach()
	flows := flowsOf(Probe + 1)
	s.add(false, flows...)
	if out := s.add(false); out.Written != Probe || out.Refused != 1 || !strings.Contains(out.Why, "larger capacity") {
		t.Errorf("%+v", out)
	}
	if got := s.entries(); !slices.Equal(got, flows[:Probe]) {
		t.Errorf("entries %q", got)
	}
}

// Only so many changes wait; no more are taken.
func TestChangesThatWait(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=10000 cells=8 cell=512")
	if out := s.add(false, flowsOf(MaxWaiting+5)...); out.Taken != MaxWaiting || out.Waiting != MaxWaiting {
		t.Errorf("%+v", out)
	}
	if used := s.m.Tables()[2].Used; used != MaxWaiting {
		t.Errorf("%d changes are shown as waiting", used)
	}
}

// A change that a connection took with it when it failed is made again on the next one: whether the slots
// were on their way, or their WRITE. It counts once.
func TestChangesAreMadeAgain(t *testing.T) {
	flow := pinged("80") + " dscp=9"
	for name, lose := range map[string]struct {
		remove bool
		until  func(s *served, k *memoryServer)
	}{
		"slots not read":     {false, func(_ *served, k *memoryServer) { k.deaf = true }},
		"slots on their way": {false, func(s *served, _ *memoryServer) { s.held = true }},
		"removal, slots":     {true, func(s *served, _ *memoryServer) { s.held = true }},
		"WRITE executed":     {false, nil},
		"removal executed":   {true, nil},
	} {
		s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512")
		s.attach()
		if lose.remove {
			s.add(false, flow)
		}
		k := s.server(0)
		if lose.until != nil {
			lose.until(s, k)
			s.add(lose.remove, flow)
		} else {
			s.held = true
			s.add(lose.remove, flow)
			s.deliver(1) // the slots; the answer of the WRITE is lost
		}
		s.answers = nil
		k.deaf = true
		s.run(time.Second)
		if len(s.failed) != 1 {
			t.Fatalf("%s: the connection has not failed: %v", name, s.failed)
		}
		if out := s.add(false); out.Waiting != 1 {
			t.Errorf("%s: without a connection %+v", name, out)
		}
		k.deaf, s.held = false, false
		s.attach()
		out := s.add(false)
		want := []string{flow}
		if lose.remove {
			want = nil
		}
		if got := s.entries(); !slices.Equal(got, want) || out.Waiting != 0 || out.Refused != 0 || out.Written != 1 || out.Removed != uint64(1-len(want)) {
			t.Errorf("%s: %+v, entries %q", name, out, got)
		}
	}
}

// Changes that wait when the rule changes are made in the new table if it has the same slots, those
// that were begun, too. Otherwise they count as refused, with the reason, also for an operator who
// has asked before.
func TestChangesThatWaitForAnotherRule(t *testing.T) {
	const rule = "table=ms0 capacity=400 cells=8 cell=512 cache=8 depth=8"
	flows := flowsOf(5)
	for _, tc := range []struct {
		rule string
		kept bool
	}{
		{rule + " miss=drop", true},
		{"table=ms0 capacity=400 cells=8 cell=512 cache=16 depth=8", true},
		{"table=ms0 capacity=400 cells=4 cell=1024 cache=8 depth=4", true},
		{rule + " base=0x1000", false},
		{rule + " match=destination", false},
		{rule + " service=other", false},
		{"table=ms0 capacity=300 cells=8 cell=512", false},
		{"table=ms0,ms1 capacity=400 cells=8 cell=512", false},
	} {
		for _, begun := range []bool{false, true} {
			s := newServed(t, rule)
			if begun {
				s.attach()
				s.add(false, pinged("80")+" drop")
				s.held = true
			}
			if out := s.add(false, flows...); out.Waiting != 5 {
				t.Fatalf("%+v", out)
			}
			if begun {
				s.deliver(1) // the slots of the first, so that its WRITE is on its way
			}
			before := s.add(false)
			s.rule(tc.rule)
			s.held, s.answers = false, nil
			for _, l := range s.m.tables[0].links {
				s.offer(l, 4096)
			}
			out := s.add(false)
			if out.Waiting != 0 || out.Written+out.Refused < before.Written+before.Refused || (out.Refused == 5) == tc.kept || (out.Why == "") != tc.kept {
				t.Errorf("%s, begun %v: %+v", tc.rule, begun, out)
			}
			if !tc.kept {
				continue
			}
			want := slices.Clone(flows)
			if begun {
				want = append(want, pinged("80")+" drop")
			}
			got := s.entries()
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) || out.Written != uint64(len(want)) {
				t.Errorf("%s, begun %v: entries %q, %+v", tc.rule, begun, got, out)
			}
		}
	}
}

// When a change is sent, the switch forgets its entry, and a lookup that has read the slots before does not
// bring it back.
func TestCacheFollowsChanges(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=4")
	s.attach()
	s.add(false, pinged("80")+" dscp=1")
	tos := func() byte {
		t.Helper()
		s.left = nil
		if s.send(ping(80, 1, 9)); len(s.left) == 0 {
			t.Fatal("nothing leaves")
		}
		return s.left[0].Data[15] >> 2
	}
	if a, b := tos(), tos(); a != 1 || b != 1 {
		t.Errorf("DSCP %d and %d", a, b)
	}
	if st := s.m.Stats(); st.Cached != 1 || st.Hits != 1 {
		t.Errorf("%+v", st)
	}
	s.add(false, pinged("80")+" dscp=2")
	if a, b := tos(), tos(); a != 2 || b != 2 {
		t.Errorf("after a change, DSCP %d and %d", a, b)
	}
	s.m.ClearTable(cacheName)
	s.held = true
	s.send(ping(80, 1, 9))
	s.add(false, pinged("80")+" dscp=3") // its slots are read behind the packet's
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	if a, b := tos(), tos(); a != 3 || b != 3 {
		t.Errorf("after a change during a lookup, DSCP %d and %d", a, b)
	}
	s.add(true, pinged("80"))
	if a, b := tos(), tos(); a != 0 || b != 0 {
		t.Errorf("after the removal, DSCP %d and %d", a, b)
	}
}

// When a server comes back with another memory, its cached entries go, and those of the other server
// stay. They stay, too, when the server comes back with the same memory.
func TestCacheForgetsAnotherMemory(t *testing.T) {
	s := newServed(t, "table=ms0,ms1 capacity=100 cells=8 cell=512 cache=1024")
	s.attach()
	flows := flowsOf(40)
	s.add(false, flows...)
	inTable := [2]int{}
	for i := range flows {
		s.send(ping(uint16(1000+i), 1, 9))
		k := flowOf(ping(uint16(1000+i), 1, 9))
		server, _ := s.m.tables[0].Place(k.Hash())
		inTable[server]++
	}
	cache := &s.m.tables[0].cache
	if cache.len() != 40 || inTable[0] == 0 || inTable[1] == 0 {
		t.Fatalf("%d entries in the cache, %v in the servers", cache.len(), inTable)
	}
	again := func(change func(k *memoryServer)) int {
		l := s.m.tables[0].links[0]
		s.step(func(c *pipeline.Ctx) { s.m.Detach(c, l.Key(), l.Generation()) })
		change(s.server(0))
		s.offer(l, 4096)
		return cache.len()
	}
	if n := again(func(*memoryServer) {}); n != 40 {
		t.Errorf("after another connection to the same memory %d entries in the cache", n)
	}
	if n := again(func(k *memoryServer) { k.boot++; clear(k.memory) }); n != inTable[1] {
		t.Errorf("after a restart of server 0 %d entries in the cache, want the %d of server 1", n, inTable[1])
	}
	before := s.m.Stats()
	for i := range flows {
		s.send(ping(uint16(1000+i), 1, 9))
	}
	if st := s.m.Stats(); st.Misses-before.Misses != uint64(inTable[0]) || st.Cached-before.Cached != uint64(inTable[1]) {
		t.Errorf("%+v, want %d misses and %d cached", st, inTable[0], inTable[1])
	}
}

// A removal takes an entry out of the cache also if the table does not have it any more.
func TestRemovalOfACachedEntryAlone(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=4")
	s.attach()
	s.add(false, pinged("80")+" drop")
	s.send(ping(80, 1, 9))
	clear(s.server(0).memory)
	if s.send(ping(80, 1, 9)); s.m.Stats().Cached != 1 {
		t.Fatalf("%+v", s.m.Stats())
	}
	s.add(true, pinged("80"))
	if s.send(ping(80, 1, 9)); s.m.Stats().Misses != 1 || s.m.tables[0].cache.len() != 0 {
		t.Errorf("%+v, %d entries in the cache", s.m.Stats(), s.m.tables[0].cache.len())
	}
}

// What a lookup reads while another writer changes the slot is torn, and the packet is dropped.
func TestTornSlotsAreCounted(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=4")
	s.attach()
	s.add(false, pinged("80")+" dscp=1")
	k := s.server(0)
	at := bytes.LastIndexByte(k.memory[:16*SlotLen], 1) // the version at the slot's end
	k.memory[at]++
	s.send(ping(80, 1, 9))
	if st := s.m.Stats(); st.Torn != 1 || st.Hits != 0 || len(s.left) != 0 {
		t.Errorf("%+v, %d frames leave", st, len(s.left))
	}
	k.memory[at]--
	if s.send(ping(80, 2, 9)); s.m.Stats().Hits != 1 {
		t.Errorf("%+v", s.m.Stats())
	}
}

// Each listing reads the table again, also one that has a single page, and also after a listing that was
// given up before its page had come.
func TestListingsAreFresh(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512")
	s.attach()
	flows := flowsOf(4)
	for i, x := range flows {
		s.add(false, x)
		got := s.entries()
		if slices.Sort(got); !slices.Equal(got, flows[:i+1]) {
			t.Errorf("after %d entries: %q", i+1, got)
		}
		s.held = true
		for range 3 { // the page is asked for again before it comes, and is not fetched
			s.step(func(c *pipeline.Ctx) { _, _ = s.m.Page(c, "r", 0, 0) })
		}
		if n := s.m.tables[0].waiting(); n != 1 {
			t.Errorf("%d READs of the page", n)
		}
		s.held = false
		s.step(func(*pipeline.Ctx) {})
	}
}

// One acknowledgement may cover the WRITEs of several changes; then all of them have ended.
func TestChangesThatEndTogether(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=400 cells=8 cell=512 depth=8")
	s.attach()
	one, other := homes(&s.m.tables[0].Layout, maxSpan)
	s.held = true
	s.add(false, one, other)
	s.deliver(2)
	if len(s.answers) != 2 || s.m.tables[0].waiting() != 2 {
		t.Fatalf("%d answers are on their way, %d changes wait", len(s.answers), s.m.tables[0].waiting())
	}
	s.answers = s.answers[1:]
	if s.deliver(1); s.m.tables[0].waiting() != 0 {
		t.Errorf("%d changes wait", s.m.tables[0].waiting())
	}
}

// A rule whose table gets another place finds slots of the former table there. When the entries are
// loaded again, each that is reported as written is found.
func TestEntriesOverAFormerTable(t *testing.T) {
	for _, place := range []string{"base=0x40", "base=0x200", "base=0x400"} {
		const keys = "table=ms0 capacity=400 cells=8 cell=512 cache=8 "
		s := newServed(t, keys)
		s.attach()
		var flows []string
		for i := range 150 {
			flows = append(flows, pinged(strconv.Itoa(1000+i))+" drop")
		}
		s.add(false, flows...)
		s.rule(keys + place)
		for _, l := range s.m.tables[0].links {
			s.offer(l, 4096)
		}
		if out := s.add(false, flows...); out.Refused > 0 {
			t.Fatalf("%s: %+v", place, out)
		}
		table, missing := s.m.tables[0], 0
		for _, f := range flows {
			e, err := (&Layout{Flow: true}).ParseEntry(f, netip.ParseAddr, s.m.port)
			if err != nil {
				t.Fatal(err)
			}
			_, home := table.Place(e.Key.Hash())
			if _, found, _ := search(s.server(0).memory[table.At(home):][:Probe*SlotLen], &e.Key); !found {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("%s: %d of %d entries are not found", place, missing, len(flows))
		}
	}
}
