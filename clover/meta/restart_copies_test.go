package meta

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// leaveOut makes the copies of server i count no more. marked is true if its own superblock gets to
// know that.
func leaveOut(t *testing.T, s *Server, i int, marked bool) {
	t.Helper()
	s.mem.memory[i].out = true
	s.mem.view++
	for k := range s.mem.memory {
		if k == i && !marked {
			continue
		}
		if err := s.mem.writeOwner(k); err != nil {
			t.Error(err)
		}
	}
}

// erased removes the superblock of a server, as if its memory was lost.
func erased(t *testing.T, s *Server, servers ...int) {
	t.Helper()
	for _, i := range servers {
		if err := s.mem.writeBulk(i, 0, make([]byte, s.mem.space.RegionLen())); err != nil {
			t.Error(err)
		}
	}
}

// A metadata server restarts while a memory server is out: it fills that one, and the keys are
// those of the other copies. Whether the server that is out knows it, knows an old view, or has no
// memory any more, makes no difference.
func TestRestartWhileAServerIsOut(t *testing.T) {
	for name, how := range map[string]func(s *Server){
		"marked":     func(s *Server) { leaveOut(t, s, 1, true) },
		"not marked": func(s *Server) { leaveOut(t, s, 1, false) },
		"lost":       func(s *Server) { leaveOut(t, s, 1, true); erased(t, s, 1) },
	} {
		withMemory(t, 3, withCopies, func(r *pair, s *Server, _ verbs.Runtime) {
			cl, n := holder(t, s, 1, 4)
			_, n0 := holder(t, s, 0, 1)
			moved := opened(t, s, cl, 1, n[0])
			opened(t, s, cl, 2, n0[0])
			how(s)
			if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1), put(s, n[1], layout.Header(n[1].Version), 1)); err != nil {
				t.Error(err)
			}
			s.chains.follow([]*entry{moved}, -1)
			opened(t, s, cl, 3, n[2])
			before := s.mem.memory[1].generation
			r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
				lending(s, s.mem.rt)
				if s.mem.view != 2 || s.mem.outs() != 0 || s.mem.memory[1].generation == before || s.mem.memory[1].marked != 0 || s.mem.stats.Losses != 1 || s.mem.stats.Recovered != 3 || s.pool.orphans || s.pool.void {
					t.Errorf("%s: view %d, %b out, %+v, %+v, orphans %v", name, s.mem.view, s.mem.outs(), s.mem.memory[1], s.mem.stats, s.pool.orphans)
				}
				sameCopies(t, name, s)
				for key, want := range map[uint64]layout.Location{1: n[1], 2: n0[0], 3: n[2]} {
					e := s.chains.keys[key]
					if e == nil || e.lost || e.at != want || !e.recorded || isFree(s, want.Handle) {
						t.Errorf("%s: key %d: %+v, want %v", name, key, e, want)
						continue
					}
					for j := range 2 {
						if p, _ := s.mem.space.RecordCopy(int(e.slot), j); record(t, s, p).At != want {
							t.Errorf("%s: key %d: copy %d of the record %+v", name, key, j, record(t, s, p))
						}
						if got := headerOf(t, s, want, j); got != layout.Header(want.Version) {
							t.Errorf("%s: key %d: copy %d of its node %v", name, key, j, got)
						}
					}
				}
				if len(s.chains.slots)+3 != s.mem.space.Slots() || !isFree(s, n[0].Handle) || !isFree(s, n[3].Handle) || s.pool.nodes.held.len() != 0 {
					t.Errorf("%s: %d slots, %d nodes are held", name, len(s.chains.slots), s.pool.nodes.held.len())
				}
			})
		})
	}
}

