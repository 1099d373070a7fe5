package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/fusee/snapshot"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/store/kv"
)

// maxUnsure is how many objects, of operations with an unknown outcome, a client settles in one
// call of settleUnsure at most.
const maxUnsure = 64

// recover completes or withdraws what another client (owner) has begun, and leaves its blocks to
// other clients. If owner is this client or 0, it only settles this client's operations with an
// unknown outcome.
//
// First all memory servers end the connections of the owner's number, so that none of its requests
// is executed later. Only then is anything read. Next, this client takes the blocks over, one at a
// time; if several clients recover the same owner, each settles the blocks that it has got. The
// slots show what the owner has begun, because their new values name its objects: see settleObject.
func (c *changer) recover(owner uint32, deadline clock.Time) error {
	if owner == 0 || owner == c.mem.id {
		return c.settleUnsure(deadline)
	}
	if err := c.inherit(owner, deadline); err != nil {
		return err
	}
	return c.settleOrphans(deadline, deadline)
}

// fence ends the connections of an owner at a server, which refuses this owner from then on.
func (m *memory) fence(to netip.Addr, owner uint32, deadline clock.Time) error {
	return memservice.Fence(m.cfg.Context, m.cfg.Manager, to, owner, deadline)
}

// inherit is the first part of recover: it ends the connections of another client, and takes its
// blocks over.
func (c *changer) inherit(owner uint32, deadline clock.Time) error {
	for i, to := range c.mem.cfg.Servers {
		for c.mem.has(i) {
			err := c.mem.fence(to, owner, min(deadline, c.mem.rt.Now().Add(takePatience)))
			if err == nil {
				break
			}
			if err := c.mem.prepareRetry(err, deadline); err != nil {
				return err
			}
			if _, err := c.mem.glance(deadline); err != nil {
				// The members have changed: perhaps the server has crashed, and a master has
				// removed it.
				return err
			}
		}
	}
	c.space.lose() // frees that the dead client has collected and not sent are lost
	return c.space.tables(deadline, func(h usedBlock) (bool, error) {
		if h.use.Client() != owner {
			return true, nil
		}
		ok, err := c.space.become(h, h.use.By(c.mem.id), deadline)
		if ok || err != nil {
			c.orphans = append(c.orphans, orphan{usedBlock: usedBlock{h.blockID, h.use.By(c.mem.id)}})
		}
		return true, err
	})
}

// orphan is a block that this client has taken over from a dead one. The objects with numbers below
// `next` are settled. They remain so while this client owns the block, because no other client uses
// them.
type orphan struct {
	usedBlock
	block *block // made when the client begins to settle the objects; nil before
	next  int
}

// errLater: a client has spent the time that it had for the blocks of dead clients, and continues
// later.
var errLater = fmt.Errorf("%w: blocks of dead clients are not settled yet", kv.ErrTimeout)

// settleOrphans completes or withdraws the operations that dead clients began in the blocks which
// this client has taken over from them. Then it leaves each block to other clients. When the clock
// reaches `until`, it returns errLater, and the next call continues with the next object.
func (c *changer) settleOrphans(until, deadline clock.Time) error {
	for len(c.orphans) > 0 {
		e := &c.orphans[0]
		if err := c.settleBlock(e, until, deadline); err != nil {
			if !errors.Is(err, errLater) { // after a failure the other blocks come first
				c.orphans = append(c.orphans[1:], *e)
			}
			return err
		}
		c.orphans = c.orphans[1:]
	}
	return c.space.confess(deadline)
}

// settleBlock completes or withdraws what the dead owner of a block has begun with its objects.
// Then it leaves the block to other clients.
func (c *changer) settleBlock(e *orphan, until, deadline clock.Time) error {
	word, err := c.space.slotAt(e.server, c.space.useAt(e.blockID), deadline)
	if err != nil || layout.BlockUse(word) != e.use {
		// The block was left already, or this client has never got it.
		return err
	}
	if e.block == nil {
		shape := &c.space.super.Shape
		e.block = newBlock(e.blockID, e.use, e.use.Version(), 0, shape)
	}
	for ; e.next < len(e.block.used); e.next++ {
		if c.mem.rt.Now() >= until {
			return errLater
		}
		if err := c.settleObject(object{e.block, e.next}, deadline); err != nil {
			return err
		}
	}
	_, err = c.space.become(e.usedBlock, e.block.leaves(), deadline)
	return err
}

