package meta

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A key that was lost is opened again: its record takes the slot of the lost one, and the nodes of
// the old chain are free.
func TestLostKeyIsOpenedAgain(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, rt verbs.Runtime) {
		lending(s, rt)
		cl, n := holder(t, s, 1, 4)
		e := opened(t, s, cl, 1, n[0])
		slots := len(s.chains.slots)
		e.lost, e.passed, e.mirrored = true, []layout.Location{n[1]}, true
		s.pool.linked(n[1])
		again := opened(t, s, cl, 1, n[2])
		rec, _ := s.mem.space.Record(int(e.slot))
		if again == e || again.slot != e.slot || again.opened != n[2] || again.at != n[2] || again.lost || again.dead || !again.mirrored || len(s.chains.slots) != slots || record(t, s, rec).At != n[2] {
			t.Errorf("%+v, %d slots, record %+v", again, len(s.chains.slots), record(t, s, rec))
		}
		for i, want := range []bool{true, true, false, false} {
			if isFree(s, n[i].Handle) != want {
				t.Errorf("node %d is free: %v", i, !want)
			}
		}
		if _, is := s.pool.nodes.held.at(n[2].Handle); is || len(e.passed) != 0 || !e.at.IsZero() {
			t.Errorf("held %v, the old entry %+v", is, e)
		}
	})
}

// A new key takes a slot near its node and the last one of the list, and its shortcut is there
// before the client has its answer.
func TestNewKeyTakesASlotNearItsNode(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, rt verbs.Runtime) {
		lending(s, rt)
		cl, n := holder(t, s, 1, 1)
		slots := len(s.chains.slots)
		e := opened(t, s, cl, 1, n[0])
		p, _ := s.mem.space.Shortcut(int(e.slot))
		b, err := s.mem.readBulk(p.Server, p.Offset, layout.ShortcutLen)
		if err != nil || p.Server != 1 || len(s.chains.slots) != slots-1 || layout.Word(binary.LittleEndian.Uint64(b)) != n[0].Stamped(s.pool.epoch) {
			t.Errorf("slot %d on server %d, %d slots, shortcut %x, %v", e.slot, p.Server, len(s.chains.slots), b, err)
		}
		if rec, _ := s.mem.space.Record(int(e.slot)); record(t, s, rec) != (layout.KeyRecord{Key: 1, At: n[0], Generation: s.mem.stamp(1)}) {
			t.Errorf("record %+v", record(t, s, rec))
		}
	})
}

// The directory cannot be written: the key is not opened, and later what may have been written is
// erased, or the key is lost again. The record is not written before the mirror.
func TestKeyThatCannotBeOpened(t *testing.T) {
	for name, c := range map[string]struct {
		away     int // the server that does not answer; the mirror of slot 1 is on server 0, its record on server 1
		old      *entry
		mirrored bool
	}{
		"no mirror":          {away: 0},
		"no record":          {away: 1},
		"lost, no mirror":    {away: 0, old: &entry{key: 1, slot: 1, lost: true, recorded: true}},
		"lost, no record":    {away: 1, old: &entry{key: 1, slot: 1, lost: true, recorded: true, mirrored: true}, mirrored: true},
		"lost, mirror to do": {away: 1, old: &entry{key: 1, slot: 1, lost: true, recorded: true}},
	} {
		withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
			cl, n := holder(t, s, 1-c.away, 1)
			s.chains.slots = []uint32{1}
			if c.old != nil {
				s.chains.keys[1] = c.old
			}
			s.mem.memory[c.away].blank = true
			var a rpc.Answer
			s.chains.open(&rpc.Request{Op: rpc.OpOpen, Key: 1, At: n[0]}, &a)
			if a.Status != rpc.Busy || s.chains.keys[1] != c.old || len(s.chains.unopened) != 1 || len(s.chains.slots) != 1 || !s.pool.heldAs(cl.id, n[0]) {
				t.Errorf("%s: %v, key %+v, %d to erase, %d slots", name, a.Status, s.chains.keys[1], len(s.chains.unopened), len(s.chains.slots))
				return
			}
			e := s.chains.unopened[0]
			if e.dead != (c.old == nil) || e.lost != (c.old != nil) || e.mirrored != c.mirrored || e.recorded || e.slot != 1 {
				t.Errorf("%s: %+v", name, e)
			}
			if s.chains.erase() || len(s.chains.unopened) != 1 {
				t.Errorf("%s: it is erased though a server does not answer", name)
			}
			s.mem.memory[c.away].blank = false
			if !s.chains.erase() || len(s.chains.unopened) != 0 || !e.recorded || !e.mirrored {
				t.Errorf("%s: %+v", name, e)
			}
			rec, _ := s.mem.space.Record(1)
			mirror, _ := s.mem.space.Mirror(1)
			want := layout.KeyRecord{}
			if c.old != nil {
				want = layout.KeyRecord{Key: 1, Lost: true}
			}
			if record(t, s, rec) != want || !c.mirrored && record(t, s, mirror) != want {
				t.Errorf("%s: record %+v, mirror %+v", name, record(t, s, rec), record(t, s, mirror))
			}
		})
	}
}

