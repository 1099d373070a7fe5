package netcache

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// channel is the connection of a cache to one server. When the connection ends, another one may follow.
type channel struct {
	extmem.Link
	extmem.Conn
	m     *Machine
	cache *cache // nil means that no rule needs the channel
}

func (m *Machine) newChannel(number uint32) *channel {
	ch := &channel{m: m}
	ch.Conn = extmem.NewConn(number, m.env.Silence, ch)
	return ch
}

func (ch *channel) Needed() bool { return ch.cache != nil }

// Fit returns an error if the server's memory is too small for the cells, or the path MTU is.
func (ch *channel) Fit(s *switchconn.Shared) error {
	l := &ch.cache.Layout
	all := extmem.Area{Servers: []netip.Addr{ch.Key().Server}, Offset: l.Offset, Cells: 1, Size: int(l.End() - l.Offset)}
	_, err := all.Grant(s)
	if err == nil && s.MTU < l.Size {
		err = errTooShort(l.Size, s.MTU)
	}
	return err
}

// Begin uses a new connection. The values in the server's memory stay: each READ is compared with the index.
func (ch *channel) Begin(s *switchconn.Shared) {
	g, _ := memgrant.Of(s.Answer) // Fit has returned no error
	ch.Attach(s, g)
	ch.cache.begun(ch.Nonce())
}

func (ch *channel) End(c *pipeline.Ctx) { ch.Detach(c) }

func (ch *channel) Requested() requester.Stats { return ch.Conn.Stats() }

// connected reports whether there is a connection, so that a READ can be sent when others have ended.
func (ch *channel) connected() bool { return ch.Usable() && ch.Up() }

// reads and writes report whether a READ, or a WRITE of n bytes, would be sent at once.
func (ch *channel) reads() bool { return ch.connected() && ch.Reads() }

func (ch *channel) writes(n int) bool {
	return ch.connected() && ch.SendsNow(wire.RCWriteOnly, n)
}

// The lowest bit of the field Flow of a request's tag says what it is for. For a WRITE, the other bits are the index
// of a place, and Generation is the number of its probe; for a READ, Generation is the index of a waiting GET. PSN is
// the number of the cache.
const (
	ofValue = 0 // the READ of a value
	ofFill  = 1 // the WRITE of a value
)

// read asks for n bytes of a value, for the waiting GET with an index.
func (ch *channel) read(c *pipeline.Ctx, offset uint64, n, waiting int) {
	ch.Submit(c, ch.Request(wire.RCReadRequest, offset, n), requester.Tag{Flow: ofValue, Generation: uint32(waiting), PSN: ch.cache.number})
}

// write writes a value for a place. The requester keeps no copy: if the WRITE is lost, the cell keeps what it had,
// which the next READ shows.
func (ch *channel) write(c *pipeline.Ctx, offset uint64, b []byte, at int, fill uint32) bool {
	f := ch.Request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	return ch.SubmitOnce(c, f, requester.Tag{Flow: uint32(at)<<1 | ofFill, Generation: fill, PSN: ch.cache.number})
}

// Done ends a request.
func (ch *channel) Done(c *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	switch {
	case ch.cache == nil || ch.cache.number != t.PSN: // of a removed rule
	case t.Flow&1 == ofFill:
		on := evLost
		if a.Kind == requester.Acked {
			on = evStored
		}
		ch.cache.index.ends(int(t.Flow>>1), t.Generation, on)
	default:
		var b []byte
		if a.Kind == requester.Read {
			b = a.Frame.Payload
		}
		ch.cache.came(c, int(t.Generation), b)
	}
}

// Failed is called when the connection has failed. It asks the program for a new one.
func (ch *channel) Failed(c *pipeline.Ctx, why string) {
	ch.m.stats.Failures++
	ch.m.Links.Fail(c, ch, why)
}

// Describe says in captures that the switch made the request for its cache.
func (ch *channel) Describe(t requester.Tag, n *transform.Note) {
	n.Made, n.Why = true, "cache: "+[...]string{"value", "fill"}[t.Flow&1]
}
