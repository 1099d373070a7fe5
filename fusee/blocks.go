package fusee

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// tablePiece is how many words of a block table one READ reads.
	tablePiece = 2048
	// versionsAhead is how many versions the word of a block is ahead of the block's objects after
	// a client has raised it. When a client dies, each object loses at most this many versions,
	// because the next owner begins after the word's version.
	versionsAhead = 256
	// lookAgain is how long a client that has found no room in the blocks left by others waits
	// before it looks into all of them again.
	lookAgain = time.Second
)

// blockID names a block: by its server, and by its number on that server.
type blockID struct{ server, block int }

// usedBlock is a block that another client has left, or has lost because that client was taken for dead.
// use is the block's word in the block table.
type usedBlock struct {
	blockID
	use layout.BlockUse
}

// limbo is a block that the client has tried to take over, with an unknown outcome: an error has
// interrupted the CAS of the block's word, or what follows the CAS. The word in remote memory is
// usedBlock.use, if the CAS was not executed, or else the field word. settleLimbo gives the block back.
type limbo struct {
	usedBlock
	word layout.BlockUse
}

// request is a request to a memory server for a block of objects with the given number of units. If
// a client repeats a request with the same number, the server gives it the same block.
type request struct {
	number uint32
	units  int
	// open is true while the outcome of the request is unknown.
	open bool
}

// block is a block that this client owns.
type block struct {
	blockID
	units int
	// word is the block's word in the block table. maybe, unless 0, is another value that the word
	// may have: the outcome of a change of the word is unknown.
	word, maybe layout.BlockUse
	// copy is the value that the copies of the word on other servers have, as far as the client
	// knows.
	copy layout.BlockUse
	// from is the greatest version of the block's objects before this client got the block. The
	// three lists have an entry for each object: versions has the version of the object's last use
	// (the value of from, if this client has not used the object), used says whether the object is
	// in use, and keys has its key.
	from     uint32
	versions []uint32
	keys     []uint64
	used     []bool
	// hints is true if a bit in the bitmap does not prove that an object is free. The bit may stand
	// for a free that a client decided on when the block had another owner, or for one that a sweep
	// has found already (a sweep looks up the keys of the objects in the index). In such a block
	// only the index says which objects are free. A bit only shows that a sweep may find free
	// objects.
	hints bool
	// swept is the value that DoubtWord had before the last sweep of the block. If the word has
	// another value now, frees may have been lost, and the block is swept again.
	swept uint64
}

func newBlock(id blockID, word layout.BlockUse, from uint32, doubts uint64, shape *layout.Shape) *block {
	n := shape.Objects(word.Units())
	return &block{
		blockID: id, units: word.Units(), word: word, from: from,
		versions: slices.Repeat([]uint32{from}, n), keys: make([]uint64, n), used: make([]bool, n), swept: doubts,
	}
}

// last returns the greatest version that an object of the block has had.
func (b *block) last() uint32 {
	most := b.from
	for _, v := range b.versions {
		most = max(most, v)
	}
	return most
}

// free reports whether object i can be used: no slot names it, and its version can still grow.
func (b *block) free(i int) bool { return !b.used[i] && b.versions[i] < layout.MaxVersion }

// leaves returns the value that the block's word gets when this client leaves the block to other
// clients.
func (b *block) leaves() layout.BlockUse {
	room := 0
	for _, used := range b.used {
		if !used {
			room++
		}
	}
	units := b.units
	if room == len(b.used) {
		units = 0
	}
	return layout.UseLeft(units, b.last(), room)
}

// useAt returns the offset of a block's word in the memory of its server.
func (s *space) useAt(id blockID) uint64 { return s.super.Shape.BlockTable(0) + 8*uint64(id.block) }

// refill gets free objects for a class: objects in its blocks that other clients have freed, or the
// objects of another block.
func (s *space) refill(c *class, units int, deadline clock.Time) error {
	if err := s.confess(deadline); err != nil {
		return err
	}
	if found, err := c.reclaim(s, reclaimAtOnce, deadline); found || err != nil {
		c.fresh = c.fresh && !found
		return err
	}
	err := s.grow(c, units, deadline)
	c.fresh = err == nil && c.fresh
	if errors.Is(err, kv.ErrFull) {
		if found, e := c.reclaim(s, len(c.blocks), deadline); found || e != nil {
			return e
		}
	}
	return err
}