// All copies of some nodes are lost when the metadata server restarts. Mirrors on another server
// say which keys had their records there; the other keys that need such a node are found in the
// directory. All of these are lost, and keep their slots.
func TestRestartAfterALossOfAllCopies(t *testing.T) {
	withMemory(t, 3, withCopies, func(r *pair, s *Server, _ verbs.Runtime) {
		cl, n1 := holder(t, s, 1, 2)
		_, n2 := holder(t, s, 2, 2)
		slots := map[uint64]uint32{}
		for key, x := range map[uint64]struct {
			slot uint32
			at   layout.Location
		}{1: {1, n1[0]}, 2: {2, n1[1]}, 3: {4, n2[0]}, 4: {5, n2[1]}} {
			s.chains.slots = []uint32{x.slot}
			slots[key] = opened(t, s, cl, key, x.at).slot
		}
		erased(t, s, 1, 2)
		r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
			for key, lost := range map[uint64]bool{1: true, 2: true, 3: true, 4: false} {
				e := s.chains.keys[key]
				if e == nil || e.lost != lost || e.slot != slots[key] || e.at.IsZero() != lost || !e.recorded {
					t.Errorf("key %d: %+v, want it lost: %v, slot %d", key, e, lost, slots[key])
					continue
				}
				if p, _ := s.mem.space.Record(int(e.slot)); record(t, s, p) != s.chains.recordOf(e) {
					t.Errorf("key %d: record %+v", key, record(t, s, p))
				}
				if p, _ := s.mem.space.Mirror(int(e.slot)); record(t, s, p) != e.mirror() {
					t.Errorf("key %d: mirror %+v", key, record(t, s, p))
				}
			}
			if len(s.chains.keys) != 4 || len(s.chains.slots)+4 != s.mem.space.Slots() || s.mem.view != 1 || s.mem.outs() != 0 || s.mem.stats.Losses != 2 || s.pool.orphans || s.pool.void {
				t.Errorf("%d keys, %d slots, view %d, %b out, %+v, orphans %v", len(s.chains.keys), len(s.chains.slots), s.mem.view, s.mem.outs(), s.mem.stats, s.pool.orphans)
			}
			sameCopies(t, "restart", s)
			for _, l := range n1 {
				if !isFree(s, l.Handle) {
					t.Errorf("node %v of lost memory is not free", l)
				}
			}
		})
	})
}

// With as many copies as servers there are no mirrors. If all copies that counted are lost, the old
// records on a server that was out name the keys, which are lost.
func TestOldRecordsNameLostKeys(t *testing.T) {
	for _, old := range []int{0, 1} {
		withMemory(t, 2, withCopies, func(r *pair, s *Server, _ verbs.Runtime) {
			cl, n := holder(t, s, 1, 3)
			slots := map[uint64]uint32{}
			for i, slot := range []uint32{0, 1, 7} {
				s.chains.slots = []uint32{slot}
				slots[uint64(i+1)] = opened(t, s, cl, uint64(i+1), n[i]).slot
			}
			leaveOut(t, s, old, true)
			erased(t, s, 1-old)
			for j := range 2 { // what is in lost memory are no records of the store
				if p, _ := s.mem.space.RecordCopy(5, j); p.Server == 1-old {
					b := make([]byte, layout.RecordLen)
					layout.KeyRecord{Key: 77, Lost: true}.Put(b)
					if err := s.mem.writeBulk(p.Server, p.Offset, b); err != nil {
						t.Error(err)
					}
				}
			}
			r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
				for key, slot := range slots {
					if e := s.chains.keys[key]; e == nil || !e.lost || e.slot != slot || !e.at.IsZero() {
						t.Errorf("server %d has old records: key %d: %+v, want slot %d", old, key, e, slot)
					}
				}
				if len(s.chains.keys) != 3 || s.mem.outs() != 0 || s.mem.view != 2 || s.mem.stats.Losses != 2 || len(s.chains.slots)+3 != s.mem.space.Slots() || s.pool.orphans || s.pool.void {
					t.Errorf("server %d has old records: %d keys, %b out, view %d, %+v", old, len(s.chains.keys), s.mem.outs(), s.mem.view, s.mem.stats)
				}
				sameCopies(t, "restart", s)
			})
		})
	}
}
