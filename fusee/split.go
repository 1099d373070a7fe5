package fusee

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/fusee/snapshot"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// splitRoom: an INSERT that leaves fewer empty slots in the buckets of its key begins a split.
	splitRoom = 9
	// sliceRTTs is how many round trips an operation spends on a split on which its client works.
	sliceRTTs = 3
	// groupsAtOnce is how many groups of buckets a client works on at a time.
	groupsAtOnce = 2
	groupSlots   = 3 * layout.BucketSlots
)

// grower splits subtables.
type grower struct {
	changer
	// split is the split on which this client works; nil: none.
	split *split
}

// split is a client's work on the split of a subtable. Any number of clients may work on one: all
// that they write are CASes from a value that never comes back, to a value that is the same for all
// of them. So none of them can do harm, however late, and none has to wait for another one.
type split struct {
	subtable, twin int
	depth          int
	does           task
	// Groups before next are settled, modulo their number, so many as done says.
	next, done int
	groups     []int
	moves      []move
	// others are slots of keys that remain, as they were when the objects were read.
	others []entry
	// blocked: other clients must change slots first, and the groups are worked on again. held: that
	// showed in the last step. suspect is the slot of a client that has not gone on since a time.
	blocked bool
	held    bool
	suspect layout.Slot
	since   clock.Time
	asked   clock.Time
}

// move is a key that is moved: the offset of its slot in the subtable, the slot, and its fingerprint.
type move struct {
	entry
	fingerprint byte
	// to is what the slot becomes.
	to layout.Slot
	// left: the subtable has the slot no more.
	left   bool
	w      snapshot.Writer
	action snapshot.Action
	// words are where the values are that the operations of the batch find.
	words []int
}

// task is what a client does next for a split.
type task uint8

const (
	// scan looks for groups that are not settled.
	scan task = iota
	// flip makes buckets moving, and reads them.
	flip
	// inspect reads the keys.
	inspect
	// vacate takes keys that move from the subtable.
	vacate
	// plant puts them into the twin.
	plant
	// clean makes their slots in the subtable empty.
	clean
	// settle makes buckets settled.
	settle
	// finish ends the split.
	finish
)

// costs returns how many round trips a task takes if no other client interferes.
func (c *grower) costs(t task) int {
	backups := min(1, len(c.backups()))
	return [...]int{scan: 1, flip: 1 + backups, inspect: 1, vacate: 1 + backups, plant: 1 + backups, clean: 1 + backups, settle: 1 + backups, finish: 1 + backups}[t]
}

// begins starts a split of a subtable, if its entry is still e, and joins it. The error kv.ErrFull
// means that there is no room for another subtable.
func (c *grower) begins(subtable int, e layout.Entry, deadline clock.Time) error {
	if _, ok := c.super.Shape.Twin(subtable, e.Depth); !ok {
		return kv.ErrFull
	}
	return c.enter(subtable, e, layout.Entry{Depth: e.Depth, Splitting: true}, deadline)
}

// enter changes the entry of a subtable, and remembers what it is then.
func (c *grower) enter(subtable int, from, to layout.Entry, deadline clock.Time) error {
	at := c.super.Shape.EntryAt(subtable)
	for _, server := range c.backups() {
		c.swap(server, at, from.Word(), to.Word())
	}
	if len(c.batch) > 0 {
		if err := c.do(deadline); err != nil {
			return err
		}
	}
	c.swap(c.root(), at, from.Word(), to.Word())
	return c.reread(subtable, deadline)
}

// reread reads the entry of a subtable, behind what is in the batch.
func (c *grower) reread(subtable int, deadline clock.Time) error {
	c.read(c.root(), c.super.Shape.EntryAt(subtable), atIn, 8)
	if err := c.do(deadline); err != nil {
		return err
	}
	return c.learn(subtable, atIn)
}