// stock is called after an operation with an object of the given number of units has succeeded. If
// the client will need its next block soon, and the server has answered the request for it, stock
// gets the block. It does not do so after an operation that has taken many round trips. So an
// operation that must repeat its attempts seldom has to get a block as well.
func (q *requests) stock(s *space, units int, deadline clock.Time) {
	c := s.class(units)
	if len(c.queue) > stockAt || s.mem.cost.RTTs+refillRTTs > pauseRTTs || !q.expects(s, units) || q.ahead.wait(s.mem.rt.Now()) != nil {
		return
	}
	_ = s.refill(c, units, deadline)
}

const (
	// An operation gets further free objects at its end if the class of its object has at most
	// stockAt free objects left.
	stockAt = 4
	// refillRTTs is how many round trips it takes to look for freed objects, to find none, and to get
	// a block that was requested ahead.
	refillRTTs = reclaimAtOnce + 1
)

// reclaimAtOnce is the number of blocks in which a client looks for freed objects before it gets
// another block. Each call of reclaim continues behind the last block of the previous call.
const reclaimAtOnce = 2

// reclaim calls space.reclaim for up to n blocks of the class, until the class has more free
// objects than before, and at least two.
func (c *class) reclaim(s *space, n int, deadline clock.Time) (found bool, err error) {
	enough := max(1, len(c.queue))
	for range min(n, len(c.blocks)) {
		c.turn = (c.turn + 1) % len(c.blocks)
		if err := s.reclaim(c.blocks[c.turn], deadline); err != nil {
			return false, err
		}
		if len(c.queue) > enough {
			return true, nil
		}
	}
	return false, nil
}

// reclaim makes the objects of a block that other clients have freed ready for use. It reads the
// block's bitmap. Then it clears the bits that were set: it adds the negated words by FETCH_ADD.
func (s *space) reclaim(b *block, deadline clock.Time) error {
	shape := &s.super.Shape
	n := shape.BitmapLen()
	server, off := shape.Replica(b.server, uint64(b.block)*uint64(shape.BlockUnits), 0)
	s.mem.read(server, off, atIn, n)
	s.mem.read(s.root(), layout.DoubtWord, atLog, 8)
	if err := s.mem.do(deadline); err != nil {
		return err
	}
	bitmap, err := s.mem.bytes(nil, atIn, n)
	if err != nil {
		return err
	}
	doubts, err := s.mem.bytes(nil, atLog, 8)
	if err != nil {
		return err
	}
	s.doubts = binary.LittleEndian.Uint64(doubts)
	sweep := s.doubts != b.swept
	for at := 0; at < n; at += 8 {
		word := binary.LittleEndian.Uint64(bitmap[at:])
		if word == 0 {
			continue
		}
		s.mem.add(server, off+uint64(at), -word)
		// After an error it is unknown whether the bits were cleared, or will be later. So a later
		// call sweeps the block, that is, finds out for each object whether it is free.
		if err := s.mem.once(deadline); err != nil {
			s.mem.drop()
			b.hints, b.swept = true, s.doubts-1
			return kv.TimedOut(err)
		}
		if b.hints {
			sweep = true
			continue
		}
		for ; word != 0; word &= word - 1 {
			place := uint64(b.block)*uint64(shape.BlockUnits) + uint64(at*8+bits.TrailingZeros64(word))
			if i := shape.IndexOf(place, b.units); i >= 0 {
				s.ready(object{b, i})
			}
		}
	}
	if !sweep {
		return nil
	}
	return s.sweep(b, deadline)
}

// grow gets another block for class c: the one that the client has requested in advance, one that a
// client has left, or one that was never used.
func (s *space) grow(c *class, units int, deadline clock.Time) error {
	if done, err := s.requests.arrived(s, units, deadline); done || err != nil {
		return err
	}
	c.fresh = false
	suits := func(u layout.BlockUse) bool { return u.Units() == 0 || u.Units() == units && u.Room() > 0 }
	if done, err := s.adopt(c, units, suits, deadline); done || err != nil {
		return err
	}
	for {
		silent := error(nil)
		for range s.mem.cfg.Servers {
			server := s.requests.next(s)
			if !s.mem.has(server) {
				continue
			}
			switch err := s.ask(server, units, deadline); {
			case errors.Is(err, errSilent): // perhaps another server has a block
				silent = err
			case !errors.Is(err, memservice.ErrFull):
				c.fresh = err == nil
				return err
			}
		}
		switch {
		case silent == nil:
			return c.scrape(s, units, suits, deadline)
		case s.mem.rt.Now() >= deadline:
			return kv.TimedOut(silent)
		}
	}
}

