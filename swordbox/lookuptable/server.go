package lookuptable

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Server looks up keys in the part of a table that one server has. The machine calls it for one
// frame after another.
type Server interface {
	// Use assigns the server to a table, in which it has the given index; nil means that no table
	// needs the server. The server forgets the frames in flight, and changes that t does not take
	// (Table.Takes).
	Use(t *Table, index int)
	// Bounce sends a frame that came in at port `in` through the server's memory. h is the hash of
	// its key. Bounce returns false if the frame was dropped, and then counts the reason.
	Bounce(c *pipeline.Ctx, in int, f packetio.Frame, k *Key, h uint64) bool
	// Busy reports whether a frame whose key has hash h may be in flight.
	Busy(h uint64) bool
	// InFlight returns how many frames are in flight. Cells returns how many cells are in use.
	InFlight() int
	Cells() int
	// Work sends requests that wait, and finishes lookups whose answers have come. The machine
	// calls it after answers have arrived.
	Work(c *pipeline.Ctx)
	Connection
	Writer
}

// hashes is how many hashes the switch distinguishes when it asks whether a key has frames in
// flight.
const hashes = 1 << 10

// flight is the lookup of a frame in flight.
type flight struct {
	Lookup
	number uint32 // number of the frame in the ring
	end    uint64 // position behind the frame's last cell
	asked  bool   // the READs of all slots were sent, or are not needed
	mask   int    // with masks: the mask up to which these READs were sent
}

// bouncer is the Server of the hardened handler. It sends each frame whose key is not in the cache
// through the memory of its server: a WRITE to a cell, and READs of the cell and of the entry.
type bouncer struct {
	channel
	writer
	link  *Link
	table *Table // nil means that no table needs the server
	epoch uint32 // number of calls of Use
	ring  framering.Ring
	// frames is a ring of the n lookups in flight; first is the index of the oldest. begun is the
	// number of lookups for which the READs of all cells were sent.
	frames          []flight
	first, n, begun int
	circle          circle         // with Layout.Recirculate, in place of ring
	flights         [hashes]uint16 // how many lookups in flight have a key with this hash modulo hashes
}

func (l *Link) newBouncer(number uint32) Server {
	b := &bouncer{link: l}
	b.channel.open(b, number)
	return b
}

func (b *bouncer) Use(t *Table, index int) {
	b.epoch++
	waiting := b.unfinished()
	if !t.Takes(b.table, len(waiting)) {
		waiting = nil
	}
	b.table, b.writer, b.flights = t, writer{queue: waiting}, [hashes]uint16{}
	b.first, b.n, b.begun = 0, 0, 0
	b.ring, b.frames, b.circle = framering.Ring{}, nil, circle{}
	switch {
	case t == nil:
	case t.Recirculate:
		b.frames, b.circle.places = make([]flight, t.Cells), make([]held, t.Cells)
	default:
		b.frames = make([]flight, t.Cells)
		b.ring = framering.New(framering.Config{Layout: t.Ring(index), Carriers: []framering.Carrier{&b.channel}, Epoch: b.epoch, Exact: true, Window: t.Depth})
	}
}

func (b *bouncer) at(i int) *flight { return &b.frames[(b.first+i)%len(b.frames)] }

// Busy reports whether a frame is in flight whose key has hash h, or a hash with the same remainder
// modulo hashes.
func (b *bouncer) Busy(h uint64) bool { return b.flights[h%hashes] != 0 }

func (b *bouncer) InFlight() int { return b.n }

func (b *bouncer) Cells() int {
	if b.circle.places != nil {
		return b.n
	}
	return b.ring.Used()
}

// Bounce writes a frame to the next cell, and asks for the entry and the frame as soon as READs can
// be sent.
func (b *bouncer) Bounce(c *pipeline.Ctx, in int, f packetio.Frame, k *Key, h uint64) bool {
	st := &b.table.stats
	if b.n == len(b.frames) {
		return b.table.Refuse(c, in, f, &st.Full, ReasonFull)
	}
	if b.circle.places != nil {
		return b.hold(c, in, f, k, h)
	}
	switch b.ring.Store(c, f) {
	case framering.Full:
		return b.table.Refuse(c, in, f, &st.Full, ReasonFull)
	case framering.Blocked:
		return b.table.Refuse(c, in, f, &st.Blocked, ReasonBlocked)
	case framering.Long:
		return b.table.Refuse(c, in, f, &st.Long, ReasonLong)
	case framering.Stored:
	}
	b.begin(c, flight{Lookup: Lookup{Key: *k, Hash: h, In: in}, number: b.ring.Newest(), end: b.ring.Written()})
	return true
}

