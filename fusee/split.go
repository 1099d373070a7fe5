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
	sliceRTTs = 4
	// pauseRTTs bounds the round trips of an operation together with those that it spends on a split. An
	// INSERT that leaves fewer empty slots than urgentRoom in the buckets of its key spends all of them.
	pauseRTTs  = 10
	urgentRoom = 5
	// groupsAtOnce is how many groups of buckets a client works on at a time. It looks at groupsAhead
	// further ones, which are perhaps settled.
	groupsAtOnce = 3
	groupsAhead  = 16
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
	// Groups before next are settled, modulo their number, so many as done says. groups are those on which
	// the client works; none: it chooses some. ahead are those behind them.
	next, done    int
	groups, ahead []int
	moves         []move
	// blocked: other clients must change slots first, and the groups are worked on again. held: that
	// showed in the last step. pending is a slot with an object that is pending. suspect is a value whose
	// client has not gone on since a time.
	blocked          bool
	held             bool
	pending, suspect layout.Slot
	since            clock.Time
	asked            clock.Time
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
	// flip makes buckets moving that are not settled, and reads them.
	flip task = iota
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

// costs returns how many round trips a task takes if no other client interferes. Keys that are taken
// from the subtable are absent until they are in the twin: so vacate begins only if there is time for
// plant as well.
func (c *grower) costs(t task) int {
	backups := min(1, len(c.backups()))
	return [...]int{flip: 1 + backups, inspect: 1, vacate: 2 + 2*backups, plant: 1 + backups, clean: 1 + backups, settle: 1 + backups, finish: 1 + backups}[t]
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

// assist works on the client's split behind an operation that has succeeded: whatever becomes of the
// split, the operation has. An operation that took long works less.
func (c *grower) assist(urgent bool, deadline clock.Time) {
	rtts := sliceRTTs
	if urgent {
		rtts = pauseRTTs
	}
	_ = c.advance(min(rtts, pauseRTTs-c.cost.RTTs), deadline)
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
	for c.split != nil && (all || c.split.does != flip || len(c.split.groups) > 0) {
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
		flip: c.flipGroups, inspect: c.inspectGroups, vacate: c.vacateGroups, plant: c.plantGroups, clean: c.cleanGroups, settle: c.settleGroups, finish: c.finishSplit,
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
	shape := &c.super.Shape
	s.ahead = s.ahead[:0]
	if len(s.groups) == 0 {
		for i := range min(groupsAtOnce+groupsAhead, shape.Groups-s.done) {
			g := (s.next + i) % shape.Groups
			if i < groupsAtOnce {
				s.groups = append(s.groups, g)
			} else {
				s.ahead = append(s.ahead, g)
			}
		}
	}
	if len(s.groups) == 0 {
		s.does = finish
		return nil
	}
	open, moves, _ := s.heads()
	s.asked = c.rt.Now()
	if err := c.head(s, open, moves, deadline, func() { c.readGroups(s) }); err != nil {
		return err
	}
	s.moves, s.blocked, s.pending = s.moves[:0], false, 0
	work := s.groups[:0]
	for n, g := range slices.Concat(s.groups, s.ahead) {
		at, err := c.stageOf(s, groupIn(n))
		switch {
		case err != nil:
			return err
		case at == settled:
			s.pass(g, shape.Groups)
		case n < groupsAtOnce:
			work = append(work, g)
			err = c.listGroup(s, g, n)
		}
		if err != nil {
			return err
		}
	}
	if s.groups = work; len(work) > 0 {
		s.does = inspect
	}
	return nil
}

// pass notes that a group is settled.
func (s *split) pass(group, groups int) {
	if group == s.next && s.done < groups {
		s.next, s.done = (s.next+1)%groups, s.done+1
	}
}

// listGroup lists the slots of a group that name objects, or have named them.
func (c *grower) listGroup(s *split, group, n int) (err error) {
	shape := &c.super.Shape
	if c.scratch, err = c.bytes(c.scratch, groupIn(n), layout.GroupLen); err != nil {
		return err
	}
	for i := range groupSlots {
		off := layout.GroupSlot(i)
		e := entry{at: shape.GroupAt(s.subtable, group) + uint64(off), slot: layout.Slot(binary.LittleEndian.Uint64(c.scratch[off:]))}
		if left := shape.Format.Leaving(e.slot); left || !shape.Format.Empty(e.slot) {
			s.moves = append(s.moves, move{entry: e, left: left})
		}
	}
	return nil
}

// groupIn is where group n of the work is in the buffer.
func groupIn(n int) int { return atIn + n*layout.GroupLen }

// readGroups adds READs of the groups to the batch.
func (c *grower) readGroups(s *split) {
	for n, g := range slices.Concat(s.groups, s.ahead) {
		c.read(c.root(), c.super.Shape.GroupAt(s.subtable, g), groupIn(n), layout.GroupLen)
	}
}

// inspectGroups reads the marks, versions and keys of the objects. An object with the version of its slot
// has the key that the slot had when it was read, behind the flip. So a key that remains may change its
// slot as often as it likes: no key that moves comes there. A key that moves is taken away by the next
// PUT (see Client.update).
func (c *grower) inspectGroups(s *split, deadline clock.Time) error {
	if err := c.readKeys(s.moves, deadline); err != nil {
		return err
	}
	list := s.moves[:0]
	for i, m := range s.moves {
		head, err := c.headOf(i)
		if err != nil {
			return err
		}
		h := layout.HashOf(head.Key)
		m.fingerprint = h.Fingerprint()
		switch {
		case m.left:
			list = append(list, m)
		case head.Version != c.super.Shape.Format.Ref(m.slot).Version:
			s.blocked = true // the slot has changed, and its object is reused
		case !h.Moves(s.depth):
		case head.Mark == layout.Valid:
			list = append(list, m)
		default: // its client shows it or withdraws it
			s.blocked, s.pending = true, m.slot
		}
	}
	s.moves = list
	s.does = vacate
	return nil
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
		c.read(server, off, atIn+layout.HeadLen*i, layout.HeadLen)
	}
	if len(list) == 0 {
		return nil
	}
	return c.do(deadline)
}

// headOf is the head of object i that readKeys has read.
func (c *grower) headOf(i int) (layout.Head, error) {
	b, err := c.bytes(c.scratch, atIn+layout.HeadLen*i, layout.HeadLen)
	if err != nil {
		return layout.Head{}, err
	}
	c.scratch = b
	return layout.ParseHead(b), nil
}

// suspects recovers the client that has begun a change of a slot and has not gone on for the lease. It
// is never a mover, because all of them write the same value.
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

// vacateGroups takes the keys that move from the subtable.
func (c *grower) vacateGroups(s *split, deadline clock.Time) error {
	var some []move
	list := s.moves[:0]
	for _, m := range s.moves {
		if m.left {
			list = append(list, m)
			continue
		}
		m.to = c.super.Shape.Format.Leave(m.slot)
		some = append(some, m)
	}
	if err := c.replaceChunks(some, deadline); err != nil {
		return err
	}
	suspect := s.pending
	for _, m := range some {
		if m.left = m.w.State() == snapshot.Won; m.left {
			list = append(list, m)
			continue
		}
		if s.blocked = true; suspect == 0 && m.w.State() == snapshot.Waiting {
			suspect = layout.Slot(m.w.Winner())
		}
	}
	s.moves = list
	s.does = plant
	return c.suspects(s, suspect, deadline)
}
