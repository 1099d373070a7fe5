package fusee

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.begin(deadline); err != nil {
		return dst[:0], err
	}
	h := layout.HashOf(key)
	for {
		found, err := c.get(key, h, deadline)
		if errors.Is(err, errView) {
			if err := c.slots.follow(deadline); err != nil {
				return dst[:0], err
			}
			err = errChanged
		}
		switch {
		case errors.Is(err, errChanged):
			if err := c.retry(deadline); err != nil {
				return dst[:0], err
			}
		case err != nil && c.renew(err, deadline):
		case err != nil:
			return dst[:0], err
		case !found:
			return dst[:0], kv.ErrNotFound
		default:
			return append(dst[:0], c.index.object.Value...), nil
		}
	}
}

// get is one attempt of Get. If it finds the key, c.index.object is the key's object.
func (c *Client) get(key uint64, h layout.Hash, deadline clock.Time) (found bool, err error) {
	c.index.readBuckets(h, 0)
	known := c.index.cache.get(key, h)
	early := c.index.cache.trusts(known) && c.index.readObject(known.slot, 0)
	if err := c.mem.do(deadline); err != nil {
		return false, err
	}
	list, err := c.index.look(0)
	if err != nil {
		return false, err
	}
	if known != nil {
		right := known.in(list)
		known.used(right)
		if right && early {
			same, err := c.index.parse(known.slot, 0)
			// After the slot was read, another client has replaced the object, and its memory is in
			// use again.
			if err == nil && !same {
				err = errChanged
			}
			return same, err
		}
	}
	list, err = c.index.search(key, list, deadline)
	if err == nil && len(list) > 0 && list[0].passing {
		list, err = c.index.inspect(key, list, deadline)
	}
	if err != nil || len(list) == 0 || list[0].mark != layout.Valid {
		return false, err
	}
	c.index.cache.put(key, h, list[0].at, list[0].slot)
	return true, nil
}

// retry prepares another attempt of an operation that has changed nothing: it brings the view and
// the copy of the directory up to date. It returns an error when the deadline has passed.
func (c *Client) retry(deadline clock.Time) error {
	c.mem.cost.Retries++
	if c.mem.rt.Now() >= deadline {
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	return unchanged(c.slots.following(deadline, func() error { return c.splits.catchUp(deadline) }))
}

// Put implements kv.Store. If a PUT or DELETE of another client wins the slot, this PUT takes
// effect immediately before the winner, and succeeds: both replace the same value of the slot.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.modify(key, value, layout.OpUpdate, deadline)
}

func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.modify(key, nil, layout.OpDelete, deadline)
}

// modify changes the slot of an existing key, for PUT and DELETE.
func (c *Client) modify(key uint64, value []byte, op layout.Op, deadline clock.Time) error {
	if len(value) > c.MaxValue() {
		return kv.ErrTooLarge
	}
	if err := c.begin(deadline); err != nil {
		return err
	}
	h := layout.HashOf(key)
	for {
		done, err := c.update(key, h, value, op, deadline)
		if errors.Is(err, errView) {
			if err := c.slots.follow(deadline); err != nil {
				return unchanged(err)
			}
			err = errChanged
		}
		if errors.Is(err, kv.ErrNoEffect) && c.renew(err, deadline) {
			continue
		}
		if err != nil && !errors.Is(err, errChanged) {
			return err
		}
		if done {
			c.space.requests.stock(&c.space, c.space.unitsFor(len(value)), deadline)
			c.splits.assist(false, deadline)
			return nil
		}
		if err := c.retry(deadline); err != nil {
			return err
		}
	}
}

// update is one attempt of modify. done is true if the operation has taken effect.
func (c *Client) update(key uint64, h layout.Hash, value []byte, op layout.Op, deadline clock.Time) (done bool, err error) {
	f, o, err := c.compose(key, h, value, op, deadline)
	if err != nil {
		return false, unchanged(err)
	}
	e, err := c.existing(key, h, deadline)
	if err != nil {
		c.space.ready(f.object)
		return false, unchanged(err)
	}
	format := c.space.super.Shape.Format
	slot := format.Slot(f.Ref)
	to, shift := slot, uint64(0)
	attempt := func() (result, error) {
		switch to, shift = slot, 0; {
		case op == layout.OpDelete:
			to = format.Emptied(f.Ref)
		// While a split moves the keys of this bucket, a PUT moves its key itself. Otherwise PUTs
		// without pause would delay the split.
		case c.index.sight.moving(e.at):
			to, shift = format.Leave(slot), c.index.sight.shift
		}
		return c.slots.replace(change{at: e.at, old: e.slot, new: to, log: &o, ref: f.Ref}, deadline)
	}
	r, err := attempt()
	if err == nil && !r.won && c.slots.passes(e, r.observed) {
		// The change has lost to a split, and no replica names the object.
		c.mem.cost.Retries++
		if e, err = c.slots.bring(key, e, !format.Leaving(r.observed), deadline); err != nil {
			c.space.ready(f.object)
			return false, unchanged(err)
		}
		r, err = attempt()
	}
	if err != nil {
		c.space.forsake(f, err)
		if errors.Is(err, errReplaced) {
			c.space.lose() // if this change took place, the object that it has replaced was not freed
			// If another PUT or a DELETE has replaced the value, this PUT takes effect immediately
			// before it.
			if op == layout.OpUpdate && c.slots.surpassed(e, r, deadline) {
				return true, nil
			}
		}
		return false, err
	}
	if !r.won || op == layout.OpDelete {
		c.space.ready(f.object)
		c.index.cache.drop(key, h)
	}
	if r.won {
		c.space.free(format.Ref(e.slot))
		if shift != 0 {
			// The PUT has succeeded; if this client fails to put the key into the twin, any other
			// client does it.
			_ = c.slots.plant([]move{{entry: entry{at: e.at, slot: to}, fingerprint: h.Fingerprint()}}, shift, deadline)
		}
		if op == layout.OpUpdate {
			c.index.cache.put(key, h, e.at+shift, slot)
		}
	}
	if !r.won && op == layout.OpDelete && c.mem.cfg.Published {
		return true, nil // hole 2 of HOLES.md: another DELETE may have removed the key
	}
	if !r.won && op == layout.OpUpdate {
		return c.slots.overtaken(e, r, deadline)
	}
	return r.won, nil
}