// scrape is called when no server has a block that was never used. It looks for free objects in the
// blocks that other clients have left and that suits rejects: those with objects of another length,
// or without a free object when they were left.
func (c *class) scrape(s *space, units int, suits func(layout.BlockUse) bool, deadline clock.Time) error {
	if s.mem.rt.Now() < s.nextLook {
		return kv.ErrFull
	}
	done, err := s.adopt(c, units, func(u layout.BlockUse) bool { return !suits(u) }, deadline)
	if err == nil && !done {
		s.nextLook = s.mem.rt.Now().Add(lookAgain)
		err = kv.ErrFull
	}
	return err
}

// ask requests a block from a memory server, for objects with the given number of units. If the
// outcome of an earlier request is unknown, ask first gets the block of that request. The error
// errSilent means that the server does not answer, and that this client knows of no change of the
// members.
func (s *space) ask(server, units int, deadline clock.Time) error {
	shape, r := &s.super.Shape, &s.requests.asked[server]
	for {
		if !r.open {
			*r = request{r.number + 1, units, true}
		}
		s.mem.cost.RPCs++
		word := layout.UseBy(s.mem.id, r.units).Ahead(versionsAhead)
		from := s.mem.rt.Enter(kv.PhaseRPC)
		n, known, err := s.requests.answered(s, server, deadline)
		if !known {
			n, err = s.requests.insist(s, server, word, deadline)
		}
		s.mem.rt.Leave(from)
		switch {
		case errors.Is(err, memservice.ErrFull):
			r.open = false
			return err
		case errors.Is(err, memservice.ErrFenced):
			s.mem.fenced = true
			return kv.TimedOut(errFenced)
		case err != nil && s.mem.rt.Now() < deadline && !errors.Is(err, verbs.ErrClosed):
			// The server may have crashed. If a master has removed it, glance returns an error.
			if _, err := s.mem.glance(deadline); err != nil {
				return err
			}
			return fmt.Errorf("%w: %w", errSilent, err)
		case err != nil:
			return kv.TimedOut(err)
		}
		id := blockID{server, n}
		if s.mem.managed {
			// This READ fails if the server has lost its memory since it gave out the block. Such a
			// server would give out the same blocks again.
			s.mem.read(server, layout.ViewWord, atLog, 8)
		}
		if s.copies.list = nil; n < shape.Blocks {
			s.copies.write(&s.super.Shape, id, 0, word.Copy())
		}
		if err := s.copies.settle(word.Copy(), deadline); err != nil {
			return err
		}
		r.open = false
		if s.blocks[id] != nil || n >= shape.Blocks {
			return fmt.Errorf("memory server %d has given block %d of %d, which is not free", server, n, shape.Blocks)
		}
		b := newBlock(id, word, 0, s.doubts, shape)
		b.copy = word.Copy()
		s.addBlock(b)
		if r.units == units {
			return nil
		}
	}
}

// takePatience is how long a client waits for a memory service to give it a block, or to end the
// connections of a dead client. After that it finds out whether the server is a member, and asks
// another server, or the same one again.
const takePatience = time.Second

var errSilent = errors.New("the memory service does not answer")

// insist sends the client's last request for a block to a server, and repeats it until it has an
// answer or takePatience is over. word is the value that the block's word gets.
func (q *requests) insist(s *space, server int, word layout.BlockUse, deadline clock.Time) (int, error) {
	shape, until := &s.super.Shape, min(deadline, s.mem.rt.Now().Add(takePatience))
	for {
		n, err := memservice.Take(s.mem.cfg.Context, s.mem.cfg.Manager, s.mem.cfg.Servers[server], s.mem.id, q.asked[server].number, shape.BlockTable(0), shape.Blocks,
			uint64(word), until)
		known := err == nil || errors.Is(err, memservice.ErrFull) || errors.Is(err, memservice.ErrFenced)
		if known || s.mem.prepareRetry(err, until) != nil {
			return n, err
		}
	}
}

