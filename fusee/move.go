package fusee

import (
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/fusee/snapshot"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// replaceChunks calls replaceAll with as many moves at a time as fit into a batch.
func (c *grower) replaceChunks(list []move, deadline clock.Time) error {
	for some := range slices.Chunk(list, max(1, maxOps/max(1, len(c.slots.backups())))) {
		if err := c.replaceAll(some, deadline); err != nil {
			return err
		}
	}
	return nil
}

// replaceAll replaces the values of several slots (each move.slot by move.to) at the same time, by
// the rules of SNAPSHOT. If a slot gets another client's value instead, replaceAll does not wait
// until the primary has it.
//
// Several clients may replace one slot by the same value. If this value wins, all of them win, and
// all know it. If it does not win, all of them lose.
func (c *grower) replaceAll(list []move, deadline clock.Time) error {
	for i := range list {
		m := &list[i]
		m.w = snapshot.New(uint64(m.slot), uint64(m.to), len(c.slots.backups()))
		m.action = m.w.Begin()
	}
	for {
		for i := range list {
			c.propose(&list[i])
		}
		if len(c.mem.batch) == 0 {
			return nil
		}
		if err := c.mem.do(deadline); err != nil {
			return err
		}
		for i := range list {
			if err := c.answer(&list[i]); err != nil {
				return err
			}
		}
	}
}

// propose adds to the batch the operations that the Writer of a move asks for.
func (c *grower) propose(m *move) {
	m.words = m.words[:0]
	// A move writes no outcome: the log entry of the object belongs to the operation that has made
	// the object.
	if m.action == snapshot.Log {
		m.action = m.w.Logged()
	}
	switch {
	case m.w.State().Ended() || m.w.State() == snapshot.Waiting:
		m.action = snapshot.None
	case m.action == snapshot.SwapBackups:
		c.slots.swaps = m.w.Swaps(c.slots.swaps[:0])
		for _, s := range c.slots.swaps {
			m.words = append(m.words, c.mem.swap(c.slots.backups()[s.Backup], m.at, s.Compare, m.w.Value()))
		}
	case m.action == snapshot.SwapPrimary:
		m.words = append(m.words, c.mem.swap(c.space.root(), m.at, m.w.Old(), m.w.Value()))
	// This CAS changes nothing, because it replaces a value by the same value. It reads the slot,
	// and is handled like the other CASes.
	case m.action == snapshot.ReadPrimary:
		m.words = append(m.words, c.mem.swap(c.space.root(), m.at, m.w.Value(), m.w.Value()))
	}
}

// answer passes the values that the operations of a move have found to the Writer of the move.
func (c *grower) answer(m *move) error {
	c.slots.seen = c.slots.seen[:0]
	for _, at := range m.words {
		v, err := c.mem.fab.Word(at)
		if err != nil {
			return err
		}
		c.slots.seen = append(c.slots.seen, v)
	}
	switch m.action {
	case snapshot.SwapBackups:
		m.action = m.w.Backups(c.slots.seen)
	case snapshot.SwapPrimary, snapshot.ReadPrimary:
		m.action = m.w.Primary(c.slots.seen[0])
	case snapshot.None, snapshot.Log: // propose has added no operation for the move
	}
	return nil
}

// plantGroups puts the keys whose slots are leaving into the twin, the subtable to which the split
// moves them.
func (c *grower) plantGroups(s *split, deadline clock.Time) error {
	shape := &c.space.super.Shape
	shift := shape.SubtableAt(s.twin) - shape.SubtableAt(s.subtable)
	if err := c.slots.plant(s.moves, shift, deadline); err != nil {
		return err
	}
	s.does = clean
	return nil
}

// cleanGroups empties the leaving slots, because a later split of the subtable must not take them
// for slots whose keys it moves itself.
func (c *grower) cleanGroups(s *split, deadline clock.Time) error {
	format := c.space.super.Shape.Format
	for i := range s.moves {
		m := &s.moves[i]
		if !format.Leaving(m.slot) {
			m.slot = format.Leave(m.slot)
		}
		m.to = format.Emptied(format.Ref(m.slot))
	}
	if err := c.replaceChunks(s.moves, deadline); err != nil {
		return err
	}
	for i := range s.moves {
		s.blocked = s.blocked || s.moves[i].w.State() != snapshot.Won
	}
	if s.does, s.held = settle, s.blocked; s.blocked {
		s.does, s.blocked = flip, false
	}
	return nil
}

// plant puts keys into the twin, the subtable to which a split moves them: each into the slot that
// is shift bytes behind the key's slot in the split subtable. It changes the backups first, so that
// all of them have the slot when the primary has it. If a slot of the twin was ever used, it is not
// 0, so the CASes leave it as it is.
func (c *changer) plant(list []move, shift uint64, deadline clock.Time) error {
	format := c.space.super.Shape.Format
	put := func(server int, m move) {
		slot := m.slot
		if format.Leaving(slot) {
			slot = format.Left(slot, m.fingerprint)
		}
		c.mem.swap(server, m.at+shift, 0, uint64(slot))
	}
	for some := range slices.Chunk(list, max(1, maxOps/max(1, len(c.backups())))) {
		err := c.onReplicas(deadline, func(server int) {
			for _, m := range some {
				put(server, m)
			}
		})
		if err == nil {
			err = c.mem.do(deadline)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// onReplicas adds operations on each replica of the index to the batch, by calls of add. It executes
// those on the backups; those on the primary remain in the batch.
func (c *changer) onReplicas(deadline clock.Time, add func(server int)) error {
	for _, server := range c.backups() {
		if add(server); c.mem.room() < 3*groupsAtOnce {
			if err := c.mem.do(deadline); err != nil {
				return err
			}
		}
	}
	if err := c.mem.rest(deadline); err != nil {
		return err
	}
	add(c.space.root())
	return nil
}

// settleGroups marks the bucket headers of the groups as settled: all keys that the split moves are
// in the twin, the subtable to which it moves them.
func (c *grower) settleGroups(s *split, deadline clock.Time) error {
	_, moves, done := s.heads()
	if err := c.head(s, moves, done, deadline, func() {}); err != nil {
		return err
	}
	for _, g := range s.groups {
		s.pass(g, c.space.super.Shape.Groups)
	}
	s.does, s.groups = flip, s.groups[:0]
	return nil
}

// finishSplit ends the split when all groups are settled, so that no key is left to move. After
// that the twin is a subtable like any other.
func (c *grower) finishSplit(s *split, deadline clock.Time) error {
	c.split = nil
	return c.enter(s.subtable, layout.Entry{Depth: s.depth, Splitting: true}, layout.Entry{Depth: s.depth + 1}, deadline)
}

// catchUp is called before the buckets of a key are read again. If the client's copy of the
// directory is out of date (stale), catchUp reads the directory's words of all subtables in which
// the key can be.
func (c *grower) catchUp(deadline clock.Time) error {
	if !c.index.stale {
		return nil
	}
	c.index.stale = false
	return c.space.refresh(c.index.sight.hash, deadline)
}

// bring completes the move of a key from its slot to the twin of that slot in the new subtable. A
// split moves the key, but this client wants to change it, and does not wait: the client that splits
// may have died. e has the offset of the slot and the value to move. bring returns the key's entry
// in the twin. The error errChanged means that the twin has another value by now.
//
// left is true if the slot is already empty. Then bring writes nothing and only reads the twin. The
// error errChanged then means that the twin does not have the value. One cause is an INSERT that
// has lost the place in the twin to another INSERT: it has emptied the slot, and has put its object
// elsewhere (see placing).
func (c *changer) bring(key uint64, e entry, left bool, deadline clock.Time) (entry, error) {
	v := &c.index.sight
	e.at, e.passing = e.at+v.shift, false
	if left {
		found, err := c.space.slotAt(c.space.root(), e.at, deadline)
		if err == nil && found != e.slot {
			err = errChanged
		}
		return e, err
	}
	word := 0
	err := c.onReplicas(deadline, func(server int) { word = c.mem.swap(server, e.at, 0, uint64(e.slot)) })
	if err == nil {
		err = c.mem.do(deadline)
	}
	if err != nil {
		return e, err
	}
	found, err := c.mem.fab.Word(word)
	if err == nil && found != 0 && found != uint64(e.slot) {
		err = errChanged
	}
	if err == nil {
		c.index.cache.put(key, v.hash, e.at, e.slot)
	}
	return e, err
}

// backups returns the servers with the backups of the index.
func (c *changer) backups() []int { return c.space.index[1:] }
