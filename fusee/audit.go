package fusee

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// maxDefects is how many defects Audit describes at most.
const maxDefects = 20

type Report struct {
	// Keys is how many keys exist. Slots is how many slots the index has.
	Keys  int `json:"keys"`
	Slots int `json:"slots"`
	// Subtables is how many subtables the index has. Splitting is how many of them are being split.
	Subtables int `json:"subtables"`
	Splitting int `json:"splitting"`
	// Unfinished is how many changes clients have begun and have not finished. Each of them shows
	// in one of these ways: the replicas of a slot, a bucket header or a word of the directory
	// differ; or an inserted object is still pending; or a split moves a key, which is not in its
	// new slot yet. Clients at work leave such changes for some round trips; clients that have died
	// leave them until they are recovered.
	Unfinished int `json:"unfinished"`
	// Members are the servers that belong to the store. Filling are servers that have come back
	// after a crash, and that a master is about to make members again. Only Client.Audit sets
	// Filling.
	Members []int `json:"members"`
	Filling []int `json:"filling,omitempty"`
	// Taken is, for each server, how many blocks belong to clients or were left by them. Blocks is
	// how many blocks a server has.
	Taken  []int `json:"taken"`
	Blocks int   `json:"blocks"`
	// Left is how many of the taken blocks have no owner, because their clients have left them to
	// other clients. Owners is, by client number, how many blocks the client owns.
	Left   int            `json:"left"`
	Owners map[uint32]int `json:"owners,omitempty"`
	// Defects describes slots and other parts that are wrong, at most 20.
	Defects []string `json:"defects,omitempty"`
}

// Reader is a function that reads n bytes at offset off in the region of a memory server. The bytes
// are valid until the next call.
type Reader func(server int, off uint64, n int) ([]byte, error)

type auditor struct {
	layout.Superblock
	read Reader
	out  Report
	dir  layout.Directory
	// uses are the block tables, by server. copies[s][j], for a backup area j of server s, is the
	// table with copies of words from another server's block table.
	uses   [][]layout.BlockUse
	copies [][][]layout.BlockUse
	// where has the offset of the slot of each key that was found.
	where  map[uint64]uint64
	object layout.Object
	view   layout.View
	// index are the members that have a replica of the index.
	index []int
}

// Audit reads a whole store and checks it. In a valid store, every slot of the index names an
// object that is complete in all its replicas and whose key belongs in the slot's bucket; no key
// has two slots; and the replicas of the index are equal. Each such object is in a block that a
// client owns or has left, and that has objects of this length. The object's version is not greater
// than the block's. Defects are in the report; the error is one that read has returned, or says
// that no server has the index. Clients should not change the store meanwhile. From servers that
// are no longer members (layout.View), Audit reads only the views.
func Audit(super layout.Superblock, read Reader) (Report, error) {
	var view layout.View
	for i := range super.Shape.Servers {
		b, err := read(i, layout.ViewWord, 8)
		if err != nil {
			return Report{}, err
		}
		if v := layout.View(binary.LittleEndian.Uint64(b)); v.Epoch() > view.Epoch() {
			view = v
		}
	}
	return audit(super, view, read)
}

