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
	// splitRoom: an INSERT begins a split if it leaves fewer empty slots than this in the buckets
	// of its key, which have 28 at most.
	splitRoom = 9
	// sliceRTTs is how many round trips an operation spends on the client's split.
	sliceRTTs = 4
	// pauseRTTs is the largest number of round trips of an operation, including those that it
	// spends on a split. An INSERT uses all 10 for a split if it leaves fewer empty slots than
	// urgentRoom in the buckets of its key.
	pauseRTTs  = 10
	urgentRoom = 5
	// groupsAtOnce is how many groups of buckets a client splits at a time. In the same batch it
	// reads groupsAhead further groups, to skip those that other clients have split already.
	// groupSlots is how many slots a group has.
	groupsAtOnce = 3
	groupsAhead  = 16
	groupSlots   = 3 * layout.BucketSlots
)

// grower is the part of a client that splits subtables, so that the index grows.
type grower struct {
	mem   *memory
	space *space
	index *finder
	slots *changer
	// split is the split on which this client works, or nil.
	split *split
}

// split is a client's work on the split of a subtable. Any number of clients may work on the same
// split. They write only by CAS. The value that one of these CASes expects never occurs again after
// it was replaced, and the new value is the same for all clients. So a late CAS does no harm, and
// no client has to wait for another.
type split struct {
	subtable, twin int
	depth          int
	does           task
	// The groups of a subtable have numbers, modulo their count. In the `done` groups before group
	// `next`, the split has moved all keys that it must move: these groups are settled. groups are
	// the numbers of those on which the client works; if there are none, it chooses some. ahead are
	// further groups, which the client has read to find those that are settled. moves are the keys
	// in `groups` that the split moves.
	next, done    int
	groups, ahead []int
	moves         []move
	// blocked is true if other clients must change slots first, so that this client works on the
	// groups again later. held is true if the last step has found the groups blocked: then advance
	// stops, and complete pauses. pending is the value of a slot whose object is pending. suspect
	// is a value that another client wants to give to a slot: that client has made no progress
	// since the time `since`. asked is when the last task `flip` began.
	blocked          bool
	held             bool
	pending, suspect layout.Slot
	since            clock.Time
	asked            clock.Time
}

// move is a key that a split moves, or a slot that may have such a key: the slot in the subtable,
// and the key's fingerprint.
type move struct {
	entry
	fingerprint byte
	// to is the value that replaceAll gives the slot. w decides whether it wins, and action is what
	// w must do next.
	to layout.Slot
	// left is true if the slot in the subtable is leaving already.
	left   bool
	w      snapshot.Writer
	action snapshot.Action
	// words has, for each operation of the move in flight, the offset in the buffer to which the
	// NIC writes the value that the operation finds.
	words []int
}

// task is what a client does next for a split. The tasks follow one another for each set of groups;
// see the package comment.
type task uint8

const (
	// flip marks the headers of buckets as moving, so that clients insert no key there that the
	// split moves, and then reads the buckets.
	flip task = iota
	// inspect reads the heads of the objects (their marks, versions and keys), which show the keys
	// that move.
	inspect
	// vacate swaps a leaving value into the slot of each key that moves: such a value counts as
	// empty, but still says which object the slot has named.
	vacate
	// plant puts the keys into their slots in the twin, the subtable to which the split moves them.
	plant
	// clean replaces, in the slots that vacate made leaving, each value by one that counts as empty
	// and does not say which object the slot has named.
	clean
	// settle marks the headers of buckets as settled: all keys that the split moves are in the
	// twin.
	settle
	// finish ends the split, in the directory, when all groups are settled.
	finish
)

// costs returns how many round trips a task takes if no other client interferes. Between vacate and
// plant no slot names the objects of the keys, and clients find these keys only by reading heads of
// objects (finder.search). So the cost of vacate includes the cost of plant: advance begins vacate
// only if there is time for both.
func (c *grower) costs(t task) int {
	n := c.trips()
	return [...]int{flip: n, inspect: 1, vacate: 2 * n, plant: n, clean: n, settle: n, finish: n}[t]
}

