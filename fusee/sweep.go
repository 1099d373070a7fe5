package fusee

import (
	"encoding/binary"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// sweep finds by the index which objects of a block are in use, whatever the bitmap says. Objects
// whose operations have an unknown outcome are left alone.
func (s *space) sweep(b *block, deadline clock.Time) error {
	doubts := s.doubts
	var list []int
	for i, used := range b.used {
		if used && !slices.Contains(s.unsure, object{b, i}) {
			list = append(list, i)
		}
	}
	err := s.named(b, list, deadline, func(i int, slot layout.Slot) {
		o := object{b, i}
		if slot != s.super.Shape.Format.Slot(o.ref(&s.super.Shape, byte(slot))) {
			s.ready(o)
			b.hints = true // the client that has replaced it may free it yet
		}
	})
	if err == nil {
		b.swept = doubts
	}
	return err
}

// inspectBlock finds out which objects of a block are in use that another client has left. Their
// headers have their keys, and the slots of these the versions. What a header says is right if a
// slot names the object.
func (s *space) inspectBlock(b *block, deadline clock.Time) error {
	const header = 16
	shape := &s.super.Shape
	list := make([]int, len(b.used))
	for i := range list {
		list[i] = i
	}
	for some := range slices.Chunk(list, maxOps) {
		for n, i := range some {
			server, off := s.replica(b.server, shape.PlaceOf(b.block, i, b.units))
			s.read(server, off, atIn+header*n, header)
		}
		if err := s.do(deadline); err != nil {
			return err
		}
		for n, i := range some {
			raw, err := s.bytes(nil, atIn+header*n, header)
			if err != nil {
				return err
			}
			b.keys[i] = binary.LittleEndian.Uint64(raw[8:])
		}
	}
	return s.named(b, list, deadline, func(i int, slot layout.Slot) {
		if b.used[i] = slot != 0; b.used[i] {
			b.versions[i] = shape.Format.Ref(slot).Version
		}
	})
}

// named reads the buckets of the keys of some objects of a block, and calls f with the slot of the
// primary that names each object; 0: none does.
func (s *space) named(b *block, list []int, deadline clock.Time, f func(i int, slot layout.Slot)) error {
	for some := range slices.Chunk(list, maxOps/2) {
		for n, i := range some {
			s.readCombined(s.root(), layout.HashOf(b.keys[i]), atIn+2*n*layout.CombinedLen)
		}
		if err := s.do(deadline); err != nil {
			return err
		}
		for n, i := range some {
			o, found := object{b, i}, layout.Slot(0)
			err := s.eachSlot(layout.HashOf(b.keys[i]), atIn+2*n*layout.CombinedLen, func(_ uint64, slot layout.Slot) {
				if r := s.super.Shape.Format.Ref(slot); r.Units == b.units && r.Server == b.server && r.Place == o.ref(&s.super.Shape, 0).Place {
					found = slot
				}
			})
			if err != nil {
				return err
			}
			f(i, found)
		}
	}
	return nil
}

// readCombined adds READs of the two combined buckets of a hash to the batch, from a replica of the
// index.
func (s *space) readCombined(server int, h layout.Hash, to int) {
	shape := &s.super.Shape
	one, two := shape.Format.Buckets(h, shape.Mains())
	for i, main := range []int{one, two} {
		s.read(server, shape.CombinedAt(s.dir.Of(h).Subtable, main), to+i*layout.CombinedLen, layout.CombinedLen)
	}
}

// eachSlot calls f for the slots that readCombined has read.
func (s *space) eachSlot(h layout.Hash, from int, f func(at uint64, slot layout.Slot)) error {
	shape := &s.super.Shape
	one, two := shape.Format.Buckets(h, shape.Mains())
	for i, main := range []int{one, two} {
		raw, err := s.bytes(nil, from+i*layout.CombinedLen, layout.CombinedLen)
		if err != nil {
			return err
		}
		var b layout.Combined
		if err := b.Parse(main, raw); err != nil {
			return err
		}
		for n, slot := range b.Slots {
			f(layout.SlotAt(shape.CombinedAt(s.dir.Of(h).Subtable, main), n), slot)
		}
	}
	return nil
}

// slotAt reads a slot of one replica of the index, or another word of a server.
func (s *space) slotAt(server int, at uint64, deadline clock.Time) (layout.Slot, error) {
	s.read(server, at, atLog, 8)
	if err := s.do(deadline); err != nil {
		return 0, err
	}
	b, err := s.bytes(nil, atLog, 8)
	if err != nil {
		return 0, err
	}
	return layout.Slot(binary.LittleEndian.Uint64(b)), nil
}