func (b *bouncer) begin(c *pipeline.Ctx, l flight) {
	*b.at(b.n) = l
	b.n++
	b.flights[l.Hash%hashes]++
	b.Work(c)
}

// Work makes progress with changes of entries, asks for slots and cells, and finishes the frames
// that have come back. It repeats this as long as cells become free.
func (b *bouncer) Work(c *pipeline.Ctx) {
	if b.table == nil {
		return
	}
	for moved := true; moved; {
		b.change(c)
		b.ask(c)
		moved = b.finish(c)
	}
}

// ask sends READs for the frames in flight, in their order: for each frame first a READ of the slots
// that may have its entry, and then READs of the cells (places in the server's memory) to which the
// frame was written.
func (b *bouncer) ask(c *pipeline.Ctx) {
	for b.begun < b.n {
		l := b.at(b.begun)
		if !b.askSlots(c, l) {
			return
		}
		if b.circle.places == nil && !b.ring.AskUntil(c, l.end) {
			return
		}
		b.begun++
	}
}

// askSlots sends the READs of the slots of a lookup: one, or one for each mask. It returns false if
// it must go on later.
func (b *bouncer) askSlots(c *pipeline.Ctx, l *flight) bool {
	for !l.asked {
		k, next, ok := b.table.Masks.tuple(&l.Key, l.mask)
		switch {
		case l.Found != Unknown: // an entry under an earlier mask has come
			l.asked = true
			continue
		case !ok && l.mask == 0:
			l.Found = Miss // the packet fits no mask
		case !ok:
		case !b.Up():
			l.Found = Gone
		case !b.Reads():
			return false
		default:
			if l.mask == 0 {
				l.changes = b.table.changes
			}
			_, home := b.table.Place(b.table.Hash.sum(&k))
			b.read(c, b.table.At(home), Probe*SlotLen, ofSlots|purpose(next<<purposeBits), l.number)
			l.mask = next
		}
		l.asked = !ok || l.Found != Unknown || len(b.table.Masks) == 0
	}
	return true
}

// slots handles the result of the READ of slots for the frame number `number`: of those under mask
// number `mask`, if the rule has masks. bytes is nil if the READ has failed. The READs of a frame are
// answered in the order of the masks, so the first entry that is found is the one that counts.
func (b *bouncer) slots(number uint32, mask int, bytes []byte) {
	if b.n == 0 {
		return
	}
	i := int(int32(number - b.at(0).number))
	if i < 0 || i >= b.n || b.at(i).Found != Unknown {
		return
	}
	l := b.at(i)
	if l.Found = Gone; bytes == nil {
		return
	}
	k, _, _ := b.table.Masks.tuple(&l.Key, mask-1)
	a, found, half := search(bytes, &k)
	_, _, further := b.table.Masks.tuple(&l.Key, mask)
	switch l.Action = a; {
	case found:
		l.Found = Hit
	case half:
		l.Found = Torn
	case further:
		l.Found = Unknown
	default:
		l.Found = Miss
	}
}

// finish takes the frames that have come back, and ends their lookups. It reports whether cells
// have become free.
func (b *bouncer) finish(c *pipeline.Ctx) (moved bool) {
	if b.circle.places != nil {
		return b.release(c)
	}
	before := b.ring.Read()
	for f, number, ok := b.ring.Next(); ok; f, number, ok = b.ring.Next() {
		b.table.stats.Lost += uint64(b.ring.Count(number))
		for b.at(0).number != number { // the frames before it did not come back
			b.pop()
		}
		l := b.at(0).Lookup
		b.pop()
		b.table.Done(c, &l, f)
	}
	if b.ring.Empty() {
		b.table.stats.Lost += uint64(b.ring.End())
		for b.n > 0 {
			b.pop()
		}
	}
	return b.ring.Read() != before
}

func (b *bouncer) pop() {
	b.flights[b.at(0).Hash%hashes]--
	b.first = (b.first + 1) % len(b.frames)
	b.n--
	b.begun = max(0, b.begun-1)
}