// trips returns how many round trips it takes to change words in all replicas of the index.
func (c *grower) trips() int { return 1 + min(1, len(c.slots.backups())) }

// begins starts a split of a subtable whose entry is e. It changes nothing if the entry is another
// one by now. The error kv.ErrFull means that there is no room for another subtable.
func (c *grower) begins(subtable int, e layout.Entry, deadline clock.Time) error {
	if _, ok := c.space.super.Shape.Twin(subtable, e.Depth); !ok {
		return kv.ErrFull
	}
	return c.enter(subtable, e, layout.Entry{Depth: e.Depth, Splitting: true}, deadline)
}

// enter changes the entry of a subtable from `from` to `to` in the directories of all replicas of
// the index, and reads what the entry is then.
func (c *grower) enter(subtable int, from, to layout.Entry, deadline clock.Time) error {
	at := c.space.super.Shape.EntryAt(subtable)
	err := c.slots.onReplicas(deadline, func(server int) { c.mem.swap(server, at, from.Word(), to.Word()) })
	if err != nil {
		return err
	}
	return c.reread(subtable, deadline)
}

// reread adds a READ of a subtable's entry to the batch, executes the batch, and copies the entry
// to the client's copy of the directory.
func (c *grower) reread(subtable int, deadline clock.Time) error {
	c.mem.read(c.space.root(), c.space.super.Shape.EntryAt(subtable), atIn, 8)
	if err := c.mem.do(deadline); err != nil {
		return err
	}
	return c.space.learn(subtable, atIn)
}

// joins makes the client work on the split of the subtable of sight v, if there is one and the
// client works on no split yet. It begins with the groups that have the buckets of v.
func (c *grower) joins(v *sight) {
	e := c.space.dir.At(v.subtable)
	if c.split != nil || !e.Splitting {
		return
	}
	s := &split{subtable: v.subtable, depth: e.Depth, does: flip}
	s.twin, _ = c.space.super.Shape.Twin(v.subtable, e.Depth)
	for i := range v.old {
		s.groups = append(s.groups, v.old[i].main/2)
	}
	if s.groups[0] == s.groups[1] {
		s.groups = s.groups[:1]
	}
	s.next = s.groups[0]
	c.split = s
}

// finishAll works on all splits of subtables that have begun, until they have ended.
func (c *grower) finishAll(deadline clock.Time) error {
	if err := c.index.loadDirectory(deadline); err != nil {
		return err
	}
	for n := range c.space.super.Shape.Subtables {
		if !c.space.dir.Uses(&c.space.super.Shape, n) {
			continue
		}
		if err := c.startsBegun(n, deadline); err != nil {
			return err
		}
		e := c.space.dir.At(n)
		if !e.Splitting {
			continue
		}
		twin, _ := c.space.super.Shape.Twin(n, e.Depth)
		c.split = &split{subtable: n, twin: twin, depth: e.Depth}
		if err := c.complete(true, deadline); err != nil {
			return err
		}
	}
	return nil
}

// startsBegun begins the split of a subtable in all replicas of the directory, if a dead client has
// begun it in a backup only.
func (c *grower) startsBegun(subtable int, deadline clock.Time) error {
	e := c.space.dir.At(subtable)
	next := layout.Entry{Depth: e.Depth, Splitting: true}
	for _, server := range c.slots.backups() {
		word, err := c.space.slotAt(server, c.space.super.Shape.EntryAt(subtable), deadline)
		if err != nil {
			return err
		}
		if !e.Splitting && uint64(word) == next.Word() {
			return c.enter(subtable, e, next, deadline)
		}
	}
	return nil
}

// assist works on the client's split after an operation that has succeeded. An error of the split
// is ignored, because the operation has succeeded. After an operation that took many round trips,
// assist works less.
func (c *grower) assist(urgent bool, deadline clock.Time) {
	rtts := sliceRTTs
	if urgent {
		rtts = pauseRTTs
	}
	_ = c.advance(min(rtts, pauseRTTs-c.mem.cost.RTTs), deadline)
}

