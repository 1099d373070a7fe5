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
	finder
	// swaps, words and seen are scratch: the CASes of backups, the offsets in the buffer of the
	// values that they find, and these values.
	swaps []snapshot.Swap
	words []int
	seen  []uint64
	// beaten is the value that the first CASes of the last change have found in all backups (or in
	// the primary, if there are no backups); 0 means that their values differed.
	beaten layout.Slot
	// header is the header of the bucket that has the slot of the last change; overtaken needs it.
	// readPrimary READs the header after the slot's primary, so a split that has changed the slot
	// shows in the header. headed is true if readPrimary has read the header during the last
	// change; otherwise overtaken reads it.
	header uint64
	headed bool
	// heirs are blocks of dead clients that this client has taken over and settles. reign is what
	// this client knows of a master that settles such blocks.
	heirs []estate
	reign reign
}

// follow calls space.follow. If the view changes, follow also removes from c.heirs the blocks of
// dead clients that were on servers which have left the view or have lost their memory.
func (c *changer) follow(deadline clock.Time) error {
	err := c.space.follow(deadline)
	if err != nil {
		return err // the view is still the former one, and departed belongs to an earlier change
	}
	c.heirs = slices.DeleteFunc(c.heirs, func(e estate) bool { return c.departed>>e.server&1 == 1 })
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
	// heir is true if the client that has begun the change is dead, and this client carries the
	// change out. If the change loses, replace does not wait for the winner.
	heir bool
}

// helpAfter: a client that has lost a slot to a split reads the primary this many times. Then it
// completes the move of the key itself.
const helpAfter = 3

// errStuck: a change has lost, and the winner has not changed the primary within change.patience.
var errStuck = errors.New("the winner of a slot does not go on")

// errForeign: a slot has neither the value that a change expects nor that of a competing change of
// the same old value. So another client has changed the slot again.
var errForeign = errors.New("another client has changed the slot meanwhile")

