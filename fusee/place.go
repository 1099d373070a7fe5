package fusee

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// placing is the state of an INSERT that has written its object and puts it into a slot. If another
// client gets the slot, the INSERT puts the same object into another slot, which takes fewer round
// trips than to write another object.
type placing struct {
	fresh
	key  uint64
	hash layout.Hash
	log  layout.Object // the object as it was written; its log entry gets the outcome
	// slot is the value that names the object. logged is true if the object's log entry has the
	// outcome.
	slot   layout.Slot
	logged bool
	// asked is when the client began to change the slot. again is true if the client has read the
	// buckets since then.
	asked clock.Time
	again bool
	// outdated is a slot that names the object and from which a split has begun to move keys, or nil.
	outdated *outdated
	// lost are the offsets of slots that this INSERT has lost to other clients. The INSERT does not
	// try them again. A backup of such a slot may have had the value that names this object, and a
	// client that cleans the slot (see cleanGroups) may still have a CAS in flight that expects
	// this value. If the INSERT put the value there again, that CAS would empty the slot.
	lost []uint64
}

// outdated is a slot that an INSERT empties while it puts its object, which is pending, into
// another slot. The CASes that empty it on the backups are in one batch with the CASes of the other
// slot on the backups, and the same for the primary. So they take no additional round trips, and
// the object becomes valid only after them. No other client changes the slot, because splits move
// only valid objects. So the slot has one of two values, even if CASes are executed twice, or are
// missing because the client dies. In the latter case the client that recovers the dead one empties
// the slot.
type outdated struct {
	entry
	emptied layout.Slot // the value that the slot gets
	view    layout.View // the client's view when it found that the slot is outdated
}

// errMoved: a split has begun to move the keys of the slot into which an INSERT has put its object.
var errMoved = fmt.Errorf("%w: a split has begun", errChanged)

// occupy puts the object into an empty slot: the slot `into`, or another one if another client has
// got that slot. It returns the slot with the object. It returns neither an entry nor an error if a
// published client ends the INSERT here, with success.
func (p *placing) occupy(c *Client, into entry, deadline clock.Time) (own entry, err error) {
	for {
		p.asked, p.again = c.mem.rt.Now(), false
		r, err := c.slots.replace(change{
			at: into.at, old: into.slot, new: p.slot, log: &p.log, logged: p.logged, ref: p.Ref, patience: stuckAfter,
			hasty:  !c.mem.cfg.Published && !c.index.avoids(into.at),
			before: func() { c.slots.retract(p.outdated, c.slots.backups()) },
			again:  func() { c.slots.retract(p.outdated, c.space.index[:1]); c.index.readBuckets(p.hash, 1); p.again = true },
		}, deadline)
		stuck := errors.Is(err, errStuck)
		if stuck {
			c.index.avoid(into.at)
		}
		switch {
		case r.won:
			if c.mem.cfg.Published {
				// Hole 3 of HOLES.md: another client may have inserted the key into another slot.
				c.index.cache.put(p.key, p.hash, into.at, p.slot)
				return entry{}, nil
			}
			if p.logged = true; p.outdated != nil && p.outdated.view != c.mem.view {
				if err := p.discard(c, deadline); err != nil {
					c.space.unsure = append(c.space.unsure, p.object)
					return entry{}, ended(err)
				}
			}
			p.outdated = nil
			return entry{at: into.at, slot: p.slot}, nil
		case err == nil && c.mem.cfg.Published && len(c.space.index) > 1:
			c.space.ready(p.fresh.object)
			return entry{}, nil // hole 1 of fusee/HOLES.md: the winner may have inserted another key
		case err != nil && !errors.Is(err, kv.ErrNoEffect): // a replica may name the object
			_ = p.discard(c, deadline)
			c.space.unsure = append(c.space.unsure, p.object)
			if stuck {
				// This INSERT has lost the slot and has no effect, even if the winner does not go
				// on.
				err = errChanged
			}
			return entry{}, err
		case err != nil && !stuck:
			return entry{}, p.abandon(c, err, deadline)
		}
		if into, err = p.another(c, into, deadline); err != nil {
			return entry{}, p.abandon(c, err, deadline)
		}
	}
}