// advance works on the client's split for at most rtts round trips.
func (c *grower) advance(rtts int, deadline clock.Time) error {
	from := c.mem.cost.RTTs
	for c.split != nil && c.mem.cost.RTTs-from+c.costs(c.split.does) <= rtts {
		if err := c.step(deadline); err != nil {
			return err
		}
		if c.split != nil && c.split.held {
			return nil
		}
	}
	return nil
}

// complete works on the client's split until the groups on which the client works are settled or,
// if `all` is true, until the split has ended.
func (c *grower) complete(all bool, deadline clock.Time) error {
	for c.split != nil && (all || c.split.does != flip || len(c.split.groups) > 0) {
		if err := c.step(deadline); err != nil {
			return err
		}
		if c.mem.rt.Now() >= deadline {
			return kv.TimedOut(errStale)
		}
		if c.split != nil && c.split.held {
			c.mem.rt.Sleep(poll)
		}
	}
	return nil
}

// step executes the next task of the client's split. After an error the client does not know which of
// its CASes were executed, and the members may change. So it begins with the first task again, whose
// CASes find what is done already.
func (c *grower) step(deadline clock.Time) error {
	s := c.split
	s.held = false
	err := [...]func(*split, clock.Time) error{
		flip: c.flipGroups, inspect: c.inspectGroups, vacate: c.vacateGroups, plant: c.plantGroups, clean: c.cleanGroups, settle: c.settleGroups, finish: c.finishSplit,
	}[s.does](s, deadline)
	switch {
	case errors.Is(err, errStale): // another client has ended the split
		c.split = nil
		return c.space.learn(s.subtable, entryIn)
	case err != nil: // begin these groups again, with the values that their slots have then
		s.does, s.moves = flip, nil
	}
	return err
}

// heads returns the three headers that a bucket of the subtable has before, while and after its
// keys are moved.
func (s *split) heads() (open, moving, settled layout.Header) {
	n := uint32(s.subtable)
	return layout.Header{Depth: s.depth, Prefix: n}, layout.Header{Depth: s.depth + 1, Prefix: n, Moving: true}, layout.Header{Depth: s.depth + 1, Prefix: n}
}

