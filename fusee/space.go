package fusee

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// freeBatch is how many frees a client collects before it sends them.
	freeBatch = 16
	// maxFrees bounds the frees that wait for a connection.
	maxFrees = 1024
)

// space is the client's part of memory management: objects in blocks that it has got from the memory
// servers, and frees for the owners of other blocks.
type space struct {
	memory
	super   layout.Superblock
	classes map[int]*class
	blocks  map[blockID]*block
	// turn chooses the server of the next block.
	turn int
	// frees are objects to be freed, flight the frees that were sent.
	frees  []layout.Ref
	flight []*remotemem.Op
	store  [freeBatch]remotemem.Op
	// leaked counts objects that no client will use again: the outcome of the operation that would
	// have freed them is unknown.
	leaked uint64
}

// blockID names a block.
type blockID struct{ server, block int }

// block is a block of this client.
type block struct {
	blockID
	units int
	// versions are those of the last use of each object.
	versions []uint16
}

// class has the objects of one length.
type class struct {
	blocks []*block
	// queue has the objects that are not in use, in the order in which they will be. So the log entry
	// of an object can name the next one.
	queue []object
	last  layout.Link
}

// object is one object of a block.
type object struct {
	*block
	i int
}

// link names the object in a log entry.
func (o object) link(s *layout.Shape) layout.Link {
	return layout.LinkTo(o.server, s.PlaceOf(o.block.block, o.i, o.units))
}

// fresh is an object for one use: what a slot will say about it, and its neighbours in the log.
type fresh struct {
	layout.Ref
	object object
	next   layout.Link
	prev   layout.Link
}

// largest is the length of the largest object, in units.
func (s *space) largest() int {
	units := layout.MaxUnits
	for units > 1 && s.super.Shape.Objects(units) < 1 {
		units--
	}
	return units
}

// unitsFor is the length of the objects for values of n bytes. Above 8 units only every fourth of a
// power of two is used: each length that a client uses takes a block.
func (s *space) unitsFor(n int) int {
	units := layout.Units(n)
	if shift := bits.Len(uint(units-1)) - 3; shift > 0 {
		units = (units + 1<<shift - 1) >> shift << shift
	}
	return min(units, s.largest())
}

// take returns an object of so many units.
func (s *space) take(units int, h layout.Hash, deadline clock.Time) (fresh, error) {
	c := s.classes[units]
	if c == nil {
		c = &class{}
		s.classes[units] = c
	}
	if len(c.queue) < 2 {
		if err := s.refill(c, units, deadline); err != nil && (len(c.queue) == 0 || !errors.Is(err, kv.ErrFull)) {
			return fresh{}, err
		}
	}
	o := c.queue[0]
	c.queue = c.queue[1:]
	shape := &s.super.Shape
	o.versions[o.i]++
	f := fresh{object: o, prev: c.last, Ref: layout.Ref{
		Fingerprint: h.Fingerprint(), Units: units, Server: o.server, Place: shape.PlaceOf(o.block.block, o.i, units), Version: o.versions[o.i],
	}}
	if c.last = o.link(shape); len(c.queue) > 0 {
		f.next = c.queue[0].link(shape)
	}
	return f, nil
}

// giveBack makes an object of this client, which no slot names, ready for use.
func (s *space) giveBack(f fresh) {
	c := s.classes[f.Units]
	c.queue = append(c.queue, f.object)
}

// free frees the object that a slot has named, and that this client has replaced.
func (s *space) free(r layout.Ref) {
	shape := &s.super.Shape
	if !shape.Holds(r) {
		return
	}
	if b := s.blocks[blockID{r.Server, shape.BlockOf(r.Place)}]; b != nil {
		if i := shape.IndexOf(r.Place, b.units); i >= 0 && b.units == r.Units {
			s.classes[b.units].queue = append(s.classes[b.units].queue, object{b, i})
		}
		return
	}
	if len(s.frees) >= maxFrees {
		s.leaked++
		return
	}
	if s.frees = append(s.frees, r); len(s.frees) >= freeBatch {
		s.flush()
	}
}

