package extmem

import (
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Blind sends requests to the memory that a server lends to the switch. It keeps no copies and
// never retransmits. Published handlers use it. The zero value has no connection.
type Blind struct {
	up     bool
	link   requester.Link
	region memgrant.Region
	psn    wire.PSN
	tx     wire.Frame // scratch
}

// Attach uses a new connection to a server that lends the memory g.
func (k *Blind) Attach(s *switchconn.Shared, g memgrant.Grant) {
	k.up, k.link, k.region, k.psn = true, requester.LinkOf(s), g.Region, s.SendPSN
}

// Detach is called when the connection has ended.
func (k *Blind) Detach() { k.up = false }

func (k *Blind) Up() bool { return k.up }

// Send sends a request for n bytes of the server's memory beginning at offset: a READ, or a WRITE
// of b. The request takes one PSN, so a READ must be answered by one packet.
func (k *Blind) Send(c *pipeline.Ctx, op wire.Opcode, offset uint64, n int, b []byte) {
	f := &k.tx
	*f = wire.Frame{V6: k.link.To.V6}
	f.BTH.Opcode, f.Payload = op, b
	f.RETH = wire.RETH{VA: k.region.Addr + offset, RKey: k.region.RKey, Length: uint32(n)}
	transform.Request(f, &k.link.To, k.psn)
	k.psn = k.psn.Next()
	c.Emit(f, "")
}
