package packetbuffer

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

var Kind = handler.Kind{Name: "buffer published", Actions: []rules.Action{packetbuffer.Buffer}, Mode: rules.Published, Listings: packetbuffer.Kind.Listings}

func init() {
	Kind.New = func(e *handler.Env) handler.Handler {
		return packetbuffer.New(packetbuffer.Config{
			Kind: &Kind, Port: e.Port, Missing: e.Missing, Trusting: true,
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
	// depth is how many READs may be in flight. asked are the entries of those in flight, the oldest
	// one first.
	depth int
	asked []framering.Entry
}

func (k *carrier) Reads() bool   { return k.Up() && len(k.asked) < k.depth }
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
	k.asked = append(k.asked, e)
	k.Send(c, wire.RCReadRequest, offset, n, nil)
}

func (k *carrier) Attach(s *switchconn.Shared, g memgrant.Grant) {
	k.Blind.Attach(s, g)
	k.depth = s.Depth
	k.missed()
}

// Detach ends the READs in flight without an answer.
func (k *carrier) Detach(*pipeline.Ctx) {
	k.Blind.Detach()
	k.missed()
}

func (k *carrier) missed() {
	for len(k.asked) > 0 {
		k.came(nil)
	}
}

// came ends the oldest READ in flight; b is the answer, or nil if there is none.
func (k *carrier) came(b []byte) {
	e := k.asked[0]
	k.asked = k.asked[:copy(k.asked, k.asked[1:])]
	k.link.Came(e, b)
}

// Packet takes any READ response as the answer to the oldest READ in flight.
func (k *carrier) Packet(_ *pipeline.Ctx, p *pipeline.Parsed) bool {
	if p.BTH.Opcode == wire.RCReadResponseOnly && len(k.asked) > 0 {
		k.came(p.Payload)
	}
	return true
}
