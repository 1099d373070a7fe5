package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// sight is what a client reads of a key in the index: its two combined buckets. While their
// subtable is being split, it also has the buckets at the same places of the twin, the subtable to
// which the split moves keys.
type sight struct {
	hash     layout.Hash
	subtable int
	entry    layout.Entry // the directory's word of the subtable, as the client knows it
	twin     int
	// shift is the distance in bytes from a place in the subtable to the same place in the twin.
	shift uint64
	// moves is true if the split moves this key to the twin. old are the key's buckets in the
	// subtable, new those in the twin.
	moves bool
	old   [2]bucket
	new   [2]layout.Combined
}

// bucket is a combined bucket with its offset in the region and the index of its main bucket in the
// subtable.
type bucket struct {
	layout.Combined
	off  uint64
	main int
}

// sightLen is how many bytes of the buffer a sight takes: four combined buckets, and the word of
// the directory. sightReads is how many READs a sight takes.
const (
	sightLen   = 4*layout.CombinedLen + 8
	sightReads = 5
)

// errStale: the headers of the buckets do not fit the client's copy of the directory, which is
// older than a split.
var errStale = errors.New("a subtable was split")

// errSplits replaces errStale when the client has already corrected its copy of the directory.
var errSplits = fmt.Errorf("%w: a split has begun", errStale)

// aim prepares v for the READs of the buckets of keys with hash h: it takes the subtable and the
// places of the buckets from the client's copy of the directory.
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

// readSight adds READs of the buckets to the batch, into the buffer from offset `to` on. The twin's
// buckets are read after the subtable's buckets: if a slot shows that its key has moved, the key is
// in the twin when the twin is read. The word of the directory says whether the split has ended.
func (s *space) readSight(v *sight, to int) {
	for i := range v.old {
		s.mem.read(s.root(), v.old[i].off, to+i*layout.CombinedLen, layout.CombinedLen)
	}
	if !v.entry.Splitting {
		return
	}
	shape := &s.super.Shape
	for i := range v.old {
		s.mem.read(s.root(), shape.CombinedAt(v.twin, v.old[i].main), to+(2+i)*layout.CombinedLen, layout.CombinedLen)
	}
	s.mem.read(s.root(), shape.EntryAt(v.subtable), to+4*layout.CombinedLen, 8)
}

