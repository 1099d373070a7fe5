package nic

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// transfer is data that the NIC has to send: for a READ of a peer, or for a WRITE or REKEY of this
// NIC.
type transfer struct {
	to     peer
	head   onerma.Header // header of the next data message
	cipher *Cipher
	prev   vector // the initialisation vector of the operation's previous message
	// source is the region with the bytes, which begin at offset `from`; it is nil for a REKEY.
	// version is the version of the region's key when the READ was accepted.
	source  *Region
	from    uint64
	version uint32
}

// server sends the data of transfers, in the order in which they were queued.
type server struct {
	queue ring[transfer]
	// free is when the link will have sent all data that the server has passed to it.
	free clock.Time
}

// Bounds of the server.
const (
	// The queue has room for maxQueued transfers besides one for each slot of the NIC.
	maxQueued = 4096
	// maxStep is how many data messages one call of Frame or Tick sends at most.
	maxStep = 64
)

func (s *server) full() bool { return s.queue.full() }

// serveRead queues the data of a READ.
func (n *NIC) serveRead(r *Region, request *onerma.Header, to peer, c *Cipher, prev *vector) {
	h := *request
	h.Kind = onerma.Data
	n.server.queue.push(transfer{to: to, head: h, cipher: c, prev: *prev, source: r, from: h.Offset, version: r.version})
}

// serveWrite queues the data of the WRITE or REKEY in slot i.
func (n *NIC) serveWrite(i uint16) {
	s := &n.slots[i]
	n.server.queue.push(transfer{
		to: s.to, head: s.header(i, onerma.Data), cipher: s.cmd.Key, prev: s.prev, source: s.cmd.Local, from: s.cmd.LocalOffset,
	})
}

// serve sends data of the queued transfers while the link is free, at most maxStep messages.
func (n *NIC) serve(now clock.Time, out *packetio.Batch) {
	for range maxStep {
		n.charge(now)
		if n.server.queue.n == 0 || n.server.free > now {
			return
		}
		x := n.server.queue.front()
		size := min(n.piece, int(x.head.Length)-int(x.head.At))
		if n.current(x, out) {
			n.sendData(x, size, out)
		} else {
			size = int(x.head.Length) - int(x.head.At)
		}
		if x.head.Op == onerma.Read {
			n.inbound -= size
		}
		x.head.At += uint16(size)
		if int(x.head.At) == int(x.head.Length) {
			n.server.queue.pop()
		}
	}
}

// current reports whether transfer x may go on. The transfer of a WRITE or REKEY, which this NIC
// has initiated, may go on while the command is in service. The transfer of a READ may not go on if
// the region has ended, or SetKey or a REKEY has set its key since the NIC accepted the READ; current then sends an
// AUTHFAIL to the initiator.
func (n *NIC) current(x *transfer, out *packetio.Batch) bool {
	if x.head.Op != onerma.Read {
		s := &n.slots[x.head.Slot]
		return s.state == serving && s.generation == x.head.Generation
	}
	if !x.source.gone && x.source.version == x.version {
		return true
	}
	n.stats.AuthFails++
	n.egress.answer(&x.to, &x.head, onerma.AuthFail, n.egress.sealer.reserved, &x.prev, out)
	return false
}

// sendData sends the next message of a transfer.
func (n *NIC) sendData(x *transfer, size int, out *packetio.Batch) {
	var body []byte
	if x.head.Op == onerma.Rekey {
		body = n.slots[x.head.Slot].cmd.NewKey[:]
	} else {
		var err error
		if body, err = n.egress.sealer.source(x.source.mem, int(x.from)+int(x.head.At), size); err != nil {
			// The host has deregistered the memory in its mem.Table. No data is sent, so the peer's
			// operation ends by timeout.
			return
		}
	}
	n.egress.send(&x.to, &x.head, x.cipher, &x.prev, body, out)
}

// charge adds to server.free, the time from which the link is free, the time that the link needs
// for the messages sent since the last call. Requests and refusals take time of the link, too: if
// they did not count, the NIC would send faster than the link, and its messages would queue up.
func (n *NIC) charge(now clock.Time) {
	if n.cfg.Rate > 0 && n.egress.unpaid > 0 {
		n.server.free = max(n.server.free, now).Add(time.Duration(n.egress.unpaid * 8 * int64(time.Second) / n.cfg.Rate))
	}
	n.egress.unpaid = 0
}
