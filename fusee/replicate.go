package fusee

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/fusee/snapshot"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// changer changes slots in all replicas of the index.
type changer struct {
	mem   *memory
	space *space
	index *finder
	// swaps, words and seen are scratch: the CASes of backups, the offsets in the buffer of the
	// values that they find, and these values.
	swaps []snapshot.Swap
	words []int
	seen  []uint64
	// orphans are blocks of dead clients that this client has taken over and settles. reign is what
	// this client knows of a master that settles such blocks.
	orphans []orphan
	reign   reign
}

// follow calls space.follow. If the view changes, follow also removes from c.orphans the blocks of
// dead clients that were on servers which have left the view or have lost their memory.
func (c *changer) follow(deadline clock.Time) error {
	err := c.space.follow(deadline)
	if err != nil {
		return err // the view is still the former one, and departed belongs to an earlier change
	}
	c.orphans = slices.DeleteFunc(c.orphans, func(e orphan) bool { return c.mem.departed>>e.server&1 == 1 })
	return nil
}

// change is one change of the slot at offset `at`, from the value old to the value new, in all
// replicas of the index.
type change struct {
	at       uint64
	old, new layout.Slot
	// log is the object whose log entry gets the outcome; nil means that the outcome is not logged.
	// logged is true if the entry has the outcome already. ref says where that object is.
	log    *layout.Object
	logged bool
	ref    layout.Ref
	// patience, if set, is how long a change that has lost waits for the winner: see errStuck. If
	// hasty is true and no replica has the new value, the client does not wait at all.
	patience time.Duration
	hasty    bool
	// again, if set, adds operations to the batch that are executed after the CAS of the primary.
	again func()
	// before, if set, adds operations on another slot to the batch with the first CASes of the backups.
	before func()
	// orphaned is true if the client that has begun the change is dead, and this client carries the
	// change out. If the change loses, replace does not wait for the winner.
	orphaned bool
}

// result is what a change has found.
type result struct {
	won bool
	// observed is the value that the first CASes have found in all backups (or in the primary, if
	// there are no backups); 0 means that their values differed.
	observed layout.Slot
	// header is the header of the bucket that has the slot; overtaken needs it. readPrimary READs
	// the header after the slot's primary, so a split that has changed the slot shows in the
	// header. headed is true if readPrimary has read the header; otherwise overtaken reads it.
	header uint64
	headed bool
}

// helpAfter: a client that has lost a slot to a split reads the primary this many times. Then it
// completes the move of the key itself.
const helpAfter = 3

// errStuck: a change has lost, and the winner has not changed the primary within change.patience.
var errStuck = errors.New("the winner of a slot does not go on")

// errForeign: a slot has neither the value that a change expects nor that of a competing change of
// the same old value. So another client has changed the slot again.
var errForeign = errors.New("another client has changed the slot meanwhile")