// settleUnsure settles the objects of this client whose operations have an unknown outcome.
func (c *changer) settleUnsure(deadline clock.Time) error {
	c.space.unsure = slices.DeleteFunc(c.space.unsure, func(o object) bool { return !o.of(c.space) })
	for _, o := range slices.Clone(c.space.unsure[:min(maxUnsure, len(c.space.unsure))]) {
		version := o.versions[o.i]
		if err := c.settleObject(o, deadline); err != nil {
			o.versions[o.i], o.used[o.i] = version, true
			return err
		}
		used := o.used[o.i]
		// If a slot has named the object, another client's free of it may still arrive. So a bit in
		// the block's bitmap does not prove that an object is free.
		o.versions[o.i], o.used[o.i], o.hints = version, true, true
		c.space.unsure = slices.DeleteFunc(c.space.unsure, func(other object) bool { return other == o })
		c.space.lose() // if the operation has won, the object that it has replaced was not freed
		if !used {
			c.space.ready(o)
		}
	}
	return nil
}

// vote is the value that one replica of a slot has, which is at offset `at`. A value in a backup
// shows how its writer wants to change the slot.
type vote struct {
	at   uint64
	slot layout.Slot
}

// settleObject completes or withdraws the operation for which a dead client has used object o of
// its block. It notes in the block whether a slot names the object, and with which version. No
// request of the owner is executed meanwhile, and no other client settles the object.
//
// If a backup has a value that names the object and the primary does not have it, the owner's
// operation was not finished. Its CASes are repeated by the rules of SNAPSHOT, as its owner would
// have done. Then this operation or an operation of another client wins, and the clients that wait
// can go on. An INSERT that has not marked its object in the replica from which clients read is
// withdrawn: no client has seen it.
func (c *changer) settleObject(o object, deadline clock.Time) error {
	shape := &c.space.super.Shape
	server, off := c.space.replica(o.server, shape.PlaceOf(o.block.block, o.i, o.units))
	raw, err := c.mem.fetch(nil, server, off, o.units*layout.Unit, deadline)
	if err != nil {
		return err
	}
	o.used[o.i] = false
	if err := c.index.object.Parse(shape.Format, raw); err != nil {
		return nil // the object is not complete, so its owner has not begun to change a slot
	}
	key, mark, version := c.index.object.Key, c.index.object.Mark, c.index.object.Version
	var lost []vote // values of backups that have lost by the rules of SNAPSHOT
	for {
		primary, votes, err := c.votes(o, version, layout.HashOf(key), deadline)
		if err != nil {
			return err
		}
		votes = slices.DeleteFunc(votes, func(v vote) bool { return slices.Contains(lost, v) })
		var done bool
		switch {
		case len(votes) > 0:
			var against bool
			if against, err = c.redo(votes[0], deadline); against {
				lost = append(lost, votes[0])
			}
		case primary.slot == 0:
			return nil
		case mark == layout.Valid:
			o.used[o.i], o.keys[o.i], o.versions[o.i] = true, key, shape.Format.Ref(primary.slot).Version
			done = true
			err = c.showAll(shape.Format.Ref(primary.slot), deadline)
		default:
			_, err = c.replace(change{
				at: primary.at, old: primary.slot, new: shape.Format.Emptied(shape.Format.Ref(primary.slot)), orphaned: true,
			}, deadline)
		}
		if errors.Is(err, errForeign) {
			err = nil
		}
		if err != nil || done {
			return err
		}
		if c.mem.rt.Now() >= deadline {
			return kv.ErrTimeout
		}
	}
}