// stageOf returns the earliest stage of the three buckets of a group, which was read to offset
// `from` of the buffer. errStale means that the split has ended.
func (c *grower) stageOf(s *split, from int) (least stage, err error) {
	v := sight{subtable: s.subtable, entry: layout.Entry{Depth: s.depth, Splitting: true}}
	least = settled
	for at := from; at < from+layout.GroupLen; at += layout.BucketLen {
		if c.index.scratch, err = c.mem.bytes(c.index.scratch, at, 8); err != nil {
			return least, err
		}
		var h layout.Header
		if err := h.Parse(c.index.scratch); err != nil {
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

// head changes the headers of the client's groups from `from` to `to` in all replicas of the index,
// the primary last. behind adds operations to the last batch, which are executed after the CASes on
// the primary.
func (c *grower) head(s *split, from, to layout.Header, deadline clock.Time, behind func()) error {
	err := c.slots.onReplicas(deadline, func(server int) {
		for _, g := range s.groups {
			for i := range 3 {
				c.mem.swap(server, c.space.super.Shape.GroupAt(s.subtable, g)+uint64(i)*layout.BucketLen, from.Word(), to.Word())
			}
		}
	})
	if err != nil {
		return err
	}
	behind()
	return c.mem.do(deadline)
}

// flipGroups marks the bucket headers of the groups as moving. After that no key that moves is
// inserted into these buckets: an INSERT reads the headers again after its CAS. So the slots that
// are read after the flip have all keys that must be moved. If a late INSERT puts a key there, its
// object is pending, and its client will withdraw it.
func (c *grower) flipGroups(s *split, deadline clock.Time) error {
	shape := &c.space.super.Shape
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
	s.asked = c.mem.rt.Now()
	err := c.head(s, open, moves, deadline, func() {
		c.readGroups(s)
		// The word of the directory shows whether the split has ended meanwhile.
		c.mem.read(c.space.root(), shape.EntryAt(s.subtable), entryIn, 8)
	})
	if err != nil {
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

// pass is called when a group is settled: all its keys that move are in the twin. If it is group
// number next, pass counts it as one of the `done` groups (see split). Otherwise pass does nothing:
// the group is found settled again when its turn comes. groups is the number of groups of the
// subtable.
func (s *split) pass(group, groups int) {
	if group == s.next && s.done < groups {
		s.next, s.done = (s.next+1)%groups, s.done+1
	}
}

// listGroup adds slots of a group to s.moves: those that name objects, and leaving slots. The
// buffer has the group at groupIn(n), to which the client has read it.
func (c *grower) listGroup(s *split, group, n int) (err error) {
	shape := &c.space.super.Shape
	if c.index.scratch, err = c.mem.bytes(c.index.scratch, groupIn(n), layout.GroupLen); err != nil {
		return err
	}
	for i := range groupSlots {
		off := layout.GroupSlot(i)
		e := entry{at: shape.GroupAt(s.subtable, group) + uint64(off), slot: layout.Slot(binary.LittleEndian.Uint64(c.index.scratch[off:]))}
		if left := shape.Format.Leaving(e.slot); left || !shape.Format.Empty(e.slot) {
			s.moves = append(s.moves, move{entry: e, left: left})
		}
	}
	return nil
}

// groupIn returns the offset in the buffer of the n-th group. The word of the directory is behind
// all groups, at entryIn.
func groupIn(n int) int { return atIn + n*layout.GroupLen }

const entryIn = atIn + (groupsAtOnce+groupsAhead)*layout.GroupLen

// readGroups adds READs of the groups to the batch.
func (c *grower) readGroups(s *split) {
	for n, g := range slices.Concat(s.groups, s.ahead) {
		c.mem.read(c.space.root(), c.space.super.Shape.GroupAt(s.subtable, g), groupIn(n), layout.GroupLen)
	}
}

// inspectGroups reads the marks, versions and keys of the objects, and so finds out which keys
// move. If an object has the version that its slot names, the object's key is the key that the slot
// had when it was read after the flip. A slot whose key stays need not be read again, however often
// clients change it: after the flip no key that moves gets into this slot. A key that moves is also
// moved by its next PUT (see Client.update).
func (c *grower) inspectGroups(s *split, deadline clock.Time) error {
	if err := c.index.readHeads(len(s.moves), func(i int) layout.Slot { return s.moves[i].slot }); err != nil {
		return err
	}
	if err := c.mem.rest(deadline); err != nil {
		return err
	}
	list := s.moves[:0]
	for i, m := range s.moves {
		head, err := c.index.headOf(i)
		if err != nil {
			return err
		}
		h := layout.HashOf(head.Key)
		m.fingerprint = h.Fingerprint()
		switch {
		case m.left:
			list = append(list, m)
		case head.Version != c.space.super.Shape.Format.Ref(m.slot).Version:
			s.blocked = true // the slot has changed, and its object is in use again
		case !h.Moves(s.depth):
		case head.Mark == layout.Valid:
			list = append(list, m)
		default:
			// An INSERT has not ended: its client will mark the object as valid, or withdraw it.
			s.blocked, s.pending = true, m.slot
		}
	}
	s.moves = list
	s.does = vacate
	return nil
}

// suspects recovers the client that has begun to change a slot to the value `slot`, if that client
// has made no progress for Config.Lease. The clients that move the key are never suspected: all of
// them write the same value, and any of them can complete the move.
func (c *grower) suspects(s *split, slot layout.Slot, deadline clock.Time) error {
	switch {
	case slot == 0:
		return nil
	case slot != s.suspect:
		s.suspect, s.since = slot, c.mem.rt.Now()
		return nil
	case s.asked < s.since.Add(c.mem.cfg.Lease):
		return nil
	}
	s.suspect = 0
	return c.slots.recoverOwner(slot, deadline)
}

// vacateGroups replaces, by CAS, the value of each slot whose key moves. The new value is the
// slot's leaving value (layout.Format.Leave): it counts as empty, but still says which object the
// slot has named.
func (c *grower) vacateGroups(s *split, deadline clock.Time) error {
	var some []move
	list := s.moves[:0]
	for _, m := range s.moves {
		if m.left {
			list = append(list, m)
			continue
		}
		m.to = c.space.super.Shape.Format.Leave(m.slot)
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