func (s *space) addBlock(b *block) {
	s.blocks[b.blockID] = b
	c := s.class(b.units)
	c.blocks = append(c.blocks, b)
	for i := range b.used {
		if b.free(i) {
			c.queue = append(c.queue, object{b, i})
		}
	}
}

// raise increases the version in a block's word, so that the block's objects can be used again. The
// word changes before an object gets a greater version. So if this client dies, the next owner
// begins after all versions that the objects may have.
func (s *space) raise(b *block, deadline clock.Time) error {
	word := b.word.Ahead(versionsAhead)
	b.maybe = word
	at := s.mem.swap(b.server, s.useAt(b.blockID), uint64(b.word), uint64(word))
	s.copies.write(&s.super.Shape, b.blockID, b.copy, word.Copy())
	if err := s.mem.do(deadline); err != nil {
		return err
	}
	found, err := s.mem.fab.Word(at)
	switch {
	case err != nil:
		return err
	case found != uint64(b.word) && found != uint64(word):
		s.mem.fenced = true
		return kv.TimedOut(errFenced)
	}
	if err := s.copies.settle(word.Copy(), deadline); err != nil {
		return err
	}
	b.word, b.copy, b.maybe = word, word.Copy(), 0
	return nil
}

// table reads the block table of a server and calls f for each block, until f returns false or an
// error.
func (s *space) table(server int, deadline clock.Time, f func(usedBlock) (bool, error)) error {
	for from := 0; from < s.super.Shape.Blocks; from += tablePiece {
		n := 8 * min(tablePiece, s.super.Shape.Blocks-from)
		words, err := s.mem.fetch(nil, server, s.useAt(blockID{server, from}), n, deadline)
		if err != nil {
			return err
		}
		for at := 0; at < n; at += 8 {
			on, err := f(usedBlock{blockID{server, from + at/8}, layout.BlockUse(binary.LittleEndian.Uint64(words[at:]))})
			if err != nil || !on {
				return err
			}
		}
	}
	return nil
}

