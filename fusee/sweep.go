package fusee

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// sweep finds out from the index which objects of a block are free, without regard to the bitmap,
// and makes them ready for use. It leaves out objects whose operations have an unknown outcome.
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
			b.hints = true // the FETCH_ADD by which another client frees it may still arrive
		}
	})
	if err == nil {
		b.swept = doubts
	}
	return err
}

// inspectBlock finds out which objects are in use in a block that another client has left. It reads
// the objects' keys from their heads, and their versions from the slots of these keys. Heads of
// objects that are not in use may be wrong, but then no slot names the object.
func (s *space) inspectBlock(b *block, deadline clock.Time) error {
	shape := &s.super.Shape
	list := make([]int, len(b.used))
	for i := range list {
		list[i] = i
	}
	for some := range slices.Chunk(list, maxOps) {
		for n, i := range some {
			server, off := s.replica(b.server, shape.PlaceOf(b.block, i, b.units))
			s.mem.read(server, off, atIn+layout.HeadLen*n, layout.HeadLen)
		}
		if err := s.mem.do(deadline); err != nil {
			return err
		}
		for n, i := range some {
			raw, err := s.mem.bytes(nil, atIn+layout.HeadLen*n, layout.HeadLen)
			if err != nil {
				return err
			}
			b.keys[i] = layout.ParseHead(raw).Key
		}
	}
	return s.named(b, list, deadline, func(i int, slot layout.Slot) {
		if b.used[i] = slot != 0; b.used[i] {
			b.versions[i] = shape.Format.Ref(slot).Version
		}
	})
}

// named finds out which of the objects in list, by their indices in block b, are in the index. It
// reads the buckets of their keys, and calls f for each object with the primary's slot that names
// the object, or 0 if none does. While a split moves a key to another subtable (the twin), the old
// slot is marked as leaving. It counts until the twin has a slot for the key.
func (s *space) named(b *block, list []int, deadline clock.Time, f func(i int, slot layout.Slot)) error {
	sights := make([]sight, min(len(list), maxOps/sightReads))
	for len(list) > 0 {
		some := list[:min(len(list), len(sights))]
		for n, i := range some {
			s.aim(&sights[n], layout.HashOf(b.keys[i]))
			s.readSight(&sights[n], atIn+n*sightLen)
		}
		if err := s.mem.do(deadline); err != nil {
			return err
		}
		for n, i := range some {
			err := s.parseSight(&sights[n], atIn+n*sightLen)
			if errors.Is(err, errStale) {
				if !errors.Is(err, errSplits) {
					err = s.refresh(sights[n].hash, deadline)
				}
				if errors.Is(err, errSplits) || err == nil {
					// The loop begins again with this object: the READs of the remaining ones are
					// repeated.
					break
				}
			}
			if err != nil {
				return err
			}
			f(i, object{b, i}.namedIn(&sights[n], &s.super.Shape))
			list = list[1:]
		}
	}
	return nil
}

// namedIn returns the value of the slot that names the object, among the slots of a sight (the
// buckets of a key), or 0 if none does.
func (o object) namedIn(v *sight, shape *layout.Shape) (found layout.Slot) {
	format, place := shape.Format, o.ref(shape, 0).Place
	for i := range v.old {
		for n := range layout.CombinedSlots {
			e, k := v.cell(format, i, n)
			switch k {
			default:
				continue
			case leaving:
				e.slot = format.Left(e.slot, v.hash.Fingerprint())
			case taken:
			}
			if r := format.Ref(e.slot); r.Units == o.units && r.Server == o.server && r.Place == place {
				found = e.slot
			}
		}
	}
	return found
}

// slotAt reads a slot in one replica of the index, or another word of a server.
func (s *space) slotAt(server int, at uint64, deadline clock.Time) (layout.Slot, error) {
	s.mem.read(server, at, atLog, 8)
	if err := s.mem.do(deadline); err != nil {
		return 0, err
	}
	b, err := s.mem.bytes(nil, atLog, 8)
	if err != nil {
		return 0, err
	}
	return layout.Slot(binary.LittleEndian.Uint64(b)), nil
}
