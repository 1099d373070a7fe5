package lookuptable

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Connection is the connection of a Server to its memory server. When a connection ends, another
// one may follow.
type Connection interface {
	// Up reports whether there is a connection that fits the present rules.
	Up() bool
	// Begin uses a new connection to a server that lends the memory g. End is called when that
	// connection has ended.
	Begin(s *switchconn.Shared, g memgrant.Grant)
	End(c *pipeline.Ctx)
	// Packet handles a packet of the server; false means that another host has sent it. Tick is
	// called at Deadline.
	Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool
	Tick(c *pipeline.Ctx)
	Deadline() clock.Time
}

// purpose says what a request is for. It is in the field Flow of the request's tag. Above the lowest
// purposeBits bits is the number of the mask under which slots are read.
type purpose uint32

const purposeBits = 8

func (p purpose) what() purpose { return p & (1<<purposeBits - 1) }

const (
	ofCells purpose = iota // the WRITE of a frame to cells
	ofCell                 // the READ of a frame from a cell
	ofSlots                // the READ of the slots in which the entry of a key may be
	ofSpan                 // the READ of slots that are to change, or that an operator lists
	ofSlot                 // the WRITE of an entry to a slot
)

var purposes = [...]string{"store", "load", "entry", "slots", "change"}

// channel is the Connection of a bouncer, the hardened Server. It keeps no copies of the frames
// that it writes to cells.
type channel struct {
	extmem.Conn
	b   *bouncer
	mtu int
}

func (ch *channel) open(b *bouncer, number uint32) {
	ch.b = b
	ch.Conn = extmem.NewConn(number, b.link.m.cfg.Silence, ch)
}

// Up reports whether the connection is up and the table fits the server's memory. Otherwise Reads
// is false and Writes is 0.
func (ch *channel) Up() bool    { return ch.b.link.Usable() && ch.Conn.Up() }
func (ch *channel) Reads() bool { return ch.Up() && ch.Conn.Reads() }

func (ch *channel) Writes() int {
	if !ch.Up() {
		return 0
	}
	return ch.Spare()
}

// Read asks for the bytes of a cell, which holds a frame or a part of one.
func (ch *channel) Read(c *pipeline.Ctx, offset uint64, n int, e framering.Entry) {
	ch.read(c, offset, n, ofCell, e.Place)
}

// read reads n bytes for a purpose. id names the frame, the cell or the change for which they are
// read.
func (ch *channel) read(c *pipeline.Ctx, offset uint64, n int, why purpose, id uint32) {
	ch.Submit(c, ch.Request(wire.RCReadRequest, offset, n), requester.Tag{Flow: uint32(why), Generation: id, PSN: wire.PSN(ch.b.epoch)})
}

// write sends a WRITE of b, a slot with an entry, for the change with number id. The requester
// keeps a copy of b.
func (ch *channel) write(c *pipeline.Ctx, offset uint64, b []byte, id uint32) {
	f := ch.Request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	ch.Submit(c, f, requester.Tag{Flow: uint32(ofSlot), Generation: id, PSN: wire.PSN(ch.b.epoch)})
}

func (ch *channel) Begin(s *switchconn.Shared, g memgrant.Grant) {
	ch.mtu = s.MTU
	ch.Attach(s, g)
}

func (ch *channel) End(c *pipeline.Ctx) { ch.Detach(c) }

// Done passes the result of a request to the part of the bouncer ch.b that has sent it: to its
// ring, its lookups or its writer. The field PSN of a tag holds the bouncer's epoch at the time
// when the request was sent.
func (ch *channel) Done(_ *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	var b []byte
	if a.Kind == requester.Read {
		b = a.Frame.Payload
	}
	if t.PSN != wire.PSN(ch.b.epoch) {
		return // the bouncer serves another table now
	}
	switch why := purpose(t.Flow); why.what() {
	case ofCell:
		ch.b.ring.Came(framering.Entry{Ring: ch.b.epoch, Place: t.Generation}, b)
	case ofSlots:
		ch.b.slots(t.Generation, int(why>>purposeBits), b)
	case ofSpan:
		ch.b.writer.span(t.Generation, b)
	case ofSlot:
		ch.b.writer.wrote(t.Generation, a.Kind == requester.Acked)
	case ofCells:
	}
}

func (ch *channel) Failed(c *pipeline.Ctx, why string) { ch.b.link.failed(c, why) }

// Describe says in captures that the switch made the request for its lookup table.
func (ch *channel) Describe(t requester.Tag, n *transform.Note) {
	n.Made, n.Why = true, "lookup: "+purposes[purpose(t.Flow).what()]
}
