package fusee

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// freeBatch is how many frees a client collects before it sends them (see space.free).
	freeBatch = 16
	// maxFrees is how many frees may wait until a failed connection works again. Further frees are
	// lost.
	maxFrees = 1024
)

// space is the client's part of memory management: the objects in its own blocks, and frees of
// objects in blocks of other clients.
type space struct {
	mem   *memory
	super layout.Superblock
	// dir is a copy of the directory. homes (subtables of a key) and raw (bytes that were read) are
	// buffers for reuse.
	dir   layout.Directory
	homes []int
	raw   []byte
	// index are the servers with replicas of the index: first the primary, then the backups.
	index    []int
	classes  map[int]*class // the key is the length of the class's objects in units
	blocks   map[blockID]*block
	requests requests
	copies   copies
	// doubts is the last value that the client has read of DoubtWord, which counts how often frees
	// of objects were perhaps lost.
	doubts uint64
	// nextLook is when the client may look again for room in blocks that others have left.
	nextLook clock.Time
	// limbo are blocks that the client has tried to take over, with an unknown outcome.
	limbo []limbo
	// frees are objects to be freed. flight are the FETCH_ADDs for frees that were sent; store is
	// the memory for them.
	frees  []layout.Ref
	flight []*remotemem.Op
	store  [freeBatch]remotemem.Op
	// unsure are objects of this client whose operations have an unknown outcome, so that a slot
	// may name them.
	unsure []object
	// lost counts frees that were perhaps not executed. owed is true if DoubtWord, the store's
	// counter of such frees, does not count all of them yet.
	lost uint64
	owed bool
}

// class has the client's blocks and free objects of one length.
type class struct {
	blocks []*block
	// turn is the index of the block in which the client has last looked for freed objects.
	turn int
	// queue has the free objects in the order in which the client will use them. So the log entry
	// of an object can name the object that the client will use next. last is the link to the
	// object that the client has used last.
	queue []object
	last  layout.Link
	// fresh is true if the class got its last free objects with a block that was never used.
	fresh bool
}

// object is object number i of a block.
type object struct {
	*block
	i int
}

// ref returns the content of the slot that names the last use of the object.
func (o object) ref(s *layout.Shape, fingerprint byte) layout.Ref {
	return layout.Ref{
		Fingerprint: fingerprint, Units: o.units, Server: o.server, Place: s.PlaceOf(o.block.block, o.i, o.units), Version: o.versions[o.i],
	}
}

// link returns the Link by which log entries name the object.
func (o object) link(s *layout.Shape) layout.Link {
	return layout.LinkTo(o.server, s.PlaceOf(o.block.block, o.i, o.units))
}

// fresh is an object that the client has taken for one use: the content of the slot that will name
// it, and its neighbours in the log.
type fresh struct {
	layout.Ref
	object object
	next   layout.Link
	prev   layout.Link
}

// clear forgets all blocks of the client, and all objects that it has still to free. It is called
// when the client starts, and when its number has ended because it was taken for dead.
func (s *space) clear() {
	s.classes, s.blocks = make(map[int]*class), make(map[blockID]*block)
	s.requests.asked = make([]request, len(s.mem.cfg.Servers))
	s.frees, s.unsure, s.limbo, s.nextLook = nil, nil, nil, 0
	s.settle()
}

// largest returns the length of the longest object that fits into a block, in units.
func (s *space) largest() int {
	units := layout.MaxUnits
	for units > 1 && s.super.Shape.Objects(units) < 1 {
		units--
	}
	return units
}

// unitsFor returns the length, in units, of the objects for values of n bytes. A client needs a
// block for each length that it uses. To use few lengths, unitsFor rounds lengths of more than 8
// units up: to a power of two, or to one of three lengths between two powers of two.
func (s *space) unitsFor(n int) int {
	units := layout.Units(n)
	if shift := bits.Len(uint(units-1)) - 3; shift > 0 {
		units = (units + 1<<shift - 1) >> shift << shift
	}
	return min(units, s.largest())
}

func (s *space) class(units int) *class {
	c := s.classes[units]
	if c == nil {
		c = &class{}
		s.classes[units] = c
	}
	return c
}