// replace carries out a change; r.won reports whether it has won. If it has lost, another change of
// the slot has taken effect, and this change never will. After an error the outcome is open, unless
// the error is also kv.ErrNoEffect: then no replica of the slot has the new value. The error is
// kv.ErrTimeout, an error that says that the store is lost, or, after a change of the members,
// errChanged. If change.orphaned is true, it may also be errForeign.
func (c *changer) replace(ch change, deadline clock.Time) (r result, err error) {
	began := c.mem.rt.Now()
	late := max(deadline, c.mem.rt.Now()).Add(settleTimeout)
	w := snapshot.New(uint64(ch.old), uint64(ch.new), len(c.space.index)-1)
	// lease is when the winner counts as dead if the primary has not changed by then: Config.Lease
	// after this client began to wait. 0 means that the client has not begun to wait.
	polls, lease := 0, clock.Time(0)
	for action := w.Begin(); !w.State().Ended(); {
		switch action {
		case snapshot.SwapBackups:
			action, err = c.swapBackups(&w, &ch, &r, late)
		case snapshot.Log:
			action, err = c.logOutcome(&w, ch, late)
		case snapshot.SwapPrimary:
			action, err = c.swapPrimary(&w, ch, &r, late)
		default:
			if ch.orphaned && w.State() == snapshot.Waiting {
				return r, nil
			}
			if polls++; polls > 1 {
				c.mem.rt.Sleep(poll)
			}
			moved := c.space.super.Shape.Format.Leave(ch.old)
			// A split moves the key. All clients that work on it write the same value, and all
			// backups have that value. So this client swaps the primary as those clients would, and
			// does not wait for them.
			if w.State() == snapshot.Waiting && r.observed == moved && c.space.super.Shape.Format.Leaving(moved) {
				if action, err = c.carryOn(&w, ch.at, &r, late); err != nil {
					break
				}
				continue
			}
			// The winner is a split that moves the key, and any client may complete such a move. (A
			// PUT that moves the key itself has another value, and only its own client completes
			// it.)
			if winner := layout.Slot(w.Winner()); polls > helpAfter && w.State() == snapshot.Waiting && winner == moved {
				if _, err := c.redo(vote{ch.at, winner}, late); err != nil {
					return r, c.givenUp(&w, err)
				}
			}
			until := late
			if lease == 0 {
				lease = c.mem.rt.Now().Add(c.mem.cfg.Lease)
			}
			if w.State() == snapshot.Waiting {
				// The change has lost, so no other client waits for this client.
				if until = deadline; ch.hasty && !w.Left() || ch.patience > 0 && c.mem.rt.Now() >= min(until, began.Add(ch.patience)) {
					return r, c.givenUp(&w, errStuck)
				}
			}
			// Only a READ that begins after the lease has ended shows that the winner makes no
			// progress: this client may hang between the READ and the look at the clock.
			asked := c.mem.rt.Now()
			if action, err = c.readPrimary(&w, ch.at, &r, until); err == nil && w.State() == snapshot.Waiting && asked >= lease {
				lease = c.mem.rt.Now().Add(c.mem.cfg.Lease)
				err = c.recoverOwner(layout.Slot(w.Winner()), until)
			}
			// The primary still had the old value when all backups had new values. So the new values come
			// from changes that replace this old value, and the winner's value names the same key.
			if winner := layout.Slot(w.Winner()); ch.log != nil && ch.log.Op != layout.OpInsert && w.State() == snapshot.Waiting && !c.space.super.Shape.Format.Empty(winner) {
				c.index.match = winner
			}
		}
		if errors.Is(err, errView) && ch.log != nil {
			return c.resolve(ch, late)
		}
		if err != nil {
			return r, c.givenUp(&w, err)
		}
	}
	if w.State() == snapshot.Failed {
		if ch.orphaned {
			return r, errForeign
		}
		return r, kv.ErrTimeout
	}
	r.won = w.State() == snapshot.Won
	return r, nil
}

// givenUp ends a change because of the error `why`. It returns the error of the operation, with
// kv.ErrNoEffect if no replica can have the new value.
func (c *changer) givenUp(w *snapshot.Writer, why error) error {
	left := w.Left()
	w.Down()
	if why = kv.TimedOut(why); left {
		return why
	}
	return errors.Join(why, kv.ErrNoEffect)
}

func (c *changer) swapBackups(w *snapshot.Writer, ch *change, r *result, deadline clock.Time) (snapshot.Action, error) {
	c.swaps, c.words, c.seen = w.Swaps(c.swaps[:0]), c.words[:0], c.seen[:0]
	for _, s := range c.swaps {
		c.words = append(c.words, c.mem.swap(c.space.index[1+s.Backup], ch.at, s.Compare, w.Value()))
	}
	if ch.before != nil {
		ch.before()
		ch.before = nil
	}
	if err := c.mem.do(deadline); err != nil {
		return snapshot.None, err
	}
	for _, at := range c.words {
		v, err := c.mem.fab.Word(at)
		if err != nil {
			return snapshot.None, err
		}
		c.seen = append(c.seen, v)
	}
	if w.State() == snapshot.Swapping {
		if r.observed = 0; slices.Min(c.seen) == slices.Max(c.seen) {
			r.observed = layout.Slot(c.seen[0])
		}
	}
	return w.Backups(c.seen), nil
}