// votes reads the slots for hash h in all subtables in which keys with this hash can be. primary is
// the slot of the primary replica that names object o; its value is 0 if there is none. votes are
// the slots in which a backup differs from the primary and has a value for o: one that names o, one
// that a DELETE whose log entry is in o leaves (Format.Emptied), or one that says that a split
// moves the key (Format.Leave). A value of the last kind with another version does not count: it
// belongs to an earlier use of the object's memory, perhaps for another key. If the primary has
// such a value with this version, and the twin (the subtable to which the split moves the key) does
// not have the key yet, votes first puts the key there.
func (c *changer) votes(o object, version uint32, h layout.Hash, deadline clock.Time) (primary vote, votes []vote, err error) {
	shape := &c.space.super.Shape
	c.space.homes = shape.Homes(h, c.space.homes[:0])
	place := o.ref(shape, 0).Place
	first := map[uint64]layout.Slot{}
	var moves []vote
	for n, server := range append([]int{c.space.root()}, c.backups()...) {
		err := c.eachSlot(server, h, deadline, func(at uint64, slot layout.Slot) {
			if n == 0 {
				first[at] = slot
			}
			r := shape.Format.Ref(slot)
			if r.Server != o.server || r.Place != place || r.Units != o.units && r.Units != 0 || slot == 0 || r.Version != version && (n == 0 || shape.Format.Leaving(slot)) {
				return
			}
			switch {
			case n == 0 && r.Units > 0:
				primary = vote{at, slot}
			case n == 0 && shape.Format.Leaving(slot):
				moves = append(moves, vote{at, slot})
			case n > 0 && first[at] != slot:
				votes = append(votes, vote{at, slot})
			}
		})
		if err != nil {
			return primary, nil, err
		}
	}
	for _, m := range moves { // put the key into the twin, if it is not there yet
		subtable, _ := shape.Within(m.at)
		i := slices.Index(c.space.homes, subtable)
		if i+1 == len(c.space.homes) {
			continue
		}
		shift := shape.SubtableAt(c.space.homes[i+1]) - shape.SubtableAt(subtable)
		if first[m.at+shift] != 0 {
			continue
		}
		if err := c.plant([]move{{entry: entry{at: m.at, slot: m.slot}, fingerprint: h.Fingerprint()}}, shift, deadline); err != nil {
			return primary, nil, err
		}
		return c.votes(o, version, h, deadline)
	}
	return primary, votes, nil
}

// eachSlot calls f for the slots of a hash in one replica of the index, in the subtables
// c.space.homes.
func (c *changer) eachSlot(server int, h layout.Hash, deadline clock.Time, f func(at uint64, slot layout.Slot)) error {
	shape := &c.space.super.Shape
	one, two := shape.Format.Buckets(h, shape.Mains())
	mains := [...]int{one, two}
	for i, n := range c.space.homes {
		for j, main := range mains {
			c.mem.read(server, shape.CombinedAt(n, main), atIn+(2*i+j)*layout.CombinedLen, layout.CombinedLen)
		}
	}
	if err := c.mem.do(deadline); err != nil {
		return err
	}
	for i, n := range c.space.homes {
		for j, main := range mains {
			raw, err := c.mem.bytes(nil, atIn+(2*i+j)*layout.CombinedLen, layout.CombinedLen)
			if err != nil {
				return err
			}
			var b layout.Combined
			if err := b.Parse(main, raw); err != nil {
				return err
			}
			for k, slot := range b.Slots {
				f(layout.SlotAt(shape.CombinedAt(n, main), k), slot)
			}
		}
	}
	return nil
}

// redo completes the change that a dead client has begun by writing v.slot into a backup. It does
// nothing if no backup has v.slot now. While the primary keeps its value, each backup has the
// primary's value, or the value of a writer that wants to replace it. lost reports that the rules
// of SNAPSHOT have decided against the change.
func (c *changer) redo(v vote, deadline clock.Time) (lost bool, err error) {
	before, err := c.space.slotAt(c.space.root(), v.at, deadline)
	if err != nil {
		return false, err
	}
	there := false
	for _, server := range c.space.index[1:] {
		slot, err := c.space.slotAt(server, v.at, deadline)
		if err != nil {
			return false, err
		}
		there = there || slot == v.slot
	}
	after, err := c.space.slotAt(c.space.root(), v.at, deadline)
	if err != nil || !there || after != before || after == v.slot {
		return false, err
	}
	r, err := c.replace(change{at: v.at, old: before, new: v.slot, orphaned: true}, deadline)
	if errors.Is(err, errForeign) {
		return false, nil // another client has changed the slot meanwhile
	}
	c.space.owed = true // if the change has won, the object that it has replaced was not freed
	if err != nil || r.won {
		return false, err
	}
	// As long as the winner does not go on, a backup may keep the value that has lost, and a repair
	// could choose it. So the backup gets the winner's value before the object counts as free.
	return true, c.yield(v.at, before, deadline)
}