// joins has the client work on the split of a subtable, beginning with the groups of a key.
func (c *grower) joins(v *sight) {
	e := c.dir.At(v.subtable)
	if c.split != nil || !e.Splitting {
		return
	}
	s := &split{subtable: v.subtable, depth: e.Depth, does: flip}
	s.twin, _ = c.super.Shape.Twin(v.subtable, e.Depth)
	for i := range v.old {
		s.groups = append(s.groups, v.old[i].main/2)
	}
	if s.groups[0] == s.groups[1] {
		s.groups = s.groups[:1]
	}
	s.next = s.groups[0]
	c.split = s
}

// finishAll works on all splits of subtables until they have ended.
func (c *grower) finishAll(deadline clock.Time) error {
	if err := c.loadDirectory(deadline); err != nil {
		return err
	}
	for n := range c.super.Shape.Subtables {
		if !c.dir.Uses(&c.super.Shape, n) {
			continue
		}
		if err := c.startsBegun(n, deadline); err != nil {
			return err
		}
		e := c.dir.At(n)
		if !e.Splitting {
			continue
		}
		twin, _ := c.super.Shape.Twin(n, e.Depth)
		c.split = &split{subtable: n, twin: twin, depth: e.Depth}
		if err := c.complete(true, deadline); err != nil {
			return err
		}
	}
	return nil
}

// startsBegun begins the split of a subtable that a client has begun in a backup alone.
func (c *grower) startsBegun(subtable int, deadline clock.Time) error {
	e := c.dir.At(subtable)
	next := layout.Entry{Depth: e.Depth, Splitting: true}
	for _, server := range c.backups() {
		word, err := c.slotAt(server, c.super.Shape.EntryAt(subtable), deadline)
		if err != nil {
			return err
		}
		if !e.Splitting && uint64(word) == next.Word() {
			return c.enter(subtable, e, next, deadline)
		}
	}
	return nil
}

// advance works on the client's split, for at most that number of round trips.
func (c *grower) advance(rtts int, deadline clock.Time) error {
	from := c.cost.RTTs
	for c.split != nil && c.cost.RTTs-from+c.costs(c.split.does) <= rtts {
		if err := c.step(deadline); err != nil {
			return err
		}
		if c.split != nil && c.split.held {
			return nil
		}
	}
	return nil
}

// complete works on the client's split until it has ended, or until its groups are settled.
func (c *grower) complete(all bool, deadline clock.Time) error {
	for c.split != nil && (all || c.split.does != scan) {
		if err := c.step(deadline); err != nil {
			return err
		}
		if c.rt.Now() >= deadline {
			return kv.TimedOut(errStale)
		}
		if c.split != nil && c.split.held {
			c.rt.Sleep(poll)
		}
	}
	return nil
}

// step does the next task of the client's split.
func (c *grower) step(deadline clock.Time) error {
	s := c.split
	s.held = false
	err := [...]func(*split, clock.Time) error{
		scan: c.scanGroups, flip: c.flipGroups, inspect: c.inspectGroups, vacate: c.vacateGroups, plant: c.plantGroups, clean: c.cleanGroups, settle: c.settleGroups, finish: c.finishSplit,
	}[s.does](s, deadline)
	if errors.Is(err, errStale) { // the split has ended
		c.split = nil
		return c.reread(s.subtable, deadline)
	}
	return err
}

// heads are the headers of a bucket before, while and after its keys are moved.
func (s *split) heads() (open, moving, settled layout.Header) {
	n := uint32(s.subtable)
	return layout.Header{Depth: s.depth, Prefix: n}, layout.Header{Depth: s.depth + 1, Prefix: n, Moving: true}, layout.Header{Depth: s.depth + 1, Prefix: n}
}

