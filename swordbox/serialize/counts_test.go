package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Records that leave the window are counted no more, whatever their state is.
func TestCountsOfForgottenRecords(t *testing.T) {
	for name, leave := range map[string]func(w *window){
		"evicted": func(w *window) { w.evict(); w.evict() },
		"too old": func(w *window) { w.age(wire.PSN(100).Add(maxAge-1), 1); w.age(wire.PSN(101).Add(maxAge-1), 1) },
	} {
		w := window{max: 8}
		read, atomic := w.add(100, wire.RCReadRequest), w.add(101, wire.RCFetchAdd)
		w.finish(read)
		w.finish(atomic)
		w.follow(w.at(0), evRedo)
		w.follow(w.at(1), evOwe)
		if w.redos != 1 || w.owed != 1 || w.results != 2 || w.first != 100 {
			t.Fatalf("%+v", w)
		}
		if leave(&w); w.redos != 0 || w.owed != 0 || w.results != 0 || w.head != w.tail {
			t.Errorf("%s: %d READs, %d owed, %d results", name, w.redos, w.owed, w.results)
		}
	}
}

// A record leaves when the PSNs behind it would reach maxAge, not earlier, and never before its answer.
func TestAgeOfRecords(t *testing.T) {
	w := window{max: 8}
	w.finish(w.add(100, wire.RCFetchAdd))
	w.finish(w.add(102, wire.RCFetchAdd))
	w.add(103, wire.RCFetchAdd)
	next := wire.PSN(100).Add(maxAge - 10)
	for _, c := range []struct {
		n     int
		left  uint32
		first wire.PSN
	}{{9, 3, 100}, {10, 2, 102}, {11, 2, 102}, {12, 1, 103}, {1000, 1, 103}} {
		if w.age(next, c.n); w.tail-w.head != c.left || w.first != c.first {
			t.Errorf("%d more: %d records are left, from %v on", c.n, w.tail-w.head, w.first)
		}
	}
}

// A request waits for a READ that is executed again before it, not for itself or a later one, and
// for none when no READ is executed again.
func TestWhoWaitsForARead(t *testing.T) {
	w := window{max: 8}
	w.finish(w.add(99, wire.RCWriteOnly))
	read := w.add(100, wire.RCReadRequest)
	w.finish(read)
	if w.waitsForRedo(101) || w.waitsForRedo(99) {
		t.Error("no READ is executed again")
	}
	w.follow(read, evRedo)
	for psn, want := range map[wire.PSN]bool{99: false, 100: false, 101: true} {
		if got := w.waitsForRedo(psn); got != want {
			t.Errorf("PSN %v: %v", psn, got)
		}
	}
}

// Records are found by each of their PSNs, near the newest ones and far from them.
func TestEachRecordIsFound(t *testing.T) {
	w := window{max: 64}
	for i := range 40 {
		w.add(wire.PSN(100+4*i), wire.RCReadRequest).span = 3
	}
	for i := range 40 {
		for d := -1; d < 4; d++ {
			r := w.find(wire.PSN(100 + 4*i + d))
			if found := d >= 0 && d < 3; (r != nil) != found || found && r.psn != wire.PSN(100+4*i) {
				t.Errorf("record %d, PSN %d of it: %+v", i, d, r)
			}
		}
	}
	if w.find(99) != nil || w.find(1000) != nil || (&window{max: 8}).find(5) != nil {
		t.Error("a record is found that never was")
	}
}

// A window has room for its bound of requests without an answer. The records of WRITEs make room
// for those of READs and atomics, which are remembered up to the bound.
func TestRoomInTheWindow(t *testing.T) {
	w := window{max: 16}
	for i := range 16 {
		if !w.room() || w.outstanding() != i {
			t.Fatalf("no room for request %d, %d have no answer", i, w.outstanding())
		}
		w.add(wire.PSN(i), wire.RCReadRequest)
	}
	if w.room() {
		t.Error("there is room for request 17")
	}
	for w.oldest() != nil {
		w.finish(w.oldest())
	}
	for i := range 48 { // WRITEs between them
		w.finish(w.add(wire.PSN(16+i), wire.RCWriteOnly))
	}
	if len(w.ring) != 64 || w.results != 16 {
		t.Errorf("%d slots, %d READs", len(w.ring), w.results)
	}
	for i := range 16 {
		if r := w.at(w.head + uint32(i)); r.psn != wire.PSN(i) {
			t.Errorf("READ %d is forgotten: %v", i, r.psn)
		}
	}
	w.finish(w.add(64, wire.RCWriteOnly)) // the records of all but 16 WRITEs go
	if n := w.tail - w.head; n != 16+16+1 || w.results != 16 || w.first != 0 || w.at(w.head).psn != 0 || w.at(w.head+16).psn != 48 {
		t.Errorf("%d records, %d READs, from %v on", n, w.results, w.first)
	}
}

// Operations in flight stay when the ring that has them grows, wherever it begins.
func TestOperationsStayWhenTheRingGrows(t *testing.T) {
	for begin := range uint32(6) {
		o := clientOps{max: 16}
		for i := range begin {
			o.add().end = wire.PSN(i)
			o.head++
		}
		for i := range 16 {
			o.add().end = wire.PSN(100 + i)
		}
		if o.room() || len(o.ring) != 16 {
			t.Errorf("%d slots, room %v", len(o.ring), o.room())
		}
		for i := range 16 {
			if op := o.at(o.head + uint32(i)); op.end != wire.PSN(100+i) {
				t.Errorf("from %d on: operation %d ends before %v", begin, i, op.end)
			}
		}
	}
}

// A host that holds its reserve gets no further place while all common ones are taken.
func TestHostWithItsReserve(t *testing.T) {
	s := newShares(16)
	s.fit(1)
	for range s.reserve {
		s.take(0)
	}
	if !s.room(0) {
		t.Error("all common places are free, and there is no room")
	}
	if s.taken = s.common; s.room(0) {
		t.Error("no common place is free, and there is room")
	}
	s.hosts[1].held--
	if !s.room(0) {
		t.Error("a reserved place is free, and there is no room")
	}
	if s.inUse = s.most; s.room(0) {
		t.Error("all places are taken, and there is room")
	}
}

// The limit of each host is shown, and its port.
func TestLimitsOfHosts(t *testing.T) {
	m := New(Config{Held: 64})
	m.held.fit(3)
	for range 20 {
		m.held.take(1)
	}
	m.held.take(-1)
	list := m.heldShares(0)
	if len(list) != 2 || list[0].Port != -1 || list[1].Port != 1 {
		t.Fatalf("%+v", list)
	}
	for _, h := range list {
		if h.Limit != m.held.limit(h.Port) || h.Held != m.held.hosts[h.Port+1].held {
			t.Errorf("%+v", h)
		}
	}
	if list[0].Limit == list[1].Limit {
		t.Errorf("both hosts have the limit %d", list[0].Limit)
	}
}
