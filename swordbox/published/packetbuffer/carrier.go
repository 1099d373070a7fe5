package packetbuffer

import (
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

var Kind = handler.Kind{Name: "buffer published", Actions: []rules.Action{packetbuffer.Buffer}, Mode: rules.Published, Listings: packetbuffer.Kind.Listings}

func init() {
	Kind.New = func(e *handler.Env) handler.Handler {
		return packetbuffer.New(packetbuffer.Config{
			Kind: &Kind, Port: e.Port, Trusting: true,
			Carrier: func(l *packetbuffer.Link, _ uint32) packetbuffer.Carrier { return &carrier{link: l} },
		})
	}
}

// endless is what Writes returns: the carrier can send any number of WRITEs without waiting.
const endless = 1 << 20

// carrier is the Carrier of the published machine. It keeps no copies of requests, so it never
// retransmits.
type carrier struct {
	extmem.Blind
	pipeline.NoTimer
	link *packetbuffer.Link
	// asked is the entry of the last READ. waits is true while no response to it has arrived.
	asked framering.Entry
	waits bool
}

func (k *carrier) Reads() bool   { return k.Up() && !k.waits }
func (k *carrier) Nonce() uint32 { return 0 }

// Longest returns 0 bytes, which means that a request has one entry, as in the paper.
func (k *carrier) Longest() int { return 0 }

func (k *carrier) Writes() int {
	if !k.Up() {
		return 0
	}
	return endless
}

func (k *carrier) Write(c *pipeline.Ctx, offset uint64, b []byte) {
	k.Send(c, wire.RCWriteOnly, offset, len(b), b)
}

func (k *carrier) Read(c *pipeline.Ctx, offset uint64, n int, e framering.Entry) {
	k.asked, k.waits = e, true
	k.Send(c, wire.RCReadRequest, offset, n, nil)
}

func (k *carrier) Attach(s *switchconn.Shared, g memgrant.Grant) {
	k.Blind.Attach(s, g)
	k.missed()
}

// Detach ends the READ in flight without an answer.
func (k *carrier) Detach(*pipeline.Ctx) {
	k.Blind.Detach()
	k.missed()
}

func (k *carrier) missed() {
	if k.waits {
		k.waits = false
		k.link.Came(k.asked, nil)
	}
}

// Packet takes any READ response as the answer to the last READ.
func (k *carrier) Packet(_ *pipeline.Ctx, p *pipeline.Parsed) bool {
	if p.BTH.Opcode == wire.RCReadResponseOnly {
		k.waits = false
		k.link.Came(k.asked, p.Payload)
	}
	return true
}