// passes reports whether a change of slot e, which has observed a value there, has lost to a split,
// which moves the key to the twin (the subtable that gets the keys).
func (c *changer) passes(e entry, observed layout.Slot) bool {
	v, shape := &c.index.sight, &c.space.super.Shape
	subtable, _ := shape.Within(e.at)
	return shape.Format.Vacated(observed, e.slot) && subtable == v.subtable && v.hash.Moves(v.entry.Depth)
}

// surpassed calls overtaken after a change of the members, for a PUT that has lost, or has won and
// was replaced already. If surpassed returns false, it is not known whether the PUT took place.
func (c *changer) surpassed(e entry, r result, deadline clock.Time) (done bool) {
	err := c.following(deadline, func() (err error) {
		done, err = c.overtaken(e, r, deadline)
		return err
	})
	return err == nil && done
}

// overtaken reports whether a PUT that has lost its slot to another change takes effect immediately
// before that change. That is so if the winner is a PUT or DELETE that has replaced the same value.
// It is not so if the winner is a split, which only moves the value.
func (c *changer) overtaken(e entry, r result, deadline clock.Time) (bool, error) {
	if !c.divides(e.at) {
		return true, nil
	}
	// Before a split moves keys from a bucket, the bucket's header shows that the bucket is moving.
	// The values that the CASes have found do not say what has replaced the old value, because they
	// may come from later changes.
	if !r.headed {
		word, err := c.space.slotAt(c.space.root(), e.at/layout.BucketLen*layout.BucketLen, deadline)
		if err != nil {
			return false, err
		}
		r.header = uint64(word)
	}
	v, shape := &c.index.sight, &c.space.super.Shape
	was, stays := v.head(e.at)
	if r.header == was.Word() {
		// The header is the one that this PUT has read, so at most one split has made this slot
		// leaving since. If that split had kept the value that this PUT wanted to replace, passes
		// would have returned true. So if the slot is leaving, its value names another object:
		// another PUT has replaced the value before the split.
		return stays || shape.Format.Leaving(r.observed), nil
	}
	var now layout.Header
	if err := now.Parse(binary.LittleEndian.AppendUint64(nil, r.header)); err != nil {
		return false, errors.Join(errDirectory, err)
	}
	if was.Remain(now, v.hash) {
		return true, nil
	}
	// Correct the client's copy of the directory, if the header shows a new split.
	_ = v.stale(&c.space.dir, shape, now)
	return false, nil
}

// unchanged adds kv.ErrNoEffect to the error of an operation that has changed nothing.
func unchanged(err error) error {
	if errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrLost) || errors.Is(err, kv.ErrFull) {
		return errors.Join(err, kv.ErrNoEffect)
	}
	return err
}

// compose takes a free object f and fills it: o is its content. It adds the WRITEs of the object's
// replicas and the READs of the key's buckets to the batch.
func (c *Client) compose(key uint64, h layout.Hash, value []byte, op layout.Op, deadline clock.Time) (f fresh, o layout.Object, err error) {
	if f, err = c.space.take(c.space.unitsFor(len(value)), key, h, deadline); err != nil {
		return f, o, err
	}
	o = layout.Object{Mark: layout.Valid, Key: key, Value: value, Next: f.next, Previous: f.prev, Version: f.Version, Op: op}
	if op == layout.OpInsert && !c.mem.cfg.Published {
		o.Mark = layout.Pending
	}
	c.out = o.AppendTo(c.space.super.Shape.Format, c.out[:0])
	if err := c.mem.put(c.out, atOut); err != nil {
		return f, o, err
	}
	c.slots.writeReplicas(f.Ref, 0, atOut, len(c.out))
	c.index.readBuckets(h, 0)
	return f, o, nil
}

// existing executes the batch that compose has prepared, and returns the slot of the key, which
// must exist.
func (c *Client) existing(key uint64, h layout.Hash, deadline clock.Time) (entry, error) {
	if err := c.mem.do(deadline); err != nil {
		return entry{}, err
	}
	list, err := c.index.look(0)
	if err != nil {
		return entry{}, err
	}
	if known := c.index.cache.get(key, h); known != nil {
		right := known.in(list)
		if known.used(right); right {
			return entry{at: known.at, slot: known.slot}, nil
		}
	}
	if i := slices.IndexFunc(list, func(e entry) bool { return e.slot == c.index.match }); i >= 0 {
		return list[i], nil
	}
	list, err = c.index.search(key, list, deadline)
	switch {
	case err != nil:
		return entry{}, err
	case len(list) == 0 || list[0].mark != layout.Valid:
		return entry{}, kv.ErrNotFound
	case list[0].passing:
		return c.slots.bring(key, list[0], false, deadline)
	}
	return list[0], nil
}