// take returns a free object with the given number of units for a key. If fewer than two are left,
// it gets further ones first.
func (s *space) take(units int, key uint64, h layout.Hash, deadline clock.Time) (fresh, error) {
	c := s.class(units)
	if len(c.queue) < 2 {
		if err := s.refill(c, units, deadline); err != nil && (len(c.queue) == 0 || !errors.Is(err, kv.ErrFull)) {
			return fresh{}, err
		}
	}
	o := c.queue[0]
	if o.versions[o.i] >= o.word.Version() {
		if err := s.raise(o.block, deadline); err != nil {
			return fresh{}, err
		}
	}
	c.queue = c.queue[1:]
	shape := &s.super.Shape
	o.versions[o.i]++
	o.used[o.i], o.keys[o.i] = true, key
	f := fresh{object: o, prev: c.last, Ref: o.ref(shape, h.Fingerprint())}
	if c.last = o.link(shape); len(c.queue) > 0 {
		f.next = c.queue[0].link(shape)
	}
	s.requests.askAhead(s, c, units)
	return f, nil
}

// ready is called when no slot names an object of this client: the object can be used again.
func (s *space) ready(o object) {
	s.unsure = slices.DeleteFunc(s.unsure, func(other object) bool { return other == o })
	if o.used[o.i] {
		if o.used[o.i] = false; !o.of(s) {
			return
		}
		if c := s.class(o.units); o.free(o.i) {
			c.queue = append(c.queue, o)
		}
	}
}

// of reports whether the object's block still belongs to the client of space s. After a change of
// the members it may have another owner.
func (o object) of(s *space) bool { return s.blocks[o.blockID] == o.block }

// forsake is called when the operation for which an object was taken has failed. It makes the
// object ready for use again. If a replica of a slot may name the object, it adds the object to
// unsure instead.
func (s *space) forsake(f fresh, err error) {
	if errors.Is(err, kv.ErrNoEffect) {
		s.ready(f.object)
		return
	}
	s.unsure = append(s.unsure, f.object)
}

// free frees the object that a slot named before this client replaced the slot's value. If another
// client owns the object's block, the free is sent later.
func (s *space) free(r layout.Ref) {
	shape := &s.super.Shape
	if !shape.Holds(r) || !s.mem.has(r.Server) {
		return
	}
	if b := s.blocks[blockID{r.Server, shape.BlockOf(r.Place)}]; b != nil {
		if i := shape.IndexOf(r.Place, b.units); i >= 0 && b.units == r.Units && b.versions[i] == r.Version {
			s.ready(object{b, i})
		}
		return
	}
	if len(s.frees) >= maxFrees {
		s.lose()
		return
	}
	if s.frees = append(s.frees, r); len(s.frees) >= freeBatch {
		s.flush()
	}
}

// lose records that a free was perhaps lost. The client counts it in DoubtWord (see confess), so
// the owner of the object will find the object by a sweep.
func (s *space) lose() {
	s.lost++
	s.owed = true
}

// flush sends the frees that the client has collected, and does not wait for their completion. If
// earlier frees are not complete yet, it sends nothing: the frees wait for the next call.
func (s *space) flush() {
	if slices.ContainsFunc(s.flight, func(o *remotemem.Op) bool { return !o.Done }) {
		return
	}
	s.settle()
	s.frees = slices.DeleteFunc(s.frees, func(r layout.Ref) bool {
		i := len(s.flight)
		if i == freeBatch || s.mem.newer != s.mem.view || !s.mem.fab.Connected(r.Server) {
			return false
		}
		at, off := s.super.Shape.Replica(r.Server, 0, 0)
		shape := s.super.Shape
		if s.mem.cfg.Published {
			// Hole 4 of HOLES.md: the public code shifts the bit as a number of 32 bits.
			shape.Format = layout.Published
		}
		word, add := shape.FreeBit(r.Place)
		o := &s.store[i]
		s.mem.fab.FetchAdd(o, s.mem.target(at, off+word), add, atFrees+8*i)
		_ = s.mem.fab.Start(o) // settle handles a failure
		s.flight = append(s.flight, o)
		return true
	})
}

// settle counts the frees that have failed, whose outcome is unknown. They are not repeated: if a
// bit is added twice, the carry sets another object's bit.
func (s *space) settle() {
	for _, o := range s.flight {
		if o.Status != 0 {
			s.lose()
		}
	}
	s.flight = s.flight[:0]
}

// confess increments DoubtWord if frees of this client were perhaps lost, so that owners sweep
// their blocks. The batch may be executed twice and increment the word more than once, which does
// no harm.
func (s *space) confess(deadline clock.Time) error {
	if !s.owed {
		return nil
	}
	s.mem.add(s.root(), layout.DoubtWord, 1)
	err := s.mem.do(deadline)
	s.owed = err != nil
	return err
}
