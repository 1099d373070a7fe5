package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// putCopy writes a header and a key to copy j of a node.
func putCopy(s *Server, l layout.Location, j int, header layout.Word, key uint64) error {
	p, _ := s.mem.space.Place(l.Handle)
	q := s.mem.space.Copy(p, j)
	return s.mem.writeBulk(q.Server, q.Offset, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(header)), key))
}

// headerOf reads the header of copy j of a node.
func headerOf(t *testing.T, s *Server, l layout.Location, j int) layout.Word {
	t.Helper()
	p, _ := s.mem.space.Place(l.Handle)
	q := s.mem.space.Copy(p, j)
	b, err := s.mem.readBulk(q.Server, q.Offset, layout.HeaderLen)
	if err != nil {
		t.Error(err)
		return 0
	}
	return layout.HeaderOf(b)
}

// A client has died after its append on the last copy. The server finds that when it has followed
// the first copies to the end. It makes the append on the other copies, from the last but one to
// the first, and goes on.
func TestAppendOnTheLastCopyIsCompleted(t *testing.T) {
	for _, away := range []bool{false, true} {
		withMemory(t, 3, func(c *Config) { c.Replicas = 3 }, func(_ *pair, s *Server, rt verbs.Runtime) {
			lending(s, rt)
			cl, n := holder(t, s, 1, 3)
			e := opened(t, s, cl, 1, n[0])
			v := n[0].Version
			next := layout.Superseded(v, n[1])
			if err := errors.Join(putCopy(s, n[0], 2, next, 1), put(s, n[1], layout.Header(v), 1)); err != nil {
				t.Error(err)
			}
			want := n[1]
			if s.mem.memory[2].blank = away; away { // the second copy cannot be written
				next, want = layout.Header(v), n[0]
			}
			walked, headers := s.mem.stats.Walked, uint64(2) // of both copies of a node: the first one is read first, of each node
			if !away {
				headers = 4
			}
			s.chains.follow([]*entry{e}, -1)
			s.mem.memory[2].blank = false
			if s.mem.stats.Walked != walked+headers {
				t.Errorf("away %v: %d headers, want %d", away, s.mem.stats.Walked-walked, headers)
			}
			if e.at != want || e.ended == away || e.lost {
				t.Errorf("away %v: %+v", away, e)
			}
			for j := range 2 {
				if got := headerOf(t, s, n[0], j); got != next {
					t.Errorf("away %v: copy %d has %v, want %v", away, j, got, next)
				}
			}
		})
	}
}

// The first copy of a node is superseded and the last one is not: there the append was not made,
// but the chain has what the first copy says. The append on the first copy goes elsewhere: nothing
// is changed there.
func TestFirstCopyDecides(t *testing.T) {
	withMemory(t, 2, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
		lending(s, rt)
		cl, n := holder(t, s, 1, 3)
		e := opened(t, s, cl, 1, n[0])
		v := n[0].Version
		first := layout.Superseded(v, n[1])
		if err := errors.Join(putCopy(s, n[0], 0, first, 1), putCopy(s, n[0], 1, layout.Superseded(v, n[2]), 1), put(s, n[1], layout.Header(v), 1), put(s, n[2], layout.Header(v), 1)); err != nil {
			t.Error(err)
		}
		walked := s.mem.stats.Walked
		// two headers of the newest node are read: the last copy of it has no successor either
		if s.chains.follow([]*entry{e}, -1); e.at != n[1] || headerOf(t, s, n[0], 0) != first || s.mem.stats.Walked != walked+3 || !e.ended {
			t.Errorf("%+v after %d headers", e, s.mem.stats.Walked-walked)
		}
		old := layout.Header(v + 1) // another header than that of the node: the compare-and-swap does nothing
		if err := putCopy(s, n[2], 0, old, 1); err != nil {
			t.Error(err)
		}
		if !s.chains.complete(n[2], layout.Superseded(v, n[1])) || headerOf(t, s, n[2], 0) != old {
			t.Errorf("header %v, want %v", headerOf(t, s, n[2], 0), old)
		}
	})
}

// An append cannot be completed while the server of another copy does not answer, nor can a server
// be filled that does not.
func TestAppendIsNotCompleted(t *testing.T) {
	withMemory(t, 2, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		lending(s, rt)
		l := node(s, 1, 0, 1)
		r.crash(s, 1)
		began := rt.Now()
		if err := s.members.writeHeads(1); err == nil || rt.Now() > began.Add(s.mem.deadline().Sub(rt.Now())*3/2) {
			t.Errorf("%v after %v: the first WRITE that fails ends it", err, rt.Now().Sub(began))
		}
		r.restart(1, rt)
		if err := s.mem.openWays(1, s.mem.deadline()); err != nil {
			t.Error(err)
		}
		r.Host("ms1").Crash() // the connection is there
		if s.chains.complete(l, layout.Superseded(1, node(s, 1, 1, 1))) {
			t.Error("it is complete, though the first copy was not written")
		}
	})
}

// What a server gets before its nodes: the records and mirrors that belong there, of all its
// copies, and the rows of the table, and nothing else.
func TestHeadOfAServer(t *testing.T) {
	withMemory(t, 3, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
		at := node(s, 1, 0, 1)
		for k := range uint64(6) {
			e := &entry{key: k + 1, slot: uint32(k), at: at, recorded: true, mirrored: true}
			e.lost = k == 5
			s.chains.keys[k+1] = e
		}
		for i := range 3 {
			b, err := s.mem.readBulk(i, 0, s.mem.space.Table(i).Offset)
			if err := errors.Join(err, s.members.writeHeads(i)); err != nil {
				t.Error(err)
			}
			written, err := s.mem.readBulk(i, 0, len(b))
			if err != nil || !bytes.Equal(written[:layout.SuperblockLen], b[:layout.SuperblockLen]) || !bytes.Equal(written[layout.SuperblockLen:], s.members.head(i)[layout.SuperblockLen:]) {
				t.Errorf("server %d: the superblock is changed, or the rest is not: %v", i, err)
			}
		}
		for _, e := range s.chains.keys {
			for j := range 2 {
				if p, _ := s.mem.space.RecordCopy(int(e.slot), j); record(t, s, p) != s.chains.recordOf(e) {
					t.Errorf("key %d: copy %d of its record is %+v", e.key, j, record(t, s, p))
				}
			}
			if p, ok := s.mem.space.Mirror(int(e.slot)); !ok || record(t, s, p) != e.mirror() {
				t.Errorf("key %d: mirror %+v", e.key, record(t, s, p))
			}
		}
		n := 0
		for i := range 3 {
			b := s.members.head(i)
			for k := 0; k+layout.RecordLen <= len(b); k += 8 {
				if rec, ok := layout.ParseKeyRecord(b[k:]); ok && s.chains.keys[rec.Key] != nil {
					n++
				}
			}
		}
		if n != 3*6 {
			t.Errorf("%d records and mirrors of 6 keys, want 18", n)
		}
		s.pool.segments.Row(0)[3], s.pool.segments.Row(2)[4] = 7, 8
		for i := range 3 {
			if err := s.members.writeHeads(i); err != nil {
				t.Error(err)
			}
			for j := range 2 {
				p := s.mem.space.Copy(s.mem.space.Table(i), j)
				if b, err := s.mem.readBulk(p.Server, p.Offset, p.Len); err != nil || p.Server <= i && !bytes.Equal(b, s.pool.segments.Row(i)) {
					t.Errorf("copy %d of the table of server %d: %v, %v", j, i, b, err)
				}
			}
		}
	})
}
