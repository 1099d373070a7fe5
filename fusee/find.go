package fusee

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// finder looks for keys in the index.
type finder struct {
	mem   *memory
	space *space
	cache cache
	// sight is what the client has read last of the key's buckets. stale is true if they have shown
	// that the client's copy of the directory is out of date. leaving are those slots in the key's
	// buckets from which a split is moving keys that are not yet in the twin, the subtable to which
	// it moves them.
	sight   sight
	stale   bool
	leaving []entry
	// vacant is how many slots in the buckets of the key were empty when vacancy counted them.
	// found is the list that look returns.
	vacant int
	found  []entry
	// mismatches are slots that inspect has found to name other keys than the one of this operation.
	// They need not be inspected again: a slot never has the same value twice, and a split that moves
	// a key moves the value. match is a value of a slot that names the key of this operation, or 0.
	mismatches []entry
	match      layout.Slot
	scratch    []byte
	// stuck are the slots that vacancy avoids for now (see avoid), in the order in which they came.
	stuck  []avoided
	object layout.Object
}

// entry is a slot of the index: its offset `at`, and the value that was read there.
type entry struct {
	at   uint64
	slot layout.Slot
	// mark says whether the object that the slot names is valid or pending. It is set by inspect,
	// which reads the object.
	mark layout.Mark
	// passing is true if a split is moving the key, and the subtable to which it moves the key (the
	// twin) does not have the key yet. Then slot is the value that the twin's slot will get.
	passing bool
}

// maxMismatches is the largest number of slots with other keys that a client remembers in one
// operation.
const maxMismatches = 64

// errDirectory: the buckets or the directory have contents that no client of this store writes.
var errDirectory = errors.New("the index is damaged or not the one that this client knows")

// loadDirectory reads the whole directory.
func (f *finder) loadDirectory(deadline clock.Time) error {
	shape := &f.space.super.Shape
	n := 8 * shape.Subtables
	words := make([]byte, 0, n)
	for len(words) < n {
		b, err := f.mem.fetch(nil, f.space.root(), shape.EntryAt(len(words)/8), min(maxIn*maxOut, n-len(words)), deadline)
		if err != nil {
			return err
		}
		words = append(words, b...)
	}
	if err := f.space.dir.Read(shape, words); err != nil {
		return fmt.Errorf("fusee: %w", err)
	}
	return nil
}

// readBuckets adds READs of the buckets of hash h to the batch. set, 0 or 1, chooses the part of
// the buffer for them: 1 is for READs behind the CAS of a primary.
func (f *finder) readBuckets(h layout.Hash, set int) {
	f.space.aim(&f.sight, h)
	f.space.readSight(&f.sight, bucketsAt(set))
}

func bucketsAt(set int) int { return atBuckets + set*sightLen }