// another chooses a further empty slot after the INSERT has lost the slot `lost`. No replica of
// that slot names this object. A published client (Config.Published) does not look for the key
// after its CAS. So for such a client the error is errChanged, and Insert begins again and looks
// for the key.
func (p *placing) another(c *Client, lost entry, deadline clock.Time) (entry, error) {
	if c.mem.cfg.Published {
		return entry{}, errChanged
	}
	c.mem.cost.Retries++
	if c.mem.rt.Now() >= deadline {
		return entry{}, errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	o := p.outdated
	if o != nil && o.view != c.mem.view {
		return entry{}, errChanged
	}
	switch {
	case p.again:
		// The slot has no backups, so the batch with the CAS of the primary has also read the
		// buckets, after the CAS.
		p.outdated = nil
		if _, err := c.index.look(1); err != nil {
			return entry{}, err
		}
	// The buckets must be read again. If o is not nil, the client has perhaps not read the twin. If
	// the lost slot was leaving, a client is cleaning the leaving slots of these buckets, several
	// at a time, so other slots have perhaps changed, too.
	case o != nil || c.space.super.Shape.Format.Leaving(lost.slot):
		c.slots.retract(o, c.space.index[:1])
		c.index.readBuckets(p.hash, 0)
		if err := c.mem.do(deadline); err != nil {
			return entry{}, err
		}
		p.outdated = nil
		if _, err := c.index.look(0); err != nil {
			return entry{}, err
		}
	}
	p.lost = append(p.lost, lost.at)
	for _, at := range p.lost {
		c.index.sight.fill(at)
	}
	into, free := c.index.vacancy()
	if !free {
		return entry{}, errChanged
	}
	return into, nil
}

// follows is called when a split has begun to move keys from the bucket of slot `own`, in which the
// object is: the split may not have seen the object. follows returns the slot into which the object
// goes now, which is the same place in the twin, the subtable to which the split moves keys. That
// slot is empty unless another client has inserted a key there since the split began.
func (p *placing) follows(c *Client, own entry, deadline clock.Time) (entry, error) {
	c.mem.cost.Retries++
	shape := &c.space.super.Shape
	p.outdated = &outdated{entry: own, emptied: shape.Format.Emptied(p.Ref), view: c.mem.view}
	subtable, _ := shape.Within(own.at)
	if c.index.stale || subtable != c.index.sight.subtable || c.mem.rt.Now() >= deadline {
		return entry{}, p.abandon(c, errChanged, deadline)
	}
	return entry{at: own.at + c.index.sight.shift}, nil
}

// retract adds to the batch the CASes that empty an outdated slot on the given servers.
func (c *changer) retract(o *outdated, servers []int) {
	if o == nil || o.view != c.mem.view { // after a change of the members, discard empties the slot
		return
	}
	for _, server := range servers {
		c.mem.swap(server, o.at, uint64(o.slot), uint64(o.emptied))
	}
}

// discard empties the outdated slot, if there is one, by a separate change of this slot.
func (p *placing) discard(c *Client, deadline clock.Time) error {
	o := p.outdated
	if o == nil {
		return nil
	}
	late := max(deadline, c.mem.rt.Now()).Add(settleTimeout)
	err := c.slots.following(late, func() error {
		r, err := c.slots.replace(change{at: o.at, old: o.slot, new: o.emptied}, late)
		if err == nil && !r.won {
			err = errForeign
		}
		return err
	})
	if err == nil {
		p.outdated = nil
	}
	return err
}

// abandon ends an attempt of an INSERT because of the error `why`. If the slot p.outdated names the
// object, abandon first empties this slot; no other slot names the object.
func (p *placing) abandon(c *Client, why error, deadline clock.Time) error {
	if err := p.discard(c, deadline); err != nil {
		c.space.unsure = append(c.space.unsure, p.object)
		return ended(err)
	}
	c.space.ready(p.fresh.object)
	return unchanged(why)
}
