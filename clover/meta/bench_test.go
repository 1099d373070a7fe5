package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// What an append costs the metadata server in processor time, without messages and without the
// directory: a node is given out, reported, and superseded by the next one. A store with a thousand
// keys and a pool like that of the published system.
func BenchmarkAppend(b *testing.B) {
	const keys, pool, batch = 1024, 335360, 48
	s := newServer()
	s.mem.space = layout.Space{Servers: 1, Entries: layout.Counts{0: pool}, Shortcuts: keys}
	s.mem.memory = make([]memory, 1)
	s.chains.keys, s.pool.clients = map[uint64]*entry{}, map[uint32]*client{1: {}}
	first := s.mem.space.First(0, 0)
	for h := range pool {
		l := layout.Location{Handle: first + layout.Handle(h), Version: 1}
		if h < keys {
			s.chains.keys[uint64(h)] = &entry{key: uint64(h), at: l, recorded: true, mirrored: true}
			continue
		}
		s.pool.release(l)
	}
	var a rpc.Answer
	var records [batch]rpc.Record
	b.ReportAllocs()
	for n := 0; n < b.N; n += batch {
		list := s.pool.give(1, 0, anywhere, batch, 0, a.Locations[:0])
		for i, l := range list {
			records[i] = rpc.Record{Key: uint64((n + i) * 7 % keys), Heard: s.pool.clock, New: l}
		}
		s.chains.collect(1, records[:len(list)])
		for _, e := range s.chains.tidy.due {
			e.due, e.recorded = false, true
			s.chains.settle(e)
			for i := range s.pool.nodes.worn { // an epoch ends at once
				s.pool.release(layout.Location{Handle: s.pool.nodes.worn[i].handle, Version: 1})
			}
			s.pool.nodes.worn = s.pool.nodes.worn[:0]
		}
		s.chains.tidy.due = s.chains.tidy.due[:0]
	}
}