// A mirror is removed only after its record. The mirror of a lost key does not wait for the record.
func TestMirrorIsErasedAfterItsRecord(t *testing.T) {
	for _, lost := range []bool{false, true} {
		withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
			mirror, _ := s.mem.space.Mirror(1)
			before := layout.KeyRecord{Key: 9, Lost: true}
			b := make([]byte, layout.RecordLen)
			before.Put(b)
			if err := s.mem.writeBulk(mirror.Server, mirror.Offset, b); err != nil {
				t.Error(err)
			}
			s.mem.memory[1].blank = true // the record cannot be written
			s.chains.unopened = []*entry{{key: 1, slot: 1, dead: !lost, lost: lost}}
			want := before
			if lost {
				want = layout.KeyRecord{Key: 1, Lost: true}
			}
			if s.chains.erase() || record(t, s, mirror) != want {
				t.Errorf("lost %v: mirror %+v, want %+v", lost, record(t, s, mirror), want)
			}
		})
	}
}

// That there is no node of a key is said only while a memory server serves this metadata server:
// one that counts, has the store's memory and is connected.
func TestAnswersWithoutANode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *pair, s *Server)
		reigns bool
	}{
		"all serve":     {func(*pair, *Server) {}, true},
		"one is out":    {func(_ *pair, s *Server) { s.mem.memory[0].out = true }, true},
		"one is blank":  {func(_ *pair, s *Server) { s.mem.memory[0].blank = true }, true},
		"one is away":   {func(r *pair, s *Server) { r.crash(s, 0) }, true},
		"one is silent": {func(r *pair, _ *Server) { r.Host("ms0").Crash() }, true},
		"all are out":   {func(_ *pair, s *Server) { s.mem.memory[0].out, s.mem.memory[1].out = true, true }, false},
		"all are blank": {func(_ *pair, s *Server) { s.mem.memory[0].blank, s.mem.memory[1].blank = true, true }, false},
		"all are away":  {func(r *pair, s *Server) { r.crash(s, 0); r.crash(s, 1) }, false},
	} {
		withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
			lending(s, rt)
			cl, _ := holder(t, s, 1, 1)
			s.chains.keys[2] = &entry{key: 2, lost: true}
			c.change(r, s)
			for key, want := range map[uint64]rpc.Status{1: rpc.NotFound, 2: rpc.Lost} {
				if !c.reigns {
					want = rpc.Busy
				}
				var a rpc.Answer
				if s.query(cl, &rpc.Request{Op: rpc.OpQuery, Key: key}, &a); a.Status != want || a.N != 0 {
					t.Errorf("%s: key %d: %v, want %v", name, key, a.Status, want)
				}
			}
		})
	}
}