// audit does what Audit does, for a store whose view is known.
func audit(super layout.Superblock, view layout.View, read Reader) (Report, error) {
	a := &auditor{Superblock: super, read: read, where: make(map[uint64]uint64), view: view}
	a.out.Members = []int{}
	for i := range super.Shape.Servers {
		if !view.Has(i) {
			continue
		}
		a.out.Members = append(a.out.Members, i)
		if i < super.Shape.IndexReplicas {
			a.index = append(a.index, i)
		}
	}
	if len(a.index) == 0 {
		return a.out, errGone
	}
	if err := a.views(); err != nil {
		return a.out, err
	}
	a.out.Blocks, a.out.Owners = super.Shape.Blocks, make(map[uint32]int)
	n := super.Shape.Servers
	a.uses, a.copies, a.out.Taken = make([][]layout.BlockUse, n), make([][][]layout.BlockUse, n), make([]int, n)
	for i := range n {
		if err := a.blocks(i); err != nil {
			return a.out, err
		}
	}
	words, err := a.all(a.index[0], super.Shape.EntryAt(0), 8*super.Shape.Subtables)
	if err != nil {
		return a.out, err
	}
	if err := a.dir.Read(&super.Shape, words); err != nil {
		a.defect("%v", err)
		return a.out, nil
	}
	if err := a.directories(words); err != nil {
		return a.out, err
	}
	for n := range super.Shape.Subtables {
		if !a.dir.Uses(&super.Shape, n) {
			if err := a.unused(n); err != nil {
				return a.out, err
			}
			continue
		}
		if a.out.Subtables++; a.dir.At(n).Splitting {
			a.out.Splitting++
		}
		if err := a.subtable(n); err != nil {
			return a.out, err
		}
	}
	return a.out, nil
}

// views checks that all members have the same view, and that it is settled.
func (a *auditor) views() error {
	for _, i := range a.out.Members {
		b, err := a.read(i, layout.ViewWord, 8)
		if err != nil {
			return err
		}
		if v := layout.View(binary.LittleEndian.Uint64(b)); v != a.view || v.State() != layout.Settled {
			a.defect("server %d has the view %#x, which is not settled or not that of the others, %#x", i, uint64(v), uint64(a.view))
		}
	}
	return nil
}

func (a *auditor) defect(format string, args ...any) {
	if len(a.out.Defects) < maxDefects {
		a.out.Defects = append(a.out.Defects, fmt.Sprintf(format, args...))
	}
}

// auditPiece is the number of bytes that one call of read reads.
const auditPiece = 16 << 10