// replace carries out a change and reports whether it has won. If it has lost, another change of
// the slot has taken effect, and this change never will. After an error the outcome is open, unless
// the error is also kv.ErrNoEffect: then no replica of the slot has the new value. The error is
// kv.ErrTimeout, an error that says that the store is lost, or, after a change of the members,
// errChanged. If change.heir is true, it may also be errForeign.
func (c *changer) replace(ch change, deadline clock.Time) (won bool, err error) {
	began := c.rt.Now()
	late := max(deadline, c.rt.Now()).Add(settleTimeout)
	w := snapshot.New(uint64(ch.old), uint64(ch.new), len(c.index)-1)
	c.headed = false
	// lease is when the winner counts as dead if the primary has not changed by then: Config.Lease
	// after this client began to wait. 0 means that the client has not begun to wait.
	polls, lease := 0, clock.Time(0)
	for action := w.Begin(); !w.State().Ended(); {
		switch action {
		case snapshot.SwapBackups:
			action, err = c.swapBackups(&w, &ch, late)
		case snapshot.Log:
			action, err = c.logOutcome(&w, ch, late)
		case snapshot.SwapPrimary:
			action, err = c.swapPrimary(&w, ch, late)
		default:
			if ch.heir && w.State() == snapshot.Waiting {
				return false, nil
			}
			// Changes that this client carries out for other clients meanwhile change c.beaten.
			beaten := c.beaten
			if polls++; polls > 1 {
				c.rt.Sleep(poll)
			}
			moved := c.super.Shape.Format.Leave(ch.old)
			// A split moves the key. All clients that work on it write the same value, and all
			// backups have that value. So this client swaps the primary as those clients would, and
			// does not wait for them.
			if w.State() == snapshot.Waiting && beaten == moved && c.super.Shape.Format.Leaving(moved) {
				if action, err = c.carryOn(&w, ch.at, late); err != nil {
					break
				}
				continue
			}
			// The winner is a split that moves the key, and any client may complete such a move. (A
			// PUT that moves the key itself has another value, and only its own client completes
			// it.)
			if winner := layout.Slot(w.Winner()); polls > helpAfter && w.State() == snapshot.Waiting && winner == moved {
				if _, err := c.redo(vote{ch.at, winner}, late); err != nil {
					return false, c.givenUp(&w, err)
				}
			}
			until := late
			if lease == 0 {
				lease = c.rt.Now().Add(c.cfg.Lease)
			}
			if w.State() == snapshot.Waiting {
				// The change has lost, so no other client waits for this client.
				if until = deadline; ch.hasty && !w.Left() || ch.patience > 0 && c.rt.Now() >= min(until, began.Add(ch.patience)) {
					return false, c.givenUp(&w, errStuck)
				}
			}
			// Only a READ that begins after the lease has ended shows that the winner makes no
			// progress: this client may hang between the READ and the look at the clock.
			asked := c.rt.Now()
			if action, err = c.readPrimary(&w, ch.at, until); err == nil && w.State() == snapshot.Waiting && asked >= lease {
				lease = c.rt.Now().Add(c.cfg.Lease)
				err = c.recoverOwner(layout.Slot(w.Winner()), until)
			}
			// The primary still had the old value when all backups had new values. So the new values come
			// from changes that replace this old value, and the winner's value names the same key.
			if winner := layout.Slot(w.Winner()); ch.log != nil && ch.log.Op != layout.OpInsert && w.State() == snapshot.Waiting && !c.super.Shape.Format.Empty(winner) {
				c.friend = winner
			}
			c.beaten = beaten
		}
		if errors.Is(err, errView) && ch.log != nil {
			return c.resolve(ch, late)
		}
		if err != nil {
			return false, c.givenUp(&w, err)
		}
	}
	if w.State() == snapshot.Failed {
		if ch.heir {
			return false, errForeign
		}
		return false, kv.ErrTimeout
	}
	return w.State() == snapshot.Won, nil
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

func (c *changer) swapBackups(w *snapshot.Writer, ch *change, deadline clock.Time) (snapshot.Action, error) {
	c.swaps, c.words, c.seen = w.Swaps(c.swaps[:0]), c.words[:0], c.seen[:0]
	for _, s := range c.swaps {
		c.words = append(c.words, c.swap(c.index[1+s.Backup], ch.at, s.Compare, w.Value()))
	}
	if ch.before != nil {
		ch.before()
		ch.before = nil
	}
	if err := c.do(deadline); err != nil {
		return snapshot.None, err
	}
	for _, at := range c.words {
		v, err := c.fab.Word(at)
		if err != nil {
			return snapshot.None, err
		}
		c.seen = append(c.seen, v)
	}
	if w.State() == snapshot.Swapping {
		if c.beaten = 0; slices.Min(c.seen) == slices.Max(c.seen) {
			c.beaten = layout.Slot(c.seen[0])
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
	out, where := ch.log.Commit(c.super.Shape.Format, ch.old, b[:0])
	if err := c.put(out, atLog); err != nil {
		return snapshot.None, err
	}
	c.writeReplicas(ch.ref, where.Off, atLog, where.Len)
	if err := c.do(deadline); err != nil {
		return snapshot.None, err
	}
	return w.Logged(), nil
}

func (c *changer) swapPrimary(w *snapshot.Writer, ch change, deadline clock.Time) (snapshot.Action, error) {
	word := c.swap(c.root(), ch.at, w.Old(), w.Value())
	if ch.again != nil {
		ch.again()
	}
	if err := c.do(deadline); err != nil {
		return snapshot.None, err
	}
	v, err := c.fab.Word(word)
	if err != nil {
		return snapshot.None, err
	}
	if len(c.index) == 1 {
		c.beaten = layout.Slot(v)
	}
	// The CAS may have been executed twice. Either this change has lost, or it has won and another
	// change has replaced its value already.
	if c.repeated && len(c.index) == 1 && v != w.Old() && v != w.Value() {
		return snapshot.None, kv.ErrTimeout
	}
	return w.Primary(v), nil
}

// carryOn swaps the primary to the value by which a split makes a slot leaving. All backups have
// this value already.
func (c *changer) carryOn(w *snapshot.Writer, at uint64, deadline clock.Time) (snapshot.Action, error) {
	c.headed = false
	word := c.swap(c.root(), at, w.Old(), w.Winner())
	if err := c.do(deadline); err != nil {
		return snapshot.None, err
	}
	v, err := c.fab.Word(word)
	if v == w.Old() {
		v = w.Winner()
	}
	return w.Primary(v), err
}

func (c *changer) readPrimary(w *snapshot.Writer, at uint64, deadline clock.Time) (snapshot.Action, error) {
	if c.rt.Now() >= deadline {
		return snapshot.None, kv.ErrTimeout
	}
	c.read(c.root(), at, atLog, 8)
	divides := c.divides(at)
	if divides {
		c.read(c.root(), at/layout.BucketLen*layout.BucketLen, atLog+8, 8)
	}
	if err := c.do(deadline); err != nil {
		return snapshot.None, err
	}
	var err error
	if c.scratch, err = c.bytes(c.scratch, atLog, 16); err != nil {
		return snapshot.None, err
	}
	c.header, c.headed = binary.LittleEndian.Uint64(c.scratch[8:]), divides
	return w.Primary(binary.LittleEndian.Uint64(c.scratch)), nil
}

// divides reports whether a split can move the key of the slot at offset `at`, because the index
// has room for the subtable to which the split would move keys.
func (c *changer) divides(at uint64) bool {
	subtable, _ := c.super.Shape.Within(at)
	v := &c.sight
	last := v.entry.Depth
	if subtable != v.subtable {
		last++
	}
	_, ok := c.super.Shape.Twin(subtable, last)
	return ok
}

// writeReplicas adds WRITEs to all replicas of object r to the batch: n bytes of the buffer, at
// offset `from`, go to offset `part` of the object.
func (c *changer) writeReplicas(r layout.Ref, part, from, n int) {
	shape := &c.super.Shape
	for j := range shape.Replicas {
		if server, off := shape.Replica(r.Server, r.Place, j); c.has(server) {
			c.write(server, off+uint64(part), from, n)
		}
	}
}