// While memory is void, a query follows the chain first: a key that was deleted meanwhile is not found.
func TestQueryOfADeletedKeyWhileMemoryIsVoid(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 1)
		opened(t, s, cl, 1, n[0])
		if err := put(s, n[0], layout.Tombstone(n[0].Version), 1); err != nil {
			t.Error(err)
		}
		s.pool.void = true
		var a rpc.Answer
		if s.query(cl, &rpc.Request{Op: rpc.OpQuery, Key: 1}, &a); a.Status != rpc.NotFound || a.N != 0 {
			t.Errorf("%v, %d nodes", a.Status, a.N)
		}
	})
}

// All shortcuts of a server are erased, and nothing else. Then the epoch may begin whose stamp old
// shortcuts could have.
func TestShortcutsAreErased(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		n := s.mem.space.Shortcuts * layout.ShortcutLen
		marks := bytes.Repeat([]byte{0xff}, n+16)
		want := append(append(bytes.Repeat([]byte{0xff}, 8), make([]byte, n)...), bytes.Repeat([]byte{0xff}, 8)...)
		for i := range 2 {
			first, _ := s.mem.space.Shortcut(i)
			if err := s.mem.writeBulk(i, first.Offset-8, marks); err != nil {
				t.Error(err)
			}
		}
		if s.pool.epoch = staleEpochs - 1; !s.pool.mayTurn() {
			t.Error("the epoch may not begin")
		}
		for i := range 2 {
			first, _ := s.mem.space.Shortcut(i)
			if got, err := s.mem.readBulk(i, first.Offset-8, n+16); err != nil || !bytes.Equal(got, want) {
				t.Errorf("server %d: %v, %x", i, err, got)
			}
		}
		if s.mem.memory[1].blank = true; s.pool.mayTurn() {
			t.Error("the epoch may begin though a server has its shortcuts")
		}
	})
}

// A key that exists is not opened again, and the client keeps its node. One that was deleted is.
func TestKeyThatExists(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 3)
		e := opened(t, s, cl, 1, n[0])
		ask := func(at layout.Location) (a rpc.Answer) {
			s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: 1, At: at}, &a)
			return a
		}
		if a := ask(n[1]); a.Status != rpc.Exists || s.chains.keys[1] != e || !s.pool.heldAs(cl.id, n[1]) {
			t.Errorf("%v, %+v", a.Status, s.chains.keys[1])
		}
		if err := put(s, n[0], layout.Tombstone(n[0].Version), 1); err != nil {
			t.Error(err)
		}
		if a := ask(n[1]); a.Status != rpc.OK || s.chains.keys[1] == e || s.chains.keys[1].at != n[1] || a.Slot != s.chains.keys[1].slot {
			t.Errorf("after a DELETE: %v, %+v", a.Status, s.chains.keys[1])
		}
	})
}

// A server that is formatted gets its own records and mirrors, at their places, and no others.
func TestRecordsOfAFormattedServer(t *testing.T) {
	withMemory(t, 3, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		at := node(s, 2, 0, 1)
		for k := range uint64(6) {
			s.chains.keys[k+1] = &entry{key: k + 1, slot: uint32(k), at: at, recorded: true, mirrored: true}
		}
		for i := range s.mem.memory {
			if err := s.members.formatServer(i); err != nil {
				t.Error(err)
			}
			n := 0
			first, _ := s.mem.space.Record(i)
			mirrors, _ := s.mem.space.Mirror((i + 2) % 3) // is on the next server
			for what, p := range map[string]layout.Place{"record": first, "mirror": mirrors} {
				of := i
				if what == "mirror" {
					of = (i + 2) % 3
				}
				if p.Server != i {
					t.Errorf("the %ss are on server %d, want %d", what, p.Server, i)
				}
				err := s.members.readRecords(p, func(k int, rec layout.KeyRecord) {
					e := s.chains.keys[rec.Key]
					if n++; e == nil || int(e.slot) != 3*k+of || rec.Lost != (what == "mirror" || i == 2) {
						t.Errorf("server %d: %s %d is %+v", i, what, k, rec)
					}
				})
				if err != nil {
					t.Error(err)
				}
			}
			if n != 4 {
				t.Errorf("server %d: %d records and mirrors, want 4", i, n)
			}
		}
	})
}