// yield swaps the value that has won a slot by the rules of SNAPSHOT into all backups, if the
// primary still has the value `before`. Any client may do that, because the winner's value is all
// that is needed. yield is called when all backups have values of writers. It does not swap the
// primary: the winner does that, or the client that recovers the winner. Otherwise a winner that is
// alive and has not read the primary yet could not tell whether its own change has won or another
// one.
func (c *changer) yield(at uint64, before layout.Slot, deadline clock.Time) error {
	var values []uint64
	for _, server := range c.backups() {
		slot, err := c.space.slotAt(server, at, deadline)
		if err != nil {
			return err
		}
		values = append(values, uint64(slot))
	}
	after, err := c.space.slotAt(c.space.root(), at, deadline)
	if err != nil || after != before || len(values) == 0 {
		return err
	}
	winner := snapshot.Decide(values)
	if layout.Slot(winner) == before {
		return nil
	}
	for i, server := range c.backups() {
		if values[i] != winner {
			c.mem.swap(server, at, values[i], winner)
		}
	}
	return c.mem.rest(deadline)
}

// showAll marks all replicas of an object as valid.
func (c *changer) showAll(r layout.Ref, deadline clock.Time) error {
	if err := c.mem.put([]byte{byte(layout.Valid)}, atLog); err != nil {
		return err
	}
	shape := &c.space.super.Shape
	first, _ := c.space.replica(r.Server, r.Place)
	for j := range shape.Replicas {
		if server, off := shape.Replica(r.Server, r.Place, j); c.mem.has(server) && server != first {
			c.mem.write(server, off, atLog, 1)
		}
	}
	if c.mem.managed && len(c.mem.batch) > 0 { // clients read the first replica and see the object as valid: the others must be valid before, in case the first is lost
		if err := c.mem.do(deadline); err != nil {
			return err
		}
	}
	_, off := c.space.replica(r.Server, r.Place)
	c.mem.write(first, off, atLog, 1)
	return c.mem.do(deadline)
}

// recoverOwner recovers the client that wants to give a slot the value `slot`: the owner of the
// block with the object that this value names. If that owner is a master that is alive,
// recoverOwner does nothing, because the master settles the block.
func (c *changer) recoverOwner(slot layout.Slot, deadline clock.Time) error {
	r := c.space.super.Shape.Format.Ref(slot)
	id := blockID{r.Server, c.space.super.Shape.BlockOf(r.Place)}
	if slot == 0 || id.server >= len(c.mem.cfg.Servers) || !c.mem.has(id.server) || id.block >= c.space.super.Shape.Blocks {
		return nil
	}
	word, err := c.space.slotAt(id.server, c.space.useAt(id), deadline)
	if err != nil {
		return err
	}
	owner := layout.BlockUse(word).Client()
	if owner == c.mem.id && slices.ContainsFunc(c.orphans, func(e orphan) bool { return e.blockID == id }) {
		return c.settleOrphans(deadline, deadline)
	}
	if owner == 0 {
		return nil
	}
	if reigns, err := c.reigns(owner, deadline); reigns || err != nil {
		return err
	}
	return c.recover(owner, deadline)
}

// reign is what a client knows of a master that it waits for: the master's sign of life, and since
// when it has not changed.
type reign struct {
	owner uint32
	beat  uint64
	since clock.Time
}