// flush sends the frees that were collected and does not wait for them. The frees of the time before
// have usually arrived; otherwise these wait for the next call.
func (s *space) flush() {
	for _, o := range s.flight {
		if !o.Done {
			return
		}
	}
	s.settle()
	s.frees = slices.DeleteFunc(s.frees, func(r layout.Ref) bool {
		i := len(s.flight)
		if i == freeBatch || !s.fab.Connected(r.Server) {
			return false
		}
		at, off := s.super.Shape.Replica(r.Server, 0, 0)
		word, add := s.super.Shape.FreeBit(r.Place)
		o := &s.store[i]
		s.fab.FetchAdd(o, s.target(at, off+word), add, atFrees+8*i)
		_ = s.fab.Start(o) // if it fails, the operation says so
		s.flight = append(s.flight, o)
		return true
	})
}

// settle counts the frees whose outcome is unknown. They are not repeated: a bit that is added twice
// frees another object.
func (s *space) settle() {
	for _, o := range s.flight {
		if o.Status != 0 {
			s.leaked++
		}
	}
	s.flight = s.flight[:0]
}

// refill finds objects that other clients have freed, or gets another block.
func (s *space) refill(c *class, units int, deadline clock.Time) error {
	for _, b := range c.blocks {
		if err := s.reclaim(c, b, deadline); err != nil {
			return err
		}
	}
	if len(c.queue) > 1 {
		return nil
	}
	return s.grow(c, units, deadline)
}

// reclaim takes back the objects of a block that other clients have freed: it reads the bitmap and
// subtracts what it has read.
func (s *space) reclaim(c *class, b *block, deadline clock.Time) error {
	shape := &s.super.Shape
	n := shape.BitmapLen()
	server, off := shape.Replica(b.server, uint64(b.block)*uint64(shape.BlockUnits), 0)
	s.read(server, off, atIn, n)
	if err := s.do(deadline); err != nil {
		return err
	}
	bitmap, err := s.bytes(nil, atIn, n)
	if err != nil {
		return err
	}
	for at := 0; at < n; at += 8 {
		word := binary.LittleEndian.Uint64(bitmap[at:])
		if word == 0 {
			continue
		}
		s.add(server, off+uint64(at), -word)
		if err := s.once(deadline); err != nil {
			s.drop()
			s.leaked += uint64(bits.OnesCount64(word))
			return timeout(err)
		}
		for ; word != 0; word &= word - 1 {
			place := uint64(b.block)*uint64(shape.BlockUnits) + uint64(at*8+bits.TrailingZeros64(word))
			if i := shape.IndexOf(place, b.units); i >= 0 {
				c.queue = append(c.queue, object{b, i})
			}
		}
	}
	return nil
}

// grow gets a block from one of the servers.
func (s *space) grow(c *class, units int, deadline clock.Time) error {
	shape := &s.super.Shape
	for range s.cfg.Servers {
		server := s.turn % len(s.cfg.Servers)
		s.turn++
		s.cost.RPCs++
		n, err := memservice.Take(s.cfg.Context, s.cfg.Manager, s.cfg.Servers[server], s.id, shape.BlockTable(0), shape.Blocks,
			uint64(layout.UseBy(s.id, units)), deadline)
		switch {
		case errors.Is(err, memservice.ErrFull):
			continue
		case errors.Is(err, memservice.ErrFenced):
			return s.errLost(server)
		case err != nil:
			return timeout(err)
		}
		b := &block{blockID: blockID{server, n}, units: units, versions: make([]uint16, shape.Objects(units))}
		s.blocks[b.blockID] = b
		c.blocks = append(c.blocks, b)
		for i := range b.versions {
			c.queue = append(c.queue, object{b, i})
		}
		return nil
	}
	return kv.ErrFull
}