// look parses the buckets that readBuckets has read with the same set, and returns the slots that
// may name the key. Slots whose keys a split is moving (leaving slots) are not among these, but in
// f.leaving. The list is valid until the next call. The error errChanged means that the client's
// copy of the directory is out of date: the caller must call catchUp and read the buckets again.
func (f *finder) look(set int) ([]entry, error) {
	f.found, f.leaving = f.found[:0], f.leaving[:0]
	err := f.space.parseSight(&f.sight, bucketsAt(set))
	if errors.Is(err, errStale) {
		f.stale = !errors.Is(err, errSplits)
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	format, fingerprint := f.space.super.Shape.Format, f.sight.hash.Fingerprint()
	for i := range f.sight.old {
		for n := range layout.CombinedSlots {
			switch e, k := f.sight.cell(format, i, n); {
			case k == leaving:
				f.leaving = append(f.leaving, e)
			case k == taken && byte(e.slot) == fingerprint:
				f.list(e)
			}
		}
	}
	return f.found, nil
}

// list adds an entry to f.found, unless it is there already. A slot of an overflow bucket can be in
// both combined buckets.
func (f *finder) list(e entry) {
	if !slices.ContainsFunc(f.found, func(was entry) bool { return was.at == e.at }) {
		f.found = append(f.found, e)
	}
}

// avoided is an empty slot that another client has won. INSERTs of this client prefer other slots
// until a certain time, because the winner makes no progress.
type avoided struct {
	at    uint64
	until clock.Time
}

// avoid makes vacancy choose other slots than the one at offset `at`, because the client that has
// won that slot makes no progress.
func (f *finder) avoid(at uint64) {
	now := f.mem.rt.Now()
	f.stuck = slices.DeleteFunc(f.stuck, func(a avoided) bool { return a.at == at || a.until <= now })
	if len(f.stuck) == maxStuck {
		f.stuck = slices.Delete(f.stuck, 0, 1)
	}
	f.stuck = append(f.stuck, avoided{at, now.Add(avoidFor)})
}

func (f *finder) avoids(at uint64) bool {
	return slices.ContainsFunc(f.stuck, func(a avoided) bool { return a.at == at && f.mem.rt.Now() < a.until })
}

// vacancy chooses an empty slot for an INSERT. A key has two combined buckets; vacancy chooses a
// slot in the one that has fewer keys. It chooses a slot that the client avoids, or a leaving slot,
// only if there is no other empty slot. ok is false if no slot is empty.
func (f *finder) vacancy() (e entry, ok bool) {
	least := 2 * layout.CombinedSlots
	f.vacant = 0
	for i := range f.sight.old {
		var first, free entry
		room := 0
		for n := range layout.CombinedSlots {
			one, k := f.sight.cell(f.space.super.Shape.Format, i, f.sight.old[i].Order(n))
			if k != vacant {
				continue
			}
			if room++; first.at == 0 {
				first = one
			}
			// A leaving slot counts as empty, but clients that work on the split are about to
			// change it.
			if free.at == 0 && !f.avoids(one.at) && !f.space.super.Shape.Format.Leaving(one.slot) {
				free = one
			}
		}
		f.vacant += room
		used := layout.CombinedSlots - room
		if free.at == 0 {
			free = first
			used += layout.CombinedSlots
		}
		if room > 0 && used < least {
			e, ok, least = free, true, used
		}
	}
	return e, ok
}

// readObject adds to the batch a READ of the object that slot s names. part, 0 to maxIn-1, is the
// part of the buffer for the object. readObject returns false if the slot names no object.
func (f *finder) readObject(s layout.Slot, part int) bool {
	shape := &f.space.super.Shape
	r := shape.Format.Ref(s)
	if !shape.Holds(r) {
		return false
	}
	server, off := f.space.replica(r.Server, r.Place)
	f.mem.read(server, off, atIn+part*maxOut, r.Units*layout.Unit)
	return true
}

// parse parses the object that readObject has read. It returns false if the object is not the one
// that slot s names, because the slot has changed meanwhile. The object's value is valid until the
// next call.
func (f *finder) parse(s layout.Slot, part int) (bool, error) {
	r := f.space.super.Shape.Format.Ref(s)
	var err error
	if f.scratch, err = f.mem.bytes(f.scratch, atIn+part*maxOut, r.Units*layout.Unit); err != nil {
		return false, err
	}
	err = f.object.Parse(f.space.super.Shape.Format, f.scratch)
	return err == nil && f.object.Version == r.Version, nil
}

// errChanged: a slot has changed while the client read its object. The caller reads again.
var errChanged = errors.New("a slot has changed")

// inspect reads the objects of the entries in list and returns the entries of the key. If one of
// these names a valid object, inspect returns only this entry, and f.object is that object. The
// error errChanged means that the caller must read the buckets again.
func (f *finder) inspect(key uint64, list []entry, deadline clock.Time) ([]entry, error) {
	list = slices.DeleteFunc(list, func(e entry) bool { return slices.Contains(f.mismatches, f.mismatch(e)) })
	out := list[:0]
	for len(list) > 0 {
		some := list[:min(maxIn, len(list))]
		list = list[len(some):]
		for i, e := range some {
			if !f.readObject(e.slot, i) {
				f.mem.drop()
				return nil, errChanged
			}
		}
		if err := f.mem.do(deadline); err != nil {
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
				if len(f.mismatches) < maxMismatches {
					f.mismatches = append(f.mismatches, f.mismatch(e))
				}
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

// mismatch returns what the client remembers of an entry that names another key: the value, which
// is enough in the hardened format, because no slot ever has the same value twice. In the published
// format it needs the offset, too.
func (f *finder) mismatch(e entry) entry {
	if f.space.super.Shape.Format == layout.Published {
		return entry{at: e.at, slot: e.slot}
	}
	return entry{slot: e.slot}
}

// search inspects the entries that look has found, and also the leaving slots: a key that is being
// moved exists, although no slot names its object now. If the key is one of these, search returns
// its entry alone, with the mark Valid, because a split moves only valid objects.
func (f *finder) search(key uint64, list []entry, deadline clock.Time) ([]entry, error) {
	format := f.space.super.Shape.Format
	known := f.cache.get(key, f.sight.hash)
	for _, e := range f.leaving {
		if f.match != 0 && e.slot == format.Leave(f.match) || known != nil && e.at == known.at && e.slot == format.Leave(known.slot) {
			return append(list[:0], f.passer(e)), nil
		}
	}
	if err := f.readHeads(len(f.leaving), func(i int) layout.Slot { return f.leaving[i].slot }); err != nil {
		return nil, err
	}
	list, err := f.inspect(key, list, deadline)
	if err != nil || len(f.leaving) == 0 || len(list) > 0 && list[0].mark == layout.Valid {
		return list, err
	}
	if err := f.mem.rest(deadline); err != nil { // inspect may have had nothing to read: then the heads were not read yet
		return nil, err
	}
	for i, e := range f.leaving {
		switch head, err := f.headOf(i); {
		case err != nil:
			return nil, err
		case head.Version != format.Ref(e.slot).Version:
			// The object's memory is in use again, so the object was freed. Therefore the twin has
			// got the key meanwhile, with the value of this object or with a newer one.
			return nil, errChanged
		case head.Key == key:
			return append(list[:0], f.passer(e)), nil
		}
	}
	return list, nil
}

// passer returns the entry that a key had before a split began to move the key to the twin. e is
// the key's slot, which is leaving since then.
func (f *finder) passer(e entry) entry {
	return entry{e.at, f.space.super.Shape.Format.Left(e.slot, f.sight.hash.Fingerprint()), layout.Valid, true}
}

// readHeads adds to the batch READs of the heads of n objects. slot(i) is the value of the slot
// that names object i. It may also be a leaving value (Format.Leave), which says that the slot has
// named object i. The heads go to the part of the buffer for the object that the client writes
// (atOut).
func (f *finder) readHeads(n int, slot func(i int) layout.Slot) error {
	shape := &f.space.super.Shape
	for i := range n {
		r := shape.Format.Ref(slot(i))
		if r.Units = max(1, r.Units); !shape.Holds(r) {
			f.mem.drop()
			return errDirectory
		}
		server, off := f.space.replica(r.Server, r.Place)
		f.mem.read(server, off, atOut+layout.HeadLen*i, layout.HeadLen)
	}
	return nil
}

// headOf returns the head of object i that readHeads has read.
func (f *finder) headOf(i int) (layout.Head, error) {
	b, err := f.mem.bytes(f.scratch, atOut+layout.HeadLen*i, layout.HeadLen)
	if err != nil {
		return layout.Head{}, err
	}
	f.scratch = b
	return layout.ParseHead(b), nil
}
