package fusee

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	if len(value) > c.MaxValue() {
		return kv.ErrTooLarge
	}
	if err := c.begin(deadline); err != nil {
		return err
	}
	h := layout.HashOf(key)
	c.rival = rival{}
	for {
		err := c.insert(key, h, value, deadline)
		switch {
		case errors.Is(err, errView):
			if err := c.slots.follow(deadline); err != nil {
				return unchanged(err)
			}
		case errors.Is(err, errPending):
			c.mem.rt.Sleep(poll)
			if err := c.slots.following(deadline, func() error { return c.outwait(deadline) }); err != nil {
				return unchanged(err)
			}
		case errors.Is(err, errCrowded):
			if err := c.slots.following(deadline, func() error { return c.splits.makeRoom(deadline) }); err != nil {
				return unchanged(err)
			}
		case errors.Is(err, kv.ErrNoEffect) && c.renew(err, deadline):
			continue
		case !errors.Is(err, errChanged):
			return err
		}
		if err := c.retry(deadline); err != nil {
			return err
		}
	}
}

// errCrowded: the buckets of a key have no empty slot.
var errCrowded = errors.New("the buckets of the key are full")

// makeRoom is called when the buckets of a key are full. It begins a split of the key's subtable,
// unless the subtable is being split. It works on the split until the key's buckets are settled
// (all their keys that move are in the twin, the subtable that gets them). If they are settled
// already, it works until the split is complete.
func (c *grower) makeRoom(deadline clock.Time) error {
	v := &c.index.sight
	if !v.entry.Splitting {
		if err := c.begins(v.subtable, v.entry, deadline); err != nil {
			return err
		}
	}
	mine := c.split
	c.split = nil
	c.joins(v)
	if err := c.complete(v.settled(), deadline); err != nil {
		return err
	}
	if mine != nil {
		// The client goes back to the split on which it had worked before; other clients may have
		// ended that split meanwhile.
		c.split = mine
	}
	return nil
}

// foresee is called after an INSERT. If the buckets of the key are almost full, it begins a split
// of the subtable. If the subtable is being split, the client works on that split from now on.
func (c *grower) foresee(deadline clock.Time) error {
	v := &c.index.sight
	if c.split != nil {
		return nil
	}
	if _, ok := c.space.super.Shape.Twin(v.subtable, v.entry.Depth); ok && !v.entry.Splitting && c.index.vacant < splitRoom {
		if c.mem.cost.RTTs+c.trips() > pauseRTTs {
			// This INSERT has taken many round trips already, so the next INSERT into these buckets
			// begins the split.
			return nil
		}
		if err := c.begins(v.subtable, v.entry, deadline); err != nil {
			return err
		}
	}
	c.joins(v)
	return nil
}

// errPending: another client is inserting the same key and has not finished.
var errPending = errors.New("another client inserts the key")

// rival is an INSERT of another client for the same key. slot is the value of the other client's
// slot, which names its pending object. since is when this client first saw that value. last is
// when this client began the latest READ that has shown that value.
type rival struct {
	slot        layout.Slot
	since, last clock.Time
}

// see records that a READ that was begun at the time `asked` has shown the value of the rival's
// slot.
func (r *rival) see(slot layout.Slot, asked, now clock.Time) {
	if r.slot != slot {
		*r = rival{slot: slot, since: now}
	}
	r.last = asked
}

// outwait recovers the client of the rival INSERT if that client has made no progress for
// Config.Lease. This time must have passed when this client began its last READ of the rival's
// slot. The present time does not count, because this client may have been hung since that READ.
func (c *Client) outwait(deadline clock.Time) error {
	if c.rival.slot == 0 || c.rival.last < c.rival.since.Add(c.mem.cfg.Lease) {
		return nil
	}
	slot := c.rival.slot
	c.rival = rival{}
	return c.slots.recoverOwner(slot, deadline)
}

// insert is one attempt of Insert. After the errors errView, errChanged, errPending and errCrowded
// Insert tries again.
func (c *Client) insert(key uint64, h layout.Hash, value []byte, deadline clock.Time) error {
	f, o, err := c.compose(key, h, value, layout.OpInsert, deadline)
	if err != nil {
		return unchanged(err)
	}
	asked := c.mem.rt.Now()
	into, err := c.absent(key, h, deadline)
	if err != nil {
		c.space.ready(f.object)
		return unchanged(err)
	}
	p := placing{fresh: f, key: key, hash: h, log: o, slot: c.space.super.Shape.Format.Slot(f.Ref), asked: asked}
	for {
		var own entry
		if own, err = p.occupy(c, into, deadline); err != nil || own.at == 0 {
			return err
		}
		switch err = p.unrivalled(c, own, deadline); {
		case err == nil:
			return c.show(key, h, own, f, deadline)
		case !errors.Is(err, errMoved):
			return err
		}
		if into, err = p.follows(c, own, deadline); err != nil {
			return err
		}
	}
}

// unrivalled waits until no other client inserts the key (see alone), also if the members change
// meanwhile. After an error the object is withdrawn (no slot names it), unless the error is
// errMoved or the outcome is unknown.
func (p *placing) unrivalled(c *Client, own entry, deadline clock.Time) error {
	err := c.alone(p.key, p.hash, own, p.asked, deadline)
	for ; errors.Is(err, errView); err = c.alone(p.key, p.hash, own, p.asked, deadline) {
		p.asked = c.mem.rt.Now()
		switch err := c.slots.remains(own, p.hash, 1, max(deadline, p.asked).Add(settleTimeout)); {
		case errors.Is(err, errChanged): // the master has withdrawn the object
			c.space.unsure = append(c.space.unsure, p.object)
			return err
		case err != nil:
			c.space.unsure = append(c.space.unsure, p.object)
			return ended(err)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errChanged):
		return errMoved
	}
	return c.withdraw(own, p.fresh, err, deadline)
}