// all reads n bytes, if necessary by several calls of read.
func (a *auditor) all(server int, off uint64, n int) ([]byte, error) {
	out := make([]byte, 0, n)
	for n > len(out) {
		b, err := a.read(server, off+uint64(len(out)), min(auditPiece, n-len(out)))
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// blocks reads the block tables of a server, and counts its taken and left blocks.
func (a *auditor) blocks(server int) error {
	if !a.view.Has(server) {
		return nil
	}
	uses, err := a.table(server, 0)
	if err != nil {
		return err
	}
	copies := make([][]layout.BlockUse, a.Shape.Replicas)
	for j := 1; j < a.Shape.Replicas; j++ {
		if copies[j], err = a.table(server, j); err != nil {
			return err
		}
	}
	a.uses[server], a.copies[server] = uses, copies
	for _, u := range uses {
		if u != 0 {
			a.out.Taken[server]++
		}
		switch {
		case u.Left():
			a.out.Left++
		case u != 0:
			a.out.Owners[u.Client()]++
		}
	}
	return nil
}

// table reads the block table of an area of a server.
func (a *auditor) table(server, area int) ([]layout.BlockUse, error) {
	table, err := a.all(server, a.Shape.BlockTable(area), 8*a.Shape.Blocks)
	uses := make([]layout.BlockUse, len(table)/8)
	for i := range uses {
		uses[i] = layout.BlockUse(binary.LittleEndian.Uint64(table[8*i:]))
	}
	return uses, err
}

func (a *auditor) subtable(n int) error {
	s := &a.Shape
	replicas := make([][]byte, len(a.index))
	for i, server := range a.index {
		var err error
		if replicas[i], err = a.all(server, s.SubtableAt(n), int(s.SubtableLen())); err != nil {
			return err
		}
	}
	v := sight{subtable: n, entry: a.dir.At(n)}
	a.heads(&v, replicas)
	for main := range s.Mains() {
		from := s.CombinedAt(n, main)
		at := int(from - s.SubtableAt(n))
		var b layout.Combined
		if err := b.Parse(main, replicas[0][at:at+layout.CombinedLen]); err != nil {
			a.defect("subtable %d, bucket %d: %v", n, main, err)
			continue
		}
		for _, h := range b.Heads {
			if _, ok := v.state(h); !ok {
				a.defect("subtable %d, bucket %d: depth %d and prefix %#x, want depth %d", n, main, h.Depth, h.Prefix, v.entry.Depth)
			}
		}
		for i, slot := range b.Slots {
			if main%2 == 1 && i/layout.BucketSlots != b.Main {
				// The two main buckets of a group share the overflow bucket. This slot is in the
				// overflow bucket, and was checked with the other main bucket.
				continue
			}
			a.out.Slots++
			off := layout.SlotAt(from, i)
			word := int(off - s.SubtableAt(n))
			for j := 1; j < len(replicas); j++ {
				if !bytes.Equal(replicas[j][word:word+8], replicas[0][word:word+8]) {
					a.out.Unfinished++
					break
				}
			}
			if err := a.slot(n, main/2, b.Heads[i/layout.BucketSlots], off, slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// slot checks one slot. off is its offset in the region of each memory server with a replica of the
// index. subtable and group say in which subtable and group of buckets it is; head is the header of
// its bucket.
func (a *auditor) slot(subtable, group int, head layout.Header, off uint64, slot layout.Slot) error {
	s := &a.Shape
	if s.Format.Leaving(slot) {
		if head.Moving && a.dir.At(subtable).Splitting {
			return a.moved(subtable, off)
		}
		a.defect("slot at %d: its key leaves subtable %d, but its bucket is not being split", off, subtable)
	}
	if s.Format.Empty(slot) {
		return nil
	}
	ref := s.Format.Ref(slot)
	if !s.Holds(ref) {
		a.defect("slot %#x at %d names no object", uint64(slot), off)
		return nil
	}
	if !a.view.Has(ref.Server) {
		// nothing to compare: the block table was lost with the server, and no client uses the
		// block now
	} else if u := a.uses[ref.Server][s.BlockOf(ref.Place)]; u.Units() != ref.Units || ref.Version > u.Version() || s.IndexOf(ref.Place, ref.Units) < 0 {
		a.defect("slot at %d: its object of %d units and version %d is in block %d of server %d, which has the use %#x", off, ref.Units, ref.Version,
			s.BlockOf(ref.Place), ref.Server, uint64(u))
	}
	pending := false
	for j := range s.Replicas {
		server, at := s.Replica(ref.Server, ref.Place, j)
		if !a.view.Has(server) {
			continue
		}
		if j > 0 {
			if u := a.copies[server][j][s.BlockOf(ref.Place)]; !u.Covers(ref.Units, ref.Version) {
				a.defect("slot at %d: its object of %d units and version %d is in block %d of server %d, of which the copy on server %d is %#x", off, ref.Units, ref.Version,
					s.BlockOf(ref.Place), ref.Server, server, uint64(u))
			}
		}
		b, err := a.all(server, at, ref.Units*layout.Unit)
		if err != nil {
			return err
		}
		if err := a.object.Parse(s.Format, b); err != nil || a.object.Version != ref.Version || a.object.Mark == layout.Invalid {
			a.defect("slot at %d: replica %d of its object, on server %d, has version %d and mark %d, want version %d: %v",
				off, j, server, a.object.Version, a.object.Mark, ref.Version, err)
			return nil
		}
		pending = pending || a.object.Mark == layout.Pending
	}
	key := a.object.Key
	h := layout.HashOf(key)
	one, two := s.Format.Buckets(h, s.Mains())
	if was, twice := a.where[key]; twice && !pending {
		a.defect("key %d has the slots at %d and %d", key, was, off)
	}
	if !head.Had(h) && !pending || one/2 != group && two/2 != group || h.Fingerprint() != ref.Fingerprint {
		a.defect("key %d is in subtable %d, group %d, which is not its own", key, subtable, group)
	}
	if pending {
		a.out.Unfinished++
		return nil
	}
	a.where[key] = off
	a.out.Keys++
	return nil
}

// directories compares the directories of the backups with that of the primary. A client that died
// may have begun or ended a split in the backups only. Such an entry counts as unfinished.
func (a *auditor) directories(primary []byte) error {
	s := &a.Shape
	for _, server := range a.index[1:] {
		words, err := a.all(server, s.EntryAt(0), len(primary))
		if err != nil {
			return err
		}
		for n := range s.Subtables {
			e := a.dir.At(n)
			next := layout.Entry{Depth: e.Depth, Splitting: true}
			if e.Splitting {
				next = layout.Entry{Depth: e.Depth + 1}
			}
			switch word := binary.LittleEndian.Uint64(words[8*n:]); word {
			case e.Word():
			case next.Word():
				a.out.Unfinished++
			default:
				a.defect("subtable %d: the directory of server %d has %#x, want %#x", n, server, word, e.Word())
			}
		}
	}
	return nil
}

// heads compares the bucket headers of the backups with those of the primary. They may differ only
// while a split changes them.
func (a *auditor) heads(v *sight, replicas [][]byte) {
	for j := 1; j < len(replicas); j++ {
		for at := 0; at < len(replicas[0]); at += layout.BucketLen {
			one := replicas[j][at : at+8]
			if bytes.Equal(one, replicas[0][at:at+8]) {
				continue
			}
			var h layout.Header
			err := h.Parse(one)
			if _, ok := v.state(h); err == nil && ok && v.entry.Splitting {
				a.out.Unfinished++
				continue
			}
			a.defect("subtable %d: the header at %d differs on server %d", v.subtable, at, a.index[j])
		}
	}
}

// unused checks that subtable n, which is not in use, is as Format has made it.
func (a *auditor) unused(n int) error {
	s := &a.Shape
	head := layout.Header{Depth: s.Begin(n).Depth, Prefix: uint32(n)}.Word()
	for _, server := range a.index {
		b, err := a.all(server, s.SubtableAt(n), int(s.SubtableLen()))
		if err != nil {
			return err
		}
		for at := 0; at < len(b); at += 8 {
			want := uint64(0)
			if at%layout.BucketLen == 0 {
				want = head
			}
			if word := binary.LittleEndian.Uint64(b[at:]); word != want {
				a.defect("subtable %d is not in use, and server %d has %#x at %d of it, want %#x", n, server, word, at, want)
			}
		}
	}
	return nil
}

// moved checks a leaving slot of a subtable that is being split; off is the slot's offset in the
// region. If the twin, the subtable to which the split moves keys, does not have the key yet, the
// slot counts as unfinished.
func (a *auditor) moved(subtable int, off uint64) error {
	s := &a.Shape
	twin, _ := s.Twin(subtable, a.dir.At(subtable).Depth)
	b, err := a.read(a.index[0], off+s.SubtableAt(twin)-s.SubtableAt(subtable), 8)
	if err == nil && binary.LittleEndian.Uint64(b) == 0 {
		a.out.Unfinished++
	}
	return err
}

// Audit reads and checks the store over the connections of this client: see the function Audit.
func (c *Client) Audit(deadline clock.Time) (Report, error) {
	if err := c.begin(deadline); err != nil {
		return Report{}, err
	}
	var out Report
	err := c.slots.following(deadline, func() (err error) {
		out, err = audit(c.space.super, c.mem.view, c.reader(deadline))
		return err
	})
	for i := range c.mem.links {
		if c.mem.view != 0 && !c.mem.view.Has(i) && c.mem.claimed(i, min(deadline, c.mem.rt.Now().Add(joinPatience))) {
			out.Filling = append(out.Filling, i)
		}
	}
	return out, err
}

// reader returns a Reader that uses the connections of this client.
func (c *Client) reader(deadline clock.Time) Reader {
	return func(server int, off uint64, n int) (_ []byte, err error) {
		c.index.scratch, err = c.mem.fetch(c.index.scratch, server, off, n, deadline)
		return c.index.scratch, err
	}
}