// logOutcome writes the outcome of a change into the log entry in all replicas of the object.
func (c *changer) logOutcome(w *snapshot.Writer, ch change, deadline clock.Time) (snapshot.Action, error) {
	if ch.log == nil || ch.logged {
		return w.Logged(), nil
	}
	var b [logLen]byte
	out, where := ch.log.Commit(c.space.super.Shape.Format, ch.old, b[:0])
	if err := c.mem.put(out, atLog); err != nil {
		return snapshot.None, err
	}
	c.writeReplicas(ch.ref, where.Off, atLog, where.Len)
	if err := c.mem.do(deadline); err != nil {
		return snapshot.None, err
	}
	return w.Logged(), nil
}

func (c *changer) swapPrimary(w *snapshot.Writer, ch change, r *result, deadline clock.Time) (snapshot.Action, error) {
	word := c.mem.swap(c.space.root(), ch.at, w.Old(), w.Value())
	if ch.again != nil {
		ch.again()
	}
	if err := c.mem.do(deadline); err != nil {
		return snapshot.None, err
	}
	v, err := c.mem.fab.Word(word)
	if err != nil {
		return snapshot.None, err
	}
	if len(c.space.index) == 1 {
		r.observed = layout.Slot(v)
	}
	// The CAS may have been executed twice. Either this change has lost, or it has won and another
	// change has replaced its value already.
	if c.mem.repeated && len(c.space.index) == 1 && v != w.Old() && v != w.Value() {
		return snapshot.None, kv.ErrTimeout
	}
	return w.Primary(v), nil
}

// carryOn swaps the primary to the value by which a split makes a slot leaving. All backups have
// this value already.
func (c *changer) carryOn(w *snapshot.Writer, at uint64, r *result, deadline clock.Time) (snapshot.Action, error) {
	r.headed = false
	word := c.mem.swap(c.space.root(), at, w.Old(), w.Winner())
	if err := c.mem.do(deadline); err != nil {
		return snapshot.None, err
	}
	v, err := c.mem.fab.Word(word)
	if v == w.Old() {
		v = w.Winner()
	}
	return w.Primary(v), err
}

func (c *changer) readPrimary(w *snapshot.Writer, at uint64, r *result, deadline clock.Time) (snapshot.Action, error) {
	if c.mem.rt.Now() >= deadline {
		return snapshot.None, kv.ErrTimeout
	}
	c.mem.read(c.space.root(), at, atLog, 8)
	divides := c.divides(at)
	if divides {
		c.mem.read(c.space.root(), at/layout.BucketLen*layout.BucketLen, atLog+8, 8)
	}
	if err := c.mem.do(deadline); err != nil {
		return snapshot.None, err
	}
	var err error
	if c.index.scratch, err = c.mem.bytes(c.index.scratch, atLog, 16); err != nil {
		return snapshot.None, err
	}
	r.header, r.headed = binary.LittleEndian.Uint64(c.index.scratch[8:]), divides
	return w.Primary(binary.LittleEndian.Uint64(c.index.scratch)), nil
}

// divides reports whether a split can move the key of the slot at offset `at`, because the index
// has room for the subtable to which the split would move keys.
func (c *changer) divides(at uint64) bool {
	subtable, _ := c.space.super.Shape.Within(at)
	v := &c.index.sight
	last := v.entry.Depth
	if subtable != v.subtable {
		last++
	}
	_, ok := c.space.super.Shape.Twin(subtable, last)
	return ok
}

// writeReplicas adds WRITEs to all replicas of object r to the batch: n bytes of the buffer, at
// offset `from`, go to offset `part` of the object.
func (c *changer) writeReplicas(r layout.Ref, part, from, n int) {
	shape := &c.space.super.Shape
	for j := range shape.Replicas {
		if server, off := shape.Replica(r.Server, r.Place, j); c.mem.has(server) {
			c.mem.write(server, off+uint64(part), from, n)
		}
	}
}
