package packetbuffer

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

// channel is the hardened carrier: a requester that keeps no copies of WRITEs.
type channel struct {
	link  *Link
	conn  *requester.Conn
	grant memgrant.Grant
	nonce uint32
	tx    wire.Frame // scratch
}

// carrierOf returns the function that makes hardened carriers. silence is how long the switch
// retransmits to a server that does not answer; 0: 255 ms.
func carrierOf(silence time.Duration) func(l *Link, number uint32) Carrier {
	return func(l *Link, number uint32) Carrier {
		ch := &channel{link: l}
		ch.conn = requester.New(requester.Config{Number: number, Ring: inFlight, Waiting: 1, Silence: cmp.Or(silence, hardenedSilence)}, ch)
		return ch
	}
}

func (ch *channel) Up() bool      { return ch.conn.State() == requester.Up }
func (ch *channel) Writes() int   { return ch.conn.Spare() }
func (ch *channel) Reads() bool   { return ch.conn.SendsNow(wire.RCReadRequest, 0) }
func (ch *channel) Nonce() uint32 { return ch.nonce }

func (ch *channel) request(op wire.Opcode, offset uint64, n int) *wire.Frame {
	ch.tx = wire.Frame{V6: ch.conn.Link().To.V6}
	ch.tx.BTH.Opcode = op
	ch.tx.RETH = wire.RETH{VA: ch.grant.Region.Addr + offset, RKey: ch.grant.Region.RKey, Length: uint32(n)}
	return &ch.tx
}

func (ch *channel) Write(c *pipeline.Ctx, offset uint64, b []byte) {
	f := ch.request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	ch.conn.SubmitOnce(c, f, requester.Tag{})
}

// Read identifies the READ by the entry. The numbers of rings begin at 1, so 0 is a WRITE.
func (ch *channel) Read(c *pipeline.Ctx, offset uint64, n int, e framering.Entry) {
	ch.conn.Submit(c, ch.request(wire.RCReadRequest, offset, n), requester.Tag{Flow: e.Ring, Generation: e.Place})
}

func (ch *channel) Attach(s *switchconn.Shared, g memgrant.Grant) {
	ch.grant, ch.nonce = g, NonceOf(s)
	ch.conn.Attach(requester.LinkOf(s))
}

// NonceOf returns a number that differs between connections, also of former incarnations of the
// switch, because queue pairs and PSNs are random.
func NonceOf(s *switchconn.Shared) uint32 { return uint32(s.OwnQPN)<<8 ^ uint32(s.RecvPSN)<<1 }

func (ch *channel) Detach(c *pipeline.Ctx) { ch.conn.Detach(c) }

func (ch *channel) Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool {
	if ch.conn.Link().Peer() != p.SrcAddr() {
		return false
	}
	ch.conn.Packet(c, &p.Frame)
	return true
}

func (ch *channel) Tick(c *pipeline.Ctx) { ch.conn.Tick(c) }
func (ch *channel) Deadline() clock.Time { return ch.conn.Deadline() }

// Done hands the bytes of a READ to the ring.
func (ch *channel) Done(_ *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	if t.Flow == 0 {
		return
	}
	var b []byte
	if a.Kind == requester.Read {
		b = a.Frame.Payload
	}
	ch.link.Came(framering.Entry{Ring: t.Flow, Place: t.Generation}, b)
}

// Retry returns false: the channel does not send a refused request in another form.
func (ch *channel) Retry(requester.Tag) bool { return false }

// Failed asks the program for a new connection.
func (ch *channel) Failed(c *pipeline.Ctx, why string) { ch.link.Failed(c, why) }

// Describe says in captures that the switch made the request for its packet buffer.
func (ch *channel) Describe(t requester.Tag, n *transform.Note) {
	n.Made, n.Why = true, "buffer: store"
	if t.Flow != 0 {
		n.Why = "buffer: load"
	}
}