// absent executes the batch that compose has prepared, checks that the key has no slot, and chooses
// an empty slot.
func (c *Client) absent(key uint64, h layout.Hash, deadline clock.Time) (entry, error) {
	asked := c.mem.rt.Now()
	if err := c.mem.do(deadline); err != nil {
		return entry{}, err
	}
	list, err := c.index.look(0)
	if err != nil {
		return entry{}, err
	}
	into, free := c.index.vacancy()
	// The method inspect does not find the key while a split moves it. The method named alone,
	// which this INSERT calls later, finds it.
	list, err = c.index.inspect(key, list, deadline)
	switch {
	case err != nil:
		return entry{}, err
	case len(list) > 0 && list[0].mark == layout.Valid:
		c.index.cache.put(key, h, list[0].at, list[0].slot)
		return entry{}, kv.ErrExists
	case len(list) > 0:
		c.rival.see(list[0].slot, asked, c.mem.rt.Now())
		return entry{}, errPending
	case !free:
		return entry{}, errCrowded
	}
	return into, nil
}

// alone decides between clients that insert one key into different slots (see the package comment).
// own is this client's slot, whose object is pending. The buckets were read after the CAS that
// changed this slot, by READs begun after `asked`. alone returns nil when no other client has a
// slot for the key: then the object may become valid.
func (c *Client) alone(key uint64, h layout.Hash, own entry, asked, deadline clock.Time) error {
	for set := 1; ; set = 0 {
		list, err := c.index.look(set)
		if err == nil && !c.index.sight.takes(own.at) || errors.Is(err, errChanged) && c.index.sight.closes(own.at) {
			return errChanged // a split of the subtable has begun, and may not have seen this slot
		}
		if err == nil {
			list = slices.DeleteFunc(list, func(e entry) bool { return e.at == own.at })
			list, err = c.index.search(key, list, deadline)
		}
		switch {
		case errors.Is(err, errChanged):
		case err != nil:
			return err
		case len(list) == 0:
			return nil
		case list[0].mark == layout.Valid:
			return kv.ErrExists
		default:
			c.rival.see(list[0].slot, asked, c.mem.rt.Now())
			if slices.ContainsFunc(list, func(e entry) bool { return c.splits.before(e.at, own.at) }) {
				return errPending
			}
		}
		if c.mem.cost.Retries++; c.mem.rt.Now() >= deadline {
			return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
		}
		// Client.retry must not be used here: it would go on with the members of a new view,
		// although the master may have withdrawn the object. So the caller gets errView.
		if err := c.splits.catchUp(deadline); err != nil {
			return err
		}
		c.mem.rt.Sleep(poll)
		if err := c.outwait(deadline); err != nil {
			return err
		}
		asked = c.mem.rt.Now()
		c.index.readBuckets(h, 0)
		if err := c.mem.do(deadline); err != nil {
			return err
		}
	}
}

// before reports whether slot `one` is at a lower place in its subtable than slot `other`. It does
// not compare offsets, because the result must not depend on whether a split has moved the keys to
// another subtable.
func (c *grower) before(one, other uint64) bool {
	_, a := c.space.super.Shape.Within(one)
	_, b := c.space.super.Shape.Within(other)
	return a < b
}

// withdraw empties the slot of this client's pending object because of the error `why`. No other
// client changes the slot of a pending object.
func (c *Client) withdraw(own entry, f fresh, why error, deadline clock.Time) error {
	emptied := c.space.super.Shape.Format.Emptied(f.Ref)
	r, err := c.slots.replace(change{at: own.at, old: own.slot, new: emptied}, deadline)
	if err != nil || !r.won {
		c.space.unsure = append(c.space.unsure, f.object)
		return ended(err)
	}
	c.space.ready(f.object)
	return unchanged(why)
}

// show marks the object of an INSERT as valid: the INSERT has succeeded then. `own` is the slot
// that names the object.
func (c *Client) show(key uint64, h layout.Hash, own entry, f fresh, deadline clock.Time) error {
	late := max(deadline, c.mem.rt.Now()).Add(settleTimeout)
	err := c.slots.showAll(f.Ref, late)
	for errors.Is(err, errView) {
		if err = c.slots.remains(own, h, 0, late); err == nil {
			// If the object's server was lost, the block may have another owner by now, who may
			// reuse the object at any time. Then the master has marked the object as valid:
			// otherwise it would have emptied the slot.
			if !f.object.of(&c.space) {
				break
			}
			err = c.slots.showAll(f.Ref, late)
		}
	}
	if err != nil {
		c.space.unsure = append(c.space.unsure, f.object)
		// The outcome is unknown even if the slot has changed, because another client may have read
		// the valid object before that.
		return ended(err)
	}
	c.index.cache.put(key, h, own.at, own.slot)
	c.space.requests.stock(&c.space, f.Units, deadline)
	// The INSERT has succeeded, whatever happens to the split.
	if c.splits.foresee(deadline) == nil {
		c.splits.assist(c.index.vacant < urgentRoom, deadline)
	}
	return nil
}
