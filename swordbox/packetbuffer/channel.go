package packetbuffer

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// channel is the Carrier of the hardened machine: a requester that retransmits, but keeps no
// payload of WRITEs.
type channel struct {
	extmem.Conn
	link *Link
}

// carrierOf returns the function that makes the Carrier of a link for hardened rules. silence is
// how long the switch retransmits to a server that does not answer; 0 means 255 ms.
func carrierOf(silence time.Duration) func(l *Link, number uint32) Carrier {
	return func(l *Link, number uint32) Carrier {
		ch := &channel{link: l}
		ch.Conn = extmem.NewConn(number, silence, ch)
		return ch
	}
}

func (ch *channel) Writes() int { return ch.Spare() }

// Read submits the READ of an entry. The tag holds the entry's ring in Flow and its place in
// Generation. The numbers of rings begin at 1, so Flow 0 marks a WRITE.
func (ch *channel) Read(c *pipeline.Ctx, offset uint64, n int, e framering.Entry) {
	ch.Submit(c, ch.Request(wire.RCReadRequest, offset, n), requester.Tag{Flow: e.Ring, Generation: e.Place})
}

// Done hands the bytes of a READ to the ring, and notes when a WRITE has been executed.
func (ch *channel) Done(c *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	if t.Flow == 0 {
		if a.Kind == requester.Acked {
			ch.link.Written(c.Now)
		}
		return
	}
	var b []byte
	if a.Kind == requester.Read {
		b = a.Frame.Payload
	}
	ch.link.Came(framering.Entry{Ring: t.Flow, Place: t.Generation}, b)
}

func (ch *channel) Failed(c *pipeline.Ctx, why string) { ch.link.Failed(c, why) }

// Describe says in captures that the switch made the request for its packet buffer.
func (ch *channel) Describe(t requester.Tag, n *transform.Note) {
	n.Made, n.Why = true, "buffer: store"
	if t.Flow != 0 {
		n.Why = "buffer: load"
	}
}
