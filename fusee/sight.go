package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// sight is what a client sees of a key in the index: its two combined buckets, and while their
// subtable is being split also those at the same places of the twin, the subtable to which the split
// moves keys.
type sight struct {
	hash     layout.Hash
	subtable int
	entry    layout.Entry
	twin     int
	// shift is the distance from a place of the subtable to that of the twin.
	shift uint64
	// moves: the split moves the key.
	moves bool
	old   [2]bucket
	new   [2]layout.Combined
}

// bucket is a combined bucket and its offset.
type bucket struct {
	layout.Combined
	off  uint64
	main int
}

// sightLen is how many bytes of the buffer a sight takes: four combined buckets, and the word of the
// directory.
const (
	sightLen   = 4*layout.CombinedLen + 8
	sightReads = 5
)

// errStale: the buckets are not those that the client's copy of the directory says.
var errStale = errors.New("a subtable was split")

// errSplits is errStale of a client whose copy of the directory is up to date again.
var errSplits = fmt.Errorf("%w: a split has begun", errStale)

// aim makes v the sight of a hash.
func (s *space) aim(v *sight, h layout.Hash) {
	shape := &s.super.Shape
	v.hash = h
	v.subtable, v.entry = s.dir.Of(shape, h)
	v.twin, _ = shape.Twin(v.subtable, v.entry.Depth)
	v.shift = shape.SubtableAt(v.twin) - shape.SubtableAt(v.subtable)
	v.moves = v.entry.Splitting && h.Moves(v.entry.Depth)
	one, two := shape.Format.Buckets(h, shape.Mains())
	for i, main := range [...]int{one, two} {
		v.old[i].main, v.old[i].off = main, shape.CombinedAt(v.subtable, main)
	}
}

// readSight adds READs of the buckets to the batch. Those of the twin come later: what has been moved
// when its slot is read is there then. The word of the directory says whether the split has ended.
func (s *space) readSight(v *sight, to int) {
	for i := range v.old {
		s.read(s.root(), v.old[i].off, to+i*layout.CombinedLen, layout.CombinedLen)
	}
	if !v.entry.Splitting {
		return
	}
	shape := &s.super.Shape
	for i := range v.old {
		s.read(s.root(), shape.CombinedAt(v.twin, v.old[i].main), to+(2+i)*layout.CombinedLen, layout.CombinedLen)
	}
	s.read(s.root(), shape.EntryAt(v.subtable), to+4*layout.CombinedLen, 8)
}

// parseSight parses what readSight has read. The error errStale asks the caller to refresh the
// directory.
func (s *space) parseSight(v *sight, from int) (err error) {
	for i := range v.old {
		b := &v.old[i]
		if s.raw, err = s.bytes(s.raw, from+i*layout.CombinedLen, layout.CombinedLen); err != nil {
			return err
		}
		if err := b.Parse(b.main, s.raw); err != nil {
			return errors.Join(errDirectory, err)
		}
		for _, head := range b.Heads {
			if _, ok := v.state(head); !ok {
				return v.stale(&s.dir, &s.super.Shape, head)
			}
		}
	}
	if !v.entry.Splitting {
		return nil
	}
	fresh := layout.Header{Depth: v.entry.Depth + 1, Prefix: uint32(v.twin)}
	for i := range v.new {
		if s.raw, err = s.bytes(s.raw, from+(2+i)*layout.CombinedLen, layout.CombinedLen); err != nil {
			return err
		}
		if err := v.new[i].Parse(v.old[i].main, s.raw); err != nil {
			return errors.Join(errDirectory, err)
		}
		if v.new[i].Heads != [2]layout.Header{fresh, fresh} {
			return errStale
		}
	}
	return s.learn(v.subtable, from+4*layout.CombinedLen)
}

// stale is errStale. If the header itself says that the subtable is being split, the client knows that
// now (errSplits).
func (v *sight) stale(dir *layout.Directory, shape *layout.Shape, h layout.Header) error {
	e := layout.Entry{Depth: v.entry.Depth, Splitting: true}
	if v.entry.Splitting || !h.Moving || h.Depth != e.Depth+1 || h.Prefix != uint32(v.subtable) || dir.Set(shape, v.subtable, e) != nil {
		return errStale
	}
	return errSplits
}

// learn reads the word of a subtable from the buffer.
func (s *space) learn(subtable, from int) (err error) {
	if s.raw, err = s.bytes(s.raw, from, 8); err != nil {
		return err
	}
	var e layout.Entry
	if err := e.Parse(binary.LittleEndian.Uint64(s.raw)); err != nil {
		return errors.Join(errDirectory, err)
	}
	if err := s.dir.Set(&s.super.Shape, subtable, e); err != nil {
		return errors.Join(errDirectory, err)
	}
	return nil
}

