package fusee

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/fusee/snapshot"
)

// repair makes the replicas of the index equal on the members of a view. No client is at work:
// their connections have ended.
//
// If the primary remains, its value of each slot counts, because it shows every change that was
// acknowledged. If the primary was lost, the backups decide, by the rules of SNAPSHOT. A value that
// was ever in the primary is in all backups, until one of them has the value of a later writer. So
// the choice of the rules undoes nothing that was acknowledged. A client that waits for an outcome
// finds it in the slot (see changer.resolve).
//
// If an object is pending and its first replica was on a lost server, repair withdraws the object:
// the block table that names its owner was lost, too. No other client has seen the object, because
// its owner marks the first replica as valid last.
type repair struct {
	slots *changer
	// same is true if the primary is on the same server as before the change of the members.
	same bool
	// patience is how long a server may take to answer.
	patience time.Duration
	// orphans are slots whose objects have their first replica on a lost server. words has one
	// piece of the index, as each replica of the index has it. list has the values that one word of
	// this piece has in the replicas.
	orphans []entry
	words   [][]byte
	list    []uint64
}

// repairPiece is how many bytes of each replica one READ reads.
const repairPiece = 16 << 10

func (r *repair) all() error {
	shape := &r.slots.space.super.Shape
	if err := r.words8(shape.EntryAt(0), 8*shape.Subtables, false); err != nil {
		return err
	}
	if err := r.slots.index.loadDirectory(r.slots.mem.rt.Now().Add(r.patience)); err != nil {
		return err
	}
	for n := range shape.Subtables {
		if !r.slots.space.dir.Uses(shape, n) { // no replica has a slot there
			continue
		}
		if err := r.words8(shape.SubtableAt(n), int(shape.SubtableLen()), true); err != nil {
			return err
		}
	}
	return nil
}

// words8 makes n bytes at offset `off` equal in all replicas of the index, word by word. slots is
// true if the bytes are buckets, which consist of slots.
func (r *repair) words8(off uint64, n int, slots bool) error {
	for n > 0 {
		some := min(n, repairPiece)
		if err := r.piece(off, some, slots); err != nil {
			return err
		}
		off, n = off+uint64(some), n-some
	}
	return nil
}

func (r *repair) piece(off uint64, n int, slots bool) error {
	for i, server := range r.slots.space.index {
		r.slots.mem.read(server, off, atIn+i*repairPiece, n)
	}
	if err := r.slots.mem.do(r.slots.mem.rt.Now().Add(r.patience)); err != nil {
		return err
	}
	r.words = r.words[:0]
	for i := range r.slots.space.index {
		b, err := r.slots.mem.bytes(nil, atIn+i*repairPiece, n)
		if err != nil {
			return err
		}
		r.words = append(r.words, b)
	}
	r.orphans = r.orphans[:0]
	for at := 0; at < n; at += 8 {
		r.list = r.list[:0]
		for _, b := range r.words {
			r.list = append(r.list, binary.LittleEndian.Uint64(b[at:]))
		}
		value := r.list[0] // the primary's value counts, if the primary remains
		if !r.same {
			value = snapshot.Decide(r.list)
		}
		if slices.ContainsFunc(r.list, func(v uint64) bool { return v != value }) {
			if err := r.set(off+uint64(at), value); err != nil {
				return err
			}
		}
		if ref := r.slots.space.super.Shape.Format.Ref(layout.Slot(value)); slots && at%layout.BucketLen != 0 && r.slots.space.super.Shape.Holds(ref) && !r.slots.mem.view.Has(ref.Server) {
			r.orphans = append(r.orphans, entry{at: off + uint64(at), slot: layout.Slot(value)})
		}
	}
	return r.withdraw()
}

// set writes a word at offset `off` of all replicas of the index.
func (r *repair) set(off, value uint64) error {
	if err := r.slots.mem.put(binary.LittleEndian.AppendUint64(nil, value), atLog); err != nil {
		return err
	}
	for _, server := range r.slots.space.index {
		r.slots.mem.write(server, off, atLog, 8)
	}
	return r.slots.mem.do(r.slots.mem.rt.Now().Add(r.patience))
}

// withdraw handles the orphans: slots whose object's first server is no longer a member. It empties
// the slots of pending objects, and marks valid objects as valid in all replicas.
func (r *repair) withdraw() error {
	for some := range slices.Chunk(r.orphans, maxOps/2) {
		for i, e := range some {
			ref := r.slots.space.super.Shape.Format.Ref(e.slot)
			server, off := r.slots.space.replica(ref.Server, ref.Place)
			r.slots.mem.read(server, off, atOut+8*i, 8)
		}
		if err := r.slots.mem.do(r.slots.mem.rt.Now().Add(r.patience)); err != nil {
			return err
		}
		marks, err := r.slots.mem.bytes(nil, atOut, 8*len(some))
		if err != nil {
			return err
		}
		for i, e := range some {
			if layout.Mark(marks[8*i]) != layout.Pending {
				if layout.Mark(marks[8*i]) == layout.Valid {
					// Clients may have read the object already, so it must be valid in all
					// replicas.
					if err := r.slots.showAll(r.slots.space.super.Shape.Format.Ref(e.slot), r.slots.mem.rt.Now().Add(r.patience)); err != nil {
						return err
					}
				}
				continue
			}
			if err := r.set(e.at, uint64(r.slots.space.super.Shape.Format.Emptied(r.slots.space.super.Shape.Format.Ref(e.slot)))); err != nil {
				return err
			}
		}
	}
	return nil
}
