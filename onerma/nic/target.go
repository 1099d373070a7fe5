package nic

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// ticketState is the state of an inbound WRITE or REKEY:
//
//	unused ── request ──▶ queuing ── window ──▶ pulling ── all data, or time-out ──▶ unused
//	                         │ dispatch time-out: NACK ──▶ unused
//
// A new key and the end of the region lead from every state to unused (revoke).
type ticketState uint8

const (
	unused ticketState = iota
	queuing
	pulling
)

// ticket is the state of an inbound WRITE or REKEY at its target.
type ticket struct {
	state      ticketState
	generation uint16
	from       peer
	head       onerma.Header // header of the request
	cipher     *Cipher
	region     *Region
	prev       vector // vector of the request; once the target has sent the pull, vector of the pull
	landed     pieces
	body       Key // the new key of a REKEY
}

// name returns the number by which messages name the ticket. i is its index in tickets.
func (t *ticket) name(i uint16) uint32 { return uint32(t.generation)<<16 | uint32(i) }

// requested handles the request of a peer: the NIC refuses it, queues the data of a READ, or makes
// a ticket for a WRITE or REKEY.
func (n *NIC) requested(now clock.Time, f *onerma.Frame, out *packetio.Batch) {
	from := peer{f.IPv4.Src, f.Eth.Src}
	r := n.region(f.Region)
	var c *Cipher
	ok := false
	if r != nil {
		c = n.egress.sealer.derived(r, f.IPv4.Src, PID(f.PID), f.Op)
		_, ok = n.egress.sealer.open(f, c, &vector{})
	}
	var prev vector
	prev.set(f.Counter, f.IPv4.Src)
	h := f.Header
	switch {
	case !ok:
		n.stats.AuthFails++
		n.egress.answer(&from, &h, onerma.AuthFail, n.egress.sealer.reserved, &prev, out)
	case !r.allows(&h) || h.Ticket != 0:
		n.stats.Refused++
	case n.inbound+int(h.Length) > n.cfg.Threshold || n.server.full() || h.Op != onerma.Read && len(n.freeTickets) == 0:
		n.stats.Nacks++
		n.egress.answer(&from, &h, onerma.Nack, c, &prev, out)
	case h.Op == onerma.Read:
		n.stats.Served++
		n.inbound += int(h.Length)
		n.serveRead(r, &h, from, c, &prev)
	default:
		n.stats.Served++
		n.inbound += int(h.Length)
		n.queue(now, &ticket{from: from, head: h, cipher: c, region: r, prev: prev})
	}
}

// queue makes a ticket wait until the solicitation window admits it.
func (n *NIC) queue(now clock.Time, t *ticket) {
	i := n.freeTickets[len(n.freeTickets)-1]
	n.freeTickets = n.freeTickets[:len(n.freeTickets)-1]
	t.generation = n.tickets[i].generation + 1
	t.state = queuing
	n.tickets[i] = *t
	n.window.fifos[t.head.Class].push(waiter{
		ticket: true, index: i, deadline: now.Add(n.cfg.DispatchTimeout), size: int(t.head.Length),
	})
}

// pull asks the initiator for the data of a ticket that the window has admitted.
func (n *NIC) pull(now clock.Time, i uint16, out *packetio.Batch) {
	t := &n.tickets[i]
	t.state = pulling
	n.inbound -= int(t.head.Length)
	n.timers.Set(uint32(len(n.slots))+uint32(i), now.Add(n.cfg.Timeout))
	h := t.head
	h.Kind, h.Ticket = onerma.Pull, t.name(i)
	binary.BigEndian.PutUint32(n.egress.sealer.in[:], uint32(n.cfg.Timeout))
	n.egress.send(&t.from, &h, t.cipher, &t.prev, n.egress.sealer.in[:onerma.PullLen], out)
	t.prev = n.egress.sealer.iv
}

// release frees ticket i, the bytes that it has debited from the window, and its timer.
func (n *NIC) release(i uint16) {
	t := &n.tickets[i]
	switch t.state {
	case unused:
		return
	case queuing:
		n.inbound -= int(t.head.Length)
	case pulling:
		n.window.refund(int(t.head.Length))
		n.timers.Remove(uint32(len(n.slots)) + uint32(i))
	}
	*t = ticket{generation: t.generation}
	n.freeTickets = append(n.freeTickets, i)
}

// landWrite handles a data message of a WRITE or REKEY: it writes the data to memory.
func (n *NIC) landWrite(f *onerma.Frame, out *packetio.Batch) {
	i := uint16(f.Ticket)
	if int(i) >= len(n.tickets) || n.tickets[i].state != pulling || n.tickets[i].name(i) != f.Ticket {
		n.stats.Stale++
		return
	}
	t := &n.tickets[i]
	h := &t.head
	if t.from.addr != f.IPv4.Src || h.Op != f.Op || h.Slot != f.Slot || h.Generation != f.Generation || h.Length != f.Length {
		n.stats.Stale++
		return
	}
	size := len(f.Sealed) - onerma.TagLen
	mask := maskOf(int(f.At), size)
	var memory []byte
	var gone error
	if h.Op == onerma.Write {
		memory, gone = t.region.mem.Span(int(h.Offset)+int(f.At), size)
	}
	body, ok := n.egress.sealer.openTo(alike(n.egress.sealer.plain[:], memory)[:0], f, t.cipher, &t.prev)
	switch {
	case !ok:
		n.stats.Forged++
		return
	case t.landed&mask != 0:
		n.stats.Copies++
		return
	case h.Op == onerma.Rekey:
		copy(t.body[f.At:], body)
	case gone != nil:
		// The target's host has deregistered the memory in its mem.Table. No message is sent, so
		// the initiator's operation ends by timeout.
		return
	default:
		copyWords(memory, body)
	}
	t.landed |= mask
	if t.landed.complete(int(h.Length)) {
		n.landed(i, out)
	}
}

// landed handles a ticket whose bytes have all arrived. For a REKEY it replaces the region's key.
// Then it sends a done, the last message of the operation, and frees the ticket.
func (n *NIC) landed(i uint16, out *packetio.Batch) {
	t := &n.tickets[i]
	if t.head.Op == onerma.Rekey {
		n.stats.Rekeys++
		t.region.setKey(t.body)
		t.region.version++
	}
	h, r, rekey := t.head, t.region, t.head.Op == onerma.Rekey
	h.Ticket = t.name(i)
	n.egress.answer(&t.from, &h, onerma.Done, t.cipher, &t.prev, out)
	n.release(i)
	if rekey {
		n.revoke(r, out)
	}
}

// revoke ends the tickets of a region that has a new key or was deregistered. If out is not nil,
// revoke sends AUTHFAIL to the initiators of these operations; otherwise the initiators' commands
// end by timeout.
func (n *NIC) revoke(r *Region, out *packetio.Batch) {
	n.window.remove(func(w waiter) bool { return w.ticket && n.tickets[w.index].region == r })
	for i := range n.tickets {
		t := &n.tickets[i]
		if t.region != r {
			continue
		}
		if out != nil {
			c := t.cipher
			if t.state == queuing {
				c = n.egress.sealer.reserved
			}
			h := t.head
			if t.state == pulling {
				h.Ticket = t.name(uint16(i))
			}
			n.egress.answer(&t.from, &h, onerma.AuthFail, c, &t.prev, out)
		}
		if t.state == pulling {
			n.window.owe(int(t.head.Length), n.last.Add(n.cfg.Timeout))
		}
		n.release(uint16(i))
	}
}