// scanGroups looks for groups that are not settled.
func (c *grower) scanGroups(s *split, deadline clock.Time) error {
	shape := &c.super.Shape
	n := min(maxOps, shape.Groups-s.done)
	for i := range n {
		c.read(c.root(), shape.GroupAt(s.subtable, (s.next+i)%shape.Groups), atIn+i*layout.GroupLen, layout.GroupLen)
	}
	if n == 0 {
		s.does = finish
		return nil
	}
	if err := c.do(deadline); err != nil {
		return err
	}
	s.groups = s.groups[:0]
	for i := range n {
		at, err := c.stageOf(s, atIn+i*layout.GroupLen)
		if err != nil {
			return err
		}
		if at != settled && len(s.groups) < groupsAtOnce {
			s.groups = append(s.groups, (s.next+i)%shape.Groups)
		}
		if len(s.groups) == 0 {
			s.done++
		}
	}
	s.next = (s.next + n) % shape.Groups
	if len(s.groups) > 0 {
		s.does, s.next = flip, s.groups[0]
	}
	return nil
}

// stageOf is the earliest stage of the buckets of a group that was read.
func (c *grower) stageOf(s *split, from int) (least stage, err error) {
	v := sight{subtable: s.subtable, entry: layout.Entry{Depth: s.depth, Splitting: true}}
	least = settled
	for at := from; at < from+layout.GroupLen; at += layout.BucketLen {
		if c.scratch, err = c.bytes(c.scratch, at, 8); err != nil {
			return least, err
		}
		var h layout.Header
		if err := h.Parse(c.scratch); err != nil {
			return least, errors.Join(errDirectory, err)
		}
		one, ok := v.state(h)
		if !ok {
			return least, errStale
		}
		least = min(least, one)
	}
	return least, nil
}

// head changes the headers of the groups in all replicas of the index, the primary last.
func (c *grower) head(s *split, from, to layout.Header, deadline clock.Time, behind func()) error {
	swap := func(server int) {
		for _, g := range s.groups {
			for i := range 3 {
				c.swap(server, c.super.Shape.GroupAt(s.subtable, g)+uint64(i)*layout.BucketLen, from.Word(), to.Word())
			}
		}
	}
	for _, server := range c.backups() {
		if swap(server); c.room() < 3*groupsAtOnce {
			if err := c.do(deadline); err != nil {
				return err
			}
		}
	}
	if len(c.batch) > 0 {
		if err := c.do(deadline); err != nil {
			return err
		}
	}
	swap(c.root())
	behind()
	return c.do(deadline)
}

// flipGroups makes the buckets of the groups moving. From now on no key that moves is inserted there:
// an INSERT reads the headers again behind its CAS. So the keys that are read behind the flip are all
// that have to be moved; others of them are pending, and will be withdrawn.
func (c *grower) flipGroups(s *split, deadline clock.Time) error {
	open, moves, _ := s.heads()
	shape := &c.super.Shape
	s.asked = c.rt.Now()
	if err := c.head(s, open, moves, deadline, func() { c.readGroups(s) }); err != nil {
		return err
	}
	s.moves, s.others, s.blocked = s.moves[:0], s.others[:0], false
	for n, g := range s.groups {
		if _, err := c.stageOf(s, groupIn(n)); err != nil {
			return err
		}
		var err error
		if c.scratch, err = c.bytes(c.scratch, groupIn(n), layout.GroupLen); err != nil {
			return err
		}
		for i := range groupSlots {
			off := layout.GroupSlot(i)
			e := entry{at: shape.GroupAt(s.subtable, g) + uint64(off), slot: layout.Slot(binary.LittleEndian.Uint64(c.scratch[off:]))}
			if left := shape.Format.Leaving(e.slot); left || !shape.Format.Empty(e.slot) {
				s.moves = append(s.moves, move{entry: e, left: left})
			}
		}
	}
	s.does = inspect
	return nil
}

// groupIn is where group n of the work is in the buffer.
func groupIn(n int) int { return atIn + n*layout.GroupLen }

// readGroups adds READs of the groups to the batch.
func (c *grower) readGroups(s *split) {
	for n, g := range s.groups {
		c.read(c.root(), c.super.Shape.GroupAt(s.subtable, g), groupIn(n), layout.GroupLen)
	}
}

