package nic

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// egress makes and seals the frames that the NIC sends, and counts them.
type egress struct {
	self   [4]byte
	sealer sealer
	tx     onerma.Frame
	stats  *Stats
	unpaid int64 // bytes of the messages sent since NIC.charge was last called
}

// open begins a frame: it gives the message its counter, and appends all headers in front of a body
// of size bytes. The bool is false if no counter is left.
func (e *egress) open(to *peer, h *onerma.Header, size int, out *packetio.Batch) ([]byte, bool) {
	counter, ok := e.sealer.next()
	if !ok {
		e.stats.Exhausted++
		return nil, false
	}
	h.Counter = counter
	e.sealer.iv.set(counter, e.self)
	e.tx.Header, e.tx.Eth.Dst, e.tx.IPv4.Dst = *h, to.mac, to.addr
	e.tx.IPv4.ID++ // messages with consecutive numbers can travel as one super-frame
	return e.tx.AppendOpen(out.Alloc(e.tx.Len(size)), size), true
}

// seal appends the encrypted body to frame b, which the method open has begun, and sends the frame.
func (e *egress) seal(b, body []byte, c *Cipher, prev *vector, out *packetio.Batch) {
	b = e.sealer.seal(b, body, c, prev)
	e.stats.Sent++
	e.stats.SentBytes += uint64(len(b))
	e.unpaid += int64(len(b))
	out.Add(0, b)
}

// send sends a message with a body. When it returns, the sealer's vector is that of the message.
func (e *egress) send(to *peer, h *onerma.Header, c *Cipher, prev *vector, body []byte, out *packetio.Batch) {
	if b, ok := e.open(to, h, len(body), out); ok {
		e.seal(b, body, c, prev, out)
	}
}

// answer sends a message of kind k without a body, as the answer to a request. Its header is that
// of the request, except for Kind, At and Counter.
func (e *egress) answer(to *peer, request *onerma.Header, k onerma.Kind, c *Cipher, prev *vector, out *packetio.Batch) {
	h := *request
	h.Kind, h.At = k, 0
	e.send(to, &h, c, prev, nil, out)
}