// refresh reads the words of all subtables in which a hash can be.
func (s *space) refresh(h layout.Hash, deadline clock.Time) error {
	shape := &s.super.Shape
	s.homes = shape.Homes(h, s.homes[:0])
	for i, n := range s.homes {
		s.read(s.root(), shape.EntryAt(n), atIn+8*i, 8)
	}
	if err := s.do(deadline); err != nil {
		return err
	}
	for i, n := range s.homes {
		if err := s.learn(n, atIn+8*i); err != nil {
			return err
		}
	}
	return nil
}

// stage is how far a split has come in a bucket of the subtable that is being split.
type stage uint8

const (
	// open: all keys are where they were, and keys are inserted there.
	open stage = iota
	// moving: the twin has some of the keys that the split moves. Others of them are inserted there.
	moving
	// settled: the twin has all of them.
	settled
)

// state returns the stage that a header shows. ok is false if the header does not belong to the
// client's entry of the directory.
func (v *sight) state(h layout.Header) (s stage, ok bool) {
	switch {
	case h.Prefix != uint32(v.subtable):
		return open, false
	case h.Depth == v.entry.Depth && !h.Moving:
		return open, true
	case !v.entry.Splitting || h.Depth != v.entry.Depth+1:
		return open, false
	case h.Moving:
		return moving, true
	}
	return settled, true
}

// kind says what the key can find in a place of its buckets.
type kind uint8

const (
	// taken: a slot that names an object.
	taken kind = iota
	// vacant: an empty slot, into which the key can be inserted.
	vacant
	// leaving: a slot from which a key is being moved, and that is not in the twin yet.
	leaving
	// reserved: nothing of the key, and no place for it.
	reserved
)

// cell returns what the key finds in place n of combined bucket i: in the subtable, or in the twin.
// The twin has a slot that was never used, 0, until a key is moved there or inserted, and 0 never
// comes back. So a slot of the twin that is not 0 counts, whatever the subtable has there.
func (v *sight) cell(f layout.Format, i, n int) (entry, kind) {
	e := entry{at: layout.SlotAt(v.old[i].off, n), slot: v.old[i].Slots[n]}
	if !v.entry.Splitting {
		return e, empty(f, e.slot)
	}
	new := v.new[i].Slots[n]
	if !v.moves {
		if f.Leaving(e.slot) && new == 0 {
			return e, reserved
		}
		return e, empty(f, e.slot)
	}
	there := entry{at: e.at + v.shift, slot: new}
	at, _ := v.state(v.old[i].Heads[n/layout.BucketSlots])
	switch {
	case new != 0:
		return there, empty(f, new)
	case f.Leaving(e.slot):
		return e, leaving
	case at == open:
		return e, empty(f, e.slot)
	case at == settled || f.Empty(e.slot):
		return there, vacant
	}
	return e, taken
}

func empty(f layout.Format, s layout.Slot) kind {
	if f.Empty(s) {
		return vacant
	}
	return taken
}

// find returns the combined bucket of a place and its number there. there: the place is in the twin.
func (v *sight) find(at uint64) (i, n int, there, ok bool) {
	for i := range v.old {
		for n := range layout.CombinedSlots {
			switch one := layout.SlotAt(v.old[i].off, n); {
			case one == at:
				return i, n, false, true
			case v.entry.Splitting && one+v.shift == at:
				return i, n, true, true
			}
		}
	}
	return 0, 0, false, false
}

// takes reports whether the key may be inserted at a place.
func (v *sight) takes(at uint64) bool {
	i, n, there, ok := v.find(at)
	if !ok || there || !v.moves {
		return ok
	}
	state, _ := v.state(v.old[i].Heads[n/layout.BucketSlots])
	return state == open
}

// moving reports whether a split has begun to move the key from a place of the subtable.
func (v *sight) moving(at uint64) bool {
	i, n, there, ok := v.find(at)
	if !ok || there || !v.moves {
		return false
	}
	state, _ := v.state(v.old[i].Heads[n/layout.BucketSlots])
	return state == moving
}

// head returns the header of the bucket of a place. stays: no key was moved from there under this
// header.
func (v *sight) head(at uint64) (h layout.Header, stays bool) {
	i, n, there, ok := v.find(at)
	if there {
		return v.new[i].Heads[n/layout.BucketSlots], true
	}
	return v.old[i].Heads[n/layout.BucketSlots], ok && v.takes(at)
}

// settled reports whether the split has moved all keys of the buckets.
func (v *sight) settled() bool {
	for i := range v.old {
		for _, h := range v.old[i].Heads {
			if state, _ := v.state(h); state != settled {
				return false
			}
		}
	}
	return true
}
