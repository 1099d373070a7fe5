package lookuptable

import (
	"cmp"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// inFlight is how many requests may be in flight to a server. The switch keeps some bytes of each.
const inFlight = 512

// hardenedSilence is how long a server may be silent if the program sets no bound.
const hardenedSilence = 255 * time.Millisecond

// Connection is the connection of a Server. Several may follow one another.
type Connection interface {
	// Up reports whether there is a connection that fits the present rules.
	Up() bool
	// Begin uses a new connection to a server that lends g. End is called when it has ended.
	Begin(s *switchconn.Shared, g memgrant.Grant)
	End(c *pipeline.Ctx)
	// Packet handles a packet of the server; false: another host has sent it. Tick is called at
	// Deadline.
	Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool
	Tick(c *pipeline.Ctx)
	Deadline() clock.Time
}

// purpose says what a request is for. It is in the tag of the request.
type purpose uint8

const (
	ofCells purpose = iota // the WRITE of a cell
	ofCell                 // the READ of a cell
	ofSlots                // the READ of the slots of a key
	ofSpan                 // the READ of slots that are to change, or that an operator lists
	ofSlot                 // the WRITE of a slot
)

var purposes = [...]string{"store", "load", "entry", "slots", "change"}

// channel is the connection to a server, by package requester. It keeps no copies of cells.
type channel struct {
	b     *bouncer
	conn  *requester.Conn
	grant memgrant.Grant
	nonce uint32
	mtu   int
	tx    wire.Frame // scratch
}

func (ch *channel) open(b *bouncer, number uint32) {
	ch.b = b
	ch.conn = requester.New(requester.Config{
		Number: number, Ring: inFlight, Waiting: 1, Silence: cmp.Or(b.link.m.cfg.Silence, hardenedSilence),
	}, ch)
}

func (ch *channel) Up() bool      { return ch.b.link.Usable() && ch.conn.State() == requester.Up }
func (ch *channel) Reads() bool   { return ch.Up() && ch.conn.SendsNow(wire.RCReadRequest, 0) }
func (ch *channel) Nonce() uint32 { return ch.nonce }

func (ch *channel) Writes() int {
	if !ch.Up() {
		return 0
	}
	return ch.conn.Spare()
}

func (ch *channel) request(op wire.Opcode, offset uint64, n int) *wire.Frame {
	ch.tx = wire.Frame{V6: ch.conn.Link().To.V6}
	ch.tx.BTH.Opcode = op
	ch.tx.RETH = wire.RETH{VA: ch.grant.Region.Addr + offset, RKey: ch.grant.Region.RKey, Length: uint32(n)}
	return &ch.tx
}

// Write writes a cell, of which it keeps no copy.
func (ch *channel) Write(c *pipeline.Ctx, offset uint64, b []byte) {
	f := ch.request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	ch.conn.SubmitOnce(c, f, requester.Tag{})
}

// Read reads a cell.
func (ch *channel) Read(c *pipeline.Ctx, offset uint64, n int, e framering.Entry) {
	ch.read(c, offset, n, ofCell, e.Place)
}

// read reads n bytes for a purpose. id names the frame, the cell or the change.
func (ch *channel) read(c *pipeline.Ctx, offset uint64, n int, why purpose, id uint32) {
	ch.conn.Submit(c, ch.request(wire.RCReadRequest, offset, n), requester.Tag{Flow: uint32(why), Generation: id, PSN: wire.PSN(ch.b.epoch)})
}

// write writes a slot, of which the requester keeps a copy.
func (ch *channel) write(c *pipeline.Ctx, offset uint64, b []byte, id uint32) {
	f := ch.request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	ch.conn.Submit(c, f, requester.Tag{Flow: uint32(ofSlot), Generation: id, PSN: wire.PSN(ch.b.epoch)})
}

func (ch *channel) Begin(s *switchconn.Shared, g memgrant.Grant) {
	// A number that differs between connections, also of former incarnations of the switch, because
	// queue pairs and PSNs are random.
	ch.grant, ch.nonce, ch.mtu = g, uint32(s.OwnQPN)<<8^uint32(s.RecvPSN)<<1, s.MTU
	ch.conn.Attach(requester.LinkOf(s))
}

func (ch *channel) End(c *pipeline.Ctx) { ch.conn.Detach(c) }

func (ch *channel) Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool {
	if ch.conn.Link().Peer() != p.SrcAddr() {
		return false
	}
	ch.conn.Packet(c, &p.Frame)
	return true
}

func (ch *channel) Tick(c *pipeline.Ctx) { ch.conn.Tick(c) }
func (ch *channel) Deadline() clock.Time { return ch.conn.Deadline() }

// Done hands the bytes of a READ to who has asked for them. The PSN of a tag is the epoch.
func (ch *channel) Done(_ *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	var b []byte
	if a.Kind == requester.Read {
		b = a.Frame.Payload
	}
	if t.PSN != wire.PSN(ch.b.epoch) {
		return // the table has another place now
	}
	switch purpose(t.Flow) {
	case ofCell:
		ch.b.ring.Came(framering.Entry{Ring: ch.b.epoch, Place: t.Generation}, b)
	case ofSlots:
		ch.b.slots(t.Generation, b)
	case ofSpan:
		ch.b.writer.span(t.Generation, b)
	case ofSlot:
		ch.b.writer.wrote(t.Generation, a.Kind == requester.Acked)
	case ofCells:
	}
}

// Retry returns false: the channel does not send a refused request in another form.
func (ch *channel) Retry(requester.Tag) bool { return false }

// Failed asks the program for a new connection.
func (ch *channel) Failed(c *pipeline.Ctx, why string) { ch.b.link.failed(c, why) }

// Describe says in captures that the switch made the request for its lookup table.
func (ch *channel) Describe(t requester.Tag, n *transform.Note) {
	n.Made, n.Why = true, "lookup: "+purposes[t.Flow]
}
