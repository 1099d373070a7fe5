package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// finder looks for keys in the index.
type finder struct {
	space
	cache cache
	dir   layout.Directory
	// buckets are the two combined buckets of the key, as they were read last.
	buckets [2]bucket
	found   []entry
	scratch []byte
	matches []int
	object  layout.Object
}

// bucket is a combined bucket and its offset.
type bucket struct {
	layout.Combined
	off  uint64
	main int
}

// entry is a slot and its value.
type entry struct {
	at   uint64
	slot layout.Slot
	// mark is that of its object, once inspect has read it.
	mark layout.Mark
}

// errDirectory: the buckets are not those of the subtable that the directory names.
var errDirectory = errors.New("the index is damaged or not the one that this client knows")

// loadDirectory reads the directory.
func (f *finder) loadDirectory(deadline clock.Time) error {
	shape := &f.super.Shape
	f.read(0, layout.DepthWord, atIn, 8)
	f.read(0, shape.EntryAt(0), atIn+8, 8*shape.Subtables)
	if err := f.do(deadline); err != nil {
		return err
	}
	b, err := f.bytes(nil, atIn, 8+8*shape.Subtables)
	if err != nil {
		return err
	}
	var words []uint64
	depth := binary.LittleEndian.Uint64(b)
	for at := 8; at < len(b) && uint64(len(words)) < 1<<min(depth, layout.MaxDepth); at += 8 {
		words = append(words, binary.LittleEndian.Uint64(b[at:]))
	}
	if err := f.dir.Parse(depth, words); err != nil {
		return fmt.Errorf("fusee: %w", err)
	}
	for _, e := range f.dir.Entries {
		if e.Subtable >= shape.Subtables {
			return fmt.Errorf("fusee: %w", layout.ErrDirectory)
		}
	}
	return nil
}

// readBuckets adds READs of the buckets of a hash to the batch. set is the part of the buffer.
func (f *finder) readBuckets(h layout.Hash, set int) {
	shape := &f.super.Shape
	subtable := f.dir.Of(h).Subtable
	one, two := shape.Format.Buckets(h, shape.Mains())
	for i, main := range []int{one, two} {
		f.buckets[i].main, f.buckets[i].off = main, shape.CombinedAt(subtable, main)
		f.read(0, f.buckets[i].off, bucketsAt(set, i), layout.CombinedLen)
	}
}

func bucketsAt(set, i int) int { return atBuckets + (2*set+i)*layout.CombinedLen }

// look parses the buckets that readBuckets has read, and lists the slots that may name the key. The
// list is valid until the next call.
func (f *finder) look(h layout.Hash, set int) ([]entry, error) {
	f.found = f.found[:0]
	for i := range f.buckets {
		b := &f.buckets[i]
		var err error
		if f.scratch, err = f.bytes(f.scratch, bucketsAt(set, i), layout.CombinedLen); err != nil {
			return nil, err
		}
		if err := b.Parse(b.main, f.scratch); err != nil || !b.Has(h) {
			return nil, errors.Join(errDirectory, err)
		}
		f.matches = b.Find(f.super.Shape.Format, h, f.matches[:0])
		for _, n := range f.matches {
			f.list(entry{at: layout.SlotAt(b.off, n), slot: b.Slots[n]})
		}
	}
	return f.found, nil
}

// list adds an entry. A slot of an overflow bucket can be in both combined buckets.
func (f *finder) list(e entry) {
	for _, was := range f.found {
		if was.at == e.at {
			return
		}
	}
	f.found = append(f.found, e)
}

// vacancy chooses an empty slot of the buckets: of the one with fewer keys.
func (f *finder) vacancy() (e entry, ok bool) {
	least := layout.CombinedSlots + 1
	for i := range f.buckets {
		b := &f.buckets[i]
		n, used, free := b.Free(f.super.Shape.Format)
		if free && used < least {
			e, ok, least = entry{at: layout.SlotAt(b.off, n), slot: b.Slots[n]}, true, used
		}
	}
	return e, ok
}

// readObject adds a READ of the object that a slot names; false: it names none.
func (f *finder) readObject(s layout.Slot, part int) bool {
	shape := &f.super.Shape
	r := shape.Format.Ref(s)
	if !shape.Holds(r) {
		return false
	}
	server, off := shape.Replica(r.Server, r.Place, 0)
	f.read(server, off, atIn+part*maxOut, r.Units*layout.Unit)
	return true
}

// parse reads the object that readObject has read: false if it is not the one that the slot names,
// because the slot has changed since. The object's value is valid until the next call.
func (f *finder) parse(s layout.Slot, part int) (bool, error) {
	r := f.super.Shape.Format.Ref(s)
	var err error
	if f.scratch, err = f.bytes(f.scratch, atIn+part*maxOut, r.Units*layout.Unit); err != nil {
		return false, err
	}
	err = f.object.Parse(f.super.Shape.Format, f.scratch)
	return err == nil && f.object.Version == r.Version, nil
}

// errChanged: a slot has changed while its object was read.
var errChanged = errors.New("a slot has changed")

// inspect reads the objects of entries and returns those of the key. If one of them is visible, it is
// the only one, and object is it. errChanged: the buckets must be read again.
func (f *finder) inspect(key uint64, list []entry, deadline clock.Time) ([]entry, error) {
	out := list[:0]
	for len(list) > 0 {
		some := list[:min(maxIn, len(list))]
		list = list[len(some):]
		for i, e := range some {
			if !f.readObject(e.slot, i) {
				f.drop()
				return nil, errChanged
			}
		}
		if err := f.do(deadline); err != nil {
			return nil, err
		}
		for i, e := range some {
			same, err := f.parse(e.slot, i)
			switch {
			case err != nil:
				return nil, err
			case !same:
				return nil, errChanged
			case f.object.Key != key:
				continue
			}
			if e.mark = f.object.Mark; e.mark == layout.Valid {
				return append(out[:0], e), nil
			}
			out = append(out, e)
		}
	}
	return out, nil
}