// objectHead is how many bytes of an object say its mark and its key.
const objectHead = 16

// inspectGroups reads the marks and keys of the objects. What they say is right if the slots are still
// the same afterwards (see vacateGroups).
func (c *grower) inspectGroups(s *split, deadline clock.Time) error {
	if err := c.readKeys(s.moves, deadline); err != nil {
		return err
	}
	list := s.moves[:0]
	s.others = s.others[:0]
	var suspect layout.Slot
	for i, m := range s.moves {
		b, err := c.bytes(nil, atIn+objectHead*i, objectHead)
		if err != nil {
			return err
		}
		h := layout.HashOf(binary.LittleEndian.Uint64(b[8:]))
		m.fingerprint = h.Fingerprint()
		switch {
		case m.left:
			list = append(list, m)
		case !h.Moves(s.depth):
			s.others = append(s.others, m.entry)
		case layout.Mark(b[0]) == layout.Valid:
			list = append(list, m)
		default: // its client shows it or withdraws it
			s.blocked, suspect = true, m.slot
		}
	}
	s.moves = list
	s.does = vacate
	return c.suspects(s, suspect, deadline)
}

// readKeys reads the beginnings of the objects of some slots.
func (c *grower) readKeys(list []move, deadline clock.Time) error {
	shape := &c.super.Shape
	for i, m := range list {
		r := shape.Format.Ref(m.slot)
		if r.Units = max(1, r.Units); !shape.Holds(r) {
			c.drop()
			return errDirectory
		}
		server, off := c.replica(r.Server, r.Place)
		c.read(server, off, atIn+objectHead*i, objectHead)
	}
	if len(list) == 0 {
		return nil
	}
	return c.do(deadline)
}

// suspects recovers the client that has made a slot and has not gone on for the lease.
func (c *grower) suspects(s *split, slot layout.Slot, deadline clock.Time) error {
	switch {
	case slot == 0:
		return nil
	case slot != s.suspect:
		s.suspect, s.since = slot, c.rt.Now()
		return nil
	case s.asked < s.since.Add(c.cfg.Lease):
		return nil
	}
	s.suspect = 0
	return c.recoverOwner(slot, deadline)
}

// vacateGroups takes the keys that move from the subtable, and reads the groups again.
func (c *grower) vacateGroups(s *split, deadline clock.Time) error {
	open := s.moves[:0:0]
	for _, m := range s.moves {
		if !m.left {
			open = append(open, m)
		}
	}
	var suspect layout.Slot
	for i := range open {
		open[i].to = c.super.Shape.Format.Leave(open[i].slot)
	}
	again := func() { c.readGroups(s) }
	size := max(1, (maxOps-groupsAtOnce)/max(1, len(c.backups())))
	for some := range slices.Chunk(open, size) {
		if err := c.replaceAll(some, again, deadline); err != nil {
			return err
		}
	}
	if len(open) == 0 {
		if again(); len(c.batch) > 0 {
			if err := c.do(deadline); err != nil {
				return err
			}
		}
	}
	left := map[uint64]*move{}
	for i := range open {
		m := &open[i]
		left[m.at] = m
		if m.left = m.w.State() == snapshot.Won; !m.left {
			s.blocked = true
			if w := layout.Slot(m.w.Winner()); m.w.State() == snapshot.Waiting && !c.super.Shape.Format.Leaving(w) {
				suspect = w
			}
		}
	}
	list := s.moves[:0]
	for _, m := range s.moves {
		if other := left[m.at]; other != nil {
			m = *other
		}
		if m.left {
			list = append(list, m)
		}
	}
	s.moves = list
	for _, e := range s.others {
		same, err := c.same(s, e)
		if err != nil {
			return err
		}
		s.blocked = s.blocked || !same
	}
	s.does = plant
	return c.suspects(s, suspect, deadline)
}