// parseSight parses what readSight has read to offset `from` of the buffer. It returns errStale if
// the client's copy of the directory is out of date: the caller then reads the directory again. If
// parseSight has corrected the copy itself, it returns errSplits, which is a kind of errStale.
func (s *space) parseSight(v *sight, from int) (err error) {
	for i := range v.old {
		b := &v.old[i]
		if s.raw, err = s.mem.bytes(s.raw, from+i*layout.CombinedLen, layout.CombinedLen); err != nil {
			return err
		}
		if err := b.Parse(b.main, s.raw); err != nil {
			return errors.Join(errDirectory, err)
		}
	}
	if head, ok := v.unexpected(); ok {
		err := v.stale(&s.dir, &s.super.Shape, head)
		if !errors.Is(err, errSplits) || v.hash.Moves(v.entry.Depth) {
			return err
		}
		// The split does not move this key, so the client need not read the twin. An INSERT may use
		// any empty slot of these buckets that is not leaving.
		v.entry.Splitting, v.new = true, [2]layout.Combined{}
		if _, ok := v.unexpected(); ok {
			return errStale
		}
		return nil
	}
	if !v.entry.Splitting {
		return nil
	}
	fresh := layout.Header{Depth: v.entry.Depth + 1, Prefix: uint32(v.twin)}
	for i := range v.new {
		if s.raw, err = s.mem.bytes(s.raw, from+(2+i)*layout.CombinedLen, layout.CombinedLen); err != nil {
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

// unexpected returns a header of the key's buckets that does not fit v.entry. ok is false if all
// headers fit.
func (v *sight) unexpected() (h layout.Header, ok bool) {
	for i := range v.old {
		for _, head := range v.old[i].Heads {
			if _, fits := v.state(head); !fits {
				return head, true
			}
		}
	}
	return h, false
}

// stale is called for a header h that does not fit v.entry, the client's copy of the directory's
// word, and returns errStale. If the header itself says that a split of the subtable has begun,
// stale corrects the client's copy of the directory and returns errSplits. If that split has ended
// already, the client sees that when it reads the buckets again, together with the directory's
// word.
func (v *sight) stale(dir *layout.Directory, shape *layout.Shape, h layout.Header) error {
	e := layout.Entry{Depth: v.entry.Depth, Splitting: true}
	if v.entry.Splitting || h.Depth != e.Depth+1 || h.Prefix != uint32(v.subtable) || dir.Set(shape, v.subtable, e) != nil {
		return errStale
	}
	return errSplits
}

// learn copies the directory's word of a subtable from the buffer.
func (s *space) learn(subtable, from int) (err error) {
	if s.raw, err = s.mem.bytes(s.raw, from, 8); err != nil {
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

// refresh reads the directory's words of all subtables in which keys with hash h can be.
func (s *space) refresh(h layout.Hash, deadline clock.Time) error {
	shape := &s.super.Shape
	s.homes = shape.Homes(h, s.homes[:0])
	for i, n := range s.homes {
		s.mem.read(s.root(), shape.EntryAt(n), atIn+8*i, 8)
	}
	if err := s.mem.do(deadline); err != nil {
		return err
	}
	for i, n := range s.homes {
		if err := s.learn(n, atIn+8*i); err != nil {
			return err
		}
	}
	return nil
}

// stage is how far a split has come in one bucket of the subtable that is being split.
type stage uint8

const (
	// open: all keys are in the bucket, and keys are inserted there.
	open stage = iota
	// moving: some of the keys that the split moves may be in the twin already. Clients insert a
	// key directly into the twin if the split would move it.
	moving
	// settled: all keys that the split moves are in the twin.
	settled
)

// state returns the stage that a header shows. ok is false if the header does not fit v.entry.
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

// kind says what a place in the key's buckets means for this key.
type kind uint8

const (
	// taken: a slot that names an object.
	taken kind = iota
	// vacant: an empty slot into which the key can be inserted.
	vacant
	// leaving: a slot whose key a split is moving, and which is not in its new slot yet.
	leaving
	// reserved: a slot that neither has this key nor may get it.
	reserved
)

// cell returns the slot that counts in place n of combined bucket i, either the slot of the
// subtable or the slot of the twin (the subtable to which a split moves keys), and what this slot
// means for the key. A slot of the twin is 0 until a key is moved or inserted there, and never
// becomes 0 again. So if the twin's slot is not 0, it counts, and the subtable's slot does not.
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

// find returns the combined bucket i and the index n of the slot at offset `at`. The result `there`
// is true if the slot is in the twin. ok is false if v does not have the slot.
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

// fill marks the slot at offset `at` in the sight as not empty.
func (v *sight) fill(at uint64) {
	for i := range v.old {
		for n := range layout.CombinedSlots {
			switch one := layout.SlotAt(v.old[i].off, n); at {
			case one:
				v.old[i].Slots[n] = filled
			case one + v.shift:
				v.new[i].Slots[n] = filled
			}
		}
	}
}

// filled is a value that stands for any object. The method fill gives it to a slot of a sight, so
// that the slot does not count as empty.
const filled = ^layout.Slot(0)

// takes reports whether the key may be inserted into the slot at offset `at`: no split moves the
// key from there.
func (v *sight) takes(at uint64) bool {
	i, n, there, ok := v.find(at)
	if !ok || there || !v.moves {
		return ok
	}
	state, _ := v.state(v.old[i].Heads[n/layout.BucketSlots])
	return state == open
}

// closes reports whether the bucket header that was read with the slot at offset `at` shows that a
// split moves the key from this slot, or has moved it. The client's copy of the directory may be
// older than this split.
func (v *sight) closes(at uint64) bool {
	i, n, there, ok := v.find(at)
	return ok && !there && v.old[i].Heads[n/layout.BucketSlots].Depth > v.entry.Depth && v.hash.Moves(v.entry.Depth)
}

// moving reports whether a split has begun to move the key from the slot at offset `at`.
func (v *sight) moving(at uint64) bool {
	i, n, there, ok := v.find(at)
	if !ok || there || !v.moves {
		return false
	}
	state, _ := v.state(v.old[i].Heads[n/layout.BucketSlots])
	return state == moving
}

// head returns the header of the bucket with the slot at offset `at`. stays is true if no key was
// moved out of the slot while the bucket had this header.
func (v *sight) head(at uint64) (h layout.Header, stays bool) {
	i, n, there, ok := v.find(at)
	if there {
		return v.new[i].Heads[n/layout.BucketSlots], true
	}
	return v.old[i].Heads[n/layout.BucketSlots], ok && v.takes(at)
}

// settled reports whether all buckets of the sight in the subtable are settled: the split has moved
// all their keys that it moves.
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