// tables calls the method table, with f, for each server that the client uses.
func (s *space) tables(deadline clock.Time, f func(usedBlock) (bool, error)) error {
	for server := range s.mem.cfg.Servers {
		if !s.mem.has(server) {
			continue
		}
		if err := s.table(server, deadline, f); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over blocks that other clients have left and that the function `suits` accepts, until
// one of them has room for an object of class c. done is true if one has room. In the cost of the
// operation (kv.Cost), such a block counts as one RPC, like a block that was never used; the round
// trips of the take-over do not count.
func (s *space) adopt(c *class, units int, suits func(layout.BlockUse) bool, deadline clock.Time) (done bool, err error) {
	defer func(rtts int) { s.mem.cost.RTTs = rtts }(s.mem.cost.RTTs)
	for n := range s.mem.cfg.Servers {
		server := (s.requests.turn + n) % len(s.mem.cfg.Servers)
		if !s.mem.has(server) {
			continue
		}
		err := s.table(server, deadline, func(h usedBlock) (bool, error) {
			// A block is left out if this client has tried to take it over with an unknown outcome
			// (s.limbo): settleLimbo would later mistake a second take-over for the first one.
			settles := slices.ContainsFunc(s.limbo, func(l limbo) bool { return l.blockID == h.blockID })
			if !h.use.Left() || h.use.Spent() || !suits(h.use) || settles {
				return true, nil
			}
			err := s.adoptOne(h, units, deadline)
			done = len(c.queue) > 1
			return !done, err
		})
		if done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// adoptOne takes over a block for objects with the given number of units, unless another client is
// faster. If no object of the block is in use, adoptOne changes the length of the block's objects:
// it writes the new length into the block's word before any object of this length is used. If the
// block then has no free object of this length, the client leaves it again.
func (s *space) adoptOne(h usedBlock, units int, deadline clock.Time) (err error) {
	word := h.use.By(s.mem.id).Ahead(versionsAhead)
	if h.use.Units() == 0 {
		word = word.For(units)
	}
	defer func() {
		if err != nil {
			s.limbo = append(s.limbo, limbo{h, word})
		}
	}()
	if ok, err := s.become(h, word, deadline); err != nil || !ok {
		return err
	}
	s.mem.cost.RPCs++
	b := s.adopted(h, word)
	if h.use.Units() > 0 {
		if err := s.inspectBlock(b, deadline); err != nil {
			return err
		}
	}
	if b.units != units && !slices.Contains(b.used, true) {
		was := word
		word = word.For(units)
		if _, err := s.become(usedBlock{h.blockID, was}, word, deadline); err != nil {
			s.limbo = append(s.limbo, limbo{h, was})
			return err
		}
		b = s.adopted(h, word)
	}
	if b.units != units || !slices.Contains(b.used, false) {
		_, err := s.become(usedBlock{h.blockID, word}, b.leaves(), deadline)
		return err
	}
	s.copies.write(&s.super.Shape, b.blockID, h.use.Copy(), b.word.Copy())
	if err := s.copies.settle(b.word.Copy(), deadline); err != nil {
		return err
	}
	b.copy = b.word.Copy()
	s.addBlock(b)
	return nil
}

// adopted returns the block that the client has taken over. Frees that were sent while the block
// had its former owner may still arrive, so the bits in its bitmap are only hints.
func (s *space) adopted(h usedBlock, word layout.BlockUse) *block {
	b := newBlock(h.blockID, word, h.use.Version(), s.doubts, &s.super.Shape)
	b.hints, b.swept = true, s.doubts-1
	return b
}

// settleLimbo gives back the blocks that the client has tried to take over. Their objects are
// unchanged, because the client has used none of them. After that any client can take them over.
func (s *space) settleLimbo(deadline clock.Time) error {
	for len(s.limbo) > 0 {
		h := s.limbo[0]
		if _, err := s.become(usedBlock{h.blockID, h.word}, h.use, deadline); err != nil {
			return err
		}
		s.limbo = s.limbo[1:]
	}
	return nil
}

// become changes the word of a block from h.use to the value `to`. It returns true if the word now
// has that value; no other client gives the word this value, so the CAS may be repeated.
func (s *space) become(h usedBlock, to layout.BlockUse, deadline clock.Time) (bool, error) {
	at := s.mem.swap(h.server, s.useAt(h.blockID), uint64(h.use), uint64(to))
	if err := s.mem.do(deadline); err != nil {
		return false, err
	}
	found, err := s.mem.fab.Word(at)
	return err == nil && (found == uint64(h.use) || found == uint64(to)), err
}

// leave leaves the blocks of this client to other clients. It keeps blocks with an object whose
// operation has an unknown outcome: these belong to its number until another client recovers it.
func (s *space) leave(deadline clock.Time) error {
	if err := s.settleLimbo(deadline); err != nil {
		return err
	}
	// First the client leaves the blocks that it knows, then it gets and leaves the blocks of open
	// requests. In the other order, a memory service that does not answer could use up all the
	// time.
	d := departure{space: s, left: make(map[blockID]bool)}
	if err := d.blocks(deadline); err != nil {
		return err
	}
	late := s.requests.recall(s, deadline)
	if err := d.blocks(deadline); err != nil {
		return err
	}
	return late
}

// departure is the state of space.leave: the blocks that the closing client has left to other
// clients already.
type departure struct {
	space *space
	left  map[blockID]bool // the blocks that are left to other clients
}

// blocks leaves the client's blocks to other clients. It skips blocks that were left already, and
// blocks with an object whose operation has an unknown outcome.
func (d departure) blocks(deadline clock.Time) error {
	for _, b := range d.space.blocks {
		if slices.ContainsFunc(d.space.unsure, func(o object) bool { return o.block == b }) {
			delete(d.space.blocks, b.blockID)
		}
	}
	all := slices.DeleteFunc(slices.Collect(maps.Values(d.space.blocks)), func(b *block) bool { return d.left[b.blockID] })
	slices.SortFunc(all, func(a, b *block) int { return cmp.Or(a.server-b.server, a.block-b.block) })
	for some := range slices.Chunk(all, maxOps/2) {
		for _, b := range some {
			d.space.mem.swap(b.server, d.space.useAt(b.blockID), uint64(b.word), uint64(b.leaves()))
			if b.maybe != 0 {
				d.space.mem.swap(b.server, d.space.useAt(b.blockID), uint64(b.maybe), uint64(b.leaves()))
			}
		}
		if err := d.space.mem.do(deadline); err != nil {
			return err
		}
		for _, b := range some {
			d.left[b.blockID] = true
		}
	}
	return nil
}