// reigns reports whether an owner of blocks is the master and is alive. Then the blocks belonged to
// a dead client, and the master settles them. A master that was silent for Config.ClientLease
// counts as dead.
func (c *changer) reigns(owner uint32, deadline clock.Time) (bool, error) {
	if !c.mem.managed || c.mem.exempt {
		return false, nil
	}
	const n = layout.MasterWord + 8 - layout.ReignWord
	asked := c.mem.rt.Now()
	c.mem.read(c.space.root(), layout.ReignWord, atLog, n)
	if err := c.mem.do(deadline); err != nil {
		return false, err
	}
	b, err := c.mem.bytes(nil, atLog, n)
	if err != nil || binary.LittleEndian.Uint64(b[layout.MasterWord-layout.ReignWord:]) != uint64(owner) {
		return false, err
	}
	r := &c.reign
	if beat := binary.LittleEndian.Uint64(b); r.owner != owner || r.beat != beat {
		*r = reign{owner: owner, beat: beat, since: c.mem.rt.Now()}
	}
	return c.mem.cfg.ClientLease < 0 || asked < r.since.Add(c.mem.cfg.ClientLease), nil
}

// outlast waits, if owner is a master that is alive, until that master has settled all blocks that
// it has taken over from dead clients. settled is false if owner is no such master.
func (c *changer) outlast(owner uint32, deadline clock.Time) (settled bool, err error) {
	for {
		reigns, err := c.reigns(owner, deadline)
		if err != nil || !reigns {
			return false, err
		}
		owns := false
		err = c.space.tables(deadline, func(h usedBlock) (bool, error) {
			owns = owns || h.use.Client() == owner
			return !owns, nil
		})
		if err != nil || !owns {
			return err == nil, err
		}
		if c.mem.rt.Now() >= deadline {
			return false, kv.ErrTimeout
		}
		c.mem.rt.Sleep(glancePause)
	}
}

// Recover settles what client number owner has left when it died, and leaves its blocks to other
// clients. First the memory servers end the connections of this number. If the client is alive
// after all, it takes another number and goes on without its blocks. An error means that something
// may remain to be done: Recover can be called again, by any client.
func (c *Client) Recover(owner uint32, deadline clock.Time) error {
	if err := c.begin(deadline); err != nil {
		return err
	}
	if owner == c.mem.id {
		return fmt.Errorf("recover client %d: that is this client; only another one can be recovered", owner)
	}
	return c.slots.following(deadline, func() error { return c.slots.recover(owner, deadline) })
}

// RecoverAll recovers all other clients that own blocks, returns their numbers, and ends all splits
// of subtables. It recovers idle clients, too, because an idle client looks like a dead one. A
// client that is alive goes on under another number and without its blocks, as after Recover. If an
// owner is a master that is alive and settles blocks, RecoverAll waits until the master has settled
// them.
func (c *Client) RecoverAll(deadline clock.Time) (owners []uint32, err error) {
	if err := c.begin(deadline); err != nil {
		return nil, err
	}
	for server := range c.mem.cfg.Servers {
		err := c.slots.following(deadline, func() error {
			if !c.mem.has(server) {
				return nil
			}
			return c.space.table(server, deadline, func(h usedBlock) (bool, error) {
				if owner := h.use.Client(); owner != 0 && owner != c.mem.id && !slices.Contains(owners, owner) {
					owners = append(owners, owner)
				}
				return true, nil
			})
		})
		if err != nil {
			return owners, err
		}
	}
	for i := 0; i < len(owners); {
		owner, settled := owners[i], false
		err := c.slots.following(deadline, func() (err error) {
			if settled, err = c.slots.outlast(owner, deadline); settled || err != nil {
				return err
			}
			return c.slots.recover(owner, deadline)
		})
		if err != nil {
			return owners, fmt.Errorf("recover client %d: %w", owner, err)
		}
		if i++; settled { // the owner is a master that is alive, and was not recovered
			i--
			owners = slices.Delete(owners, i, i+1)
		}
	}
	return owners, c.slots.following(deadline, func() error { return c.splits.finishAll(deadline) })
}

// Number returns the number of the client, under which it owns its connections and blocks. The
// client takes another number when another client has taken it for dead.
func (c *Client) Number() uint32 { return c.mem.id }
