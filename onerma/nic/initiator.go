package nic

import (
	"encoding/binary"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// end completes the command in slot i with a status: its completion can be polled from now on.
func (n *NIC) end(now clock.Time, i uint16, status Status) {
	s := &n.slots[i]
	if s.state == queued {
		s.entered = now
	}
	n.abandon(i)
	s.state = ended
	s.completion = Completion{
		Tag: s.cmd.Tag, Slot: i, Op: s.cmd.Op, Status: status, Length: s.cmd.Length,
		IssueDelay: s.entered.Sub(s.issued), TotalDelay: now.Sub(s.issued),
	}
	n.stats.Ended[status]++
	n.activity++
	if s.portal.memory.region != nil {
		s.portal.memory.put(&s.completion)
		return
	}
	s.portal.done.push(i)
}

// abandon releases what a command in flight holds: the bytes debited from the window, its timer,
// and its local memory.
func (n *NIC) abandon(i uint16) {
	s := &n.slots[i]
	switch s.state {
	case idle, ended:
		return
	case waiting:
		n.window.refund(s.cmd.Length)
	case queued, offered, serving:
	}
	n.timers.Remove(uint32(i))
	if s.cmd.Local != nil {
		s.cmd.Local.uses--
	}
	s.state = ended
}

// request sends the request of the command in slot i, and starts the command's timeout. From now on
// the command is in service.
func (n *NIC) request(now clock.Time, i uint16, out *packetio.Batch) {
	s := &n.slots[i]
	s.entered = now
	s.state = offered
	if s.cmd.Op == onerma.Read {
		s.state = waiting
	}
	n.timers.Set(uint32(i), now.Add(n.cfg.Timeout))
	mac, ok := n.cfg.Resolve(s.cmd.Target)
	if !ok {
		n.stats.Unresolved++
		return // the command ends as TIMEOUT, as if the target did not answer
	}
	s.to.mac = mac
	h := n.slots[i].header(i, onerma.Request)
	n.egress.send(&s.to, &h, s.cmd.Key, &vector{}, nil, out)
	s.prev, s.request = n.egress.sealer.iv, n.egress.sealer.iv
}

// header returns the header of a message of kind k for the command in the slot, whose number is i.
func (s *slot) header(i uint16, k onerma.Kind) onerma.Header {
	return onerma.Header{
		Kind: k, Op: s.cmd.Op, Class: s.cmd.Class, Slot: i, Generation: s.generation, Region: uint32(s.cmd.Remote), Offset: s.cmd.Offset,
		Length: uint32(s.cmd.Length), PID: uint32(s.portal.pid), Ticket: s.ticket,
	}
}

// command returns the command in flight to which a message belongs; nil if there is none. This NIC
// is the initiator of the command.
func (n *NIC) command(f *onerma.Frame) *slot {
	if int(f.Slot) >= len(n.slots) {
		return nil
	}
	s := &n.slots[f.Slot]
	switch s.state {
	case waiting, offered, serving:
	case idle, queued, ended:
		return nil
	}
	if s.generation != f.Generation || s.to.addr != f.IPv4.Src || s.cmd.Op != f.Op || s.cmd.Length != int(f.Length) {
		return nil
	}
	return s
}

// landRead handles a data message of a READ: it writes the data to memory. The memory belongs to
// the NIC until the command has ended, so the message is decrypted into it directly: with a buffer
// in between, a READ of 4 KiB takes an eighth longer. A forged message leaves zeros in the memory.
// So a message for bytes that have landed already is decrypted into a buffer.
func (n *NIC) landRead(now clock.Time, f *onerma.Frame) {
	s := n.command(f)
	if s == nil || s.state != waiting {
		n.stats.Stale++
		return
	}
	size := len(f.Sealed) - onerma.TagLen
	mask := maskOf(int(f.At), size)
	copied := s.landed&mask != 0
	memory, gone := s.cmd.Local.mem.Span(int(s.cmd.LocalOffset)+int(f.At), size)
	direct := gone == nil && !copied && inPlace(memory)
	buffer := alike(n.egress.sealer.plain[:], memory)
	if direct {
		buffer = memory
	}
	body, ok := n.egress.sealer.openTo(buffer[:0], f, s.cmd.Key, &s.prev)
	switch {
	case !ok:
		n.stats.Forged++
		return
	case copied:
		n.stats.Copies++
		return
	case gone != nil:
		// The owner has deregistered the memory in its mem.Table: the operation ends by timeout.
		return
	case !direct:
		copyWords(memory, body)
	}
	s.landed |= mask
	if s.landed.complete(s.cmd.Length) {
		n.end(now, f.Slot, OK)
	}
}

// pulled handles a pull, by which the target asks for the data. The initiator serves the first pull
// that arrives, and copies of it. Any other pull is ignored: it belongs to a copy of the request,
// and its timeout at the target may be later than that of this command.
func (n *NIC) pulled(now clock.Time, f *onerma.Frame) {
	s := n.command(f)
	if s == nil || s.state != offered && (s.state != serving || s.ticket != f.Ticket) {
		n.stats.Stale++
		return
	}
	if s.state == serving {
		n.pulledAgain(f, s)
		return
	}
	body, ok := n.egress.sealer.open(f, s.cmd.Key, &s.request)
	if !ok {
		n.stats.Forged++
		return
	}
	limit := time.Duration(binary.BigEndian.Uint32(body))
	if limit > 2*n.cfg.Timeout {
		n.stats.Refused++ // the timeout of the target could be later than that of this command
		return
	}
	if n.server.full() {
		// The queue of data is full, so the pull is ignored, and the operation may end by timeout.
		return
	}
	s.state, s.ticket = serving, f.Ticket
	s.prev = n.egress.sealer.iv
	n.timers.Set(uint32(f.Slot), now.Add(limit+limit/32))
	n.serveWrite(f.Slot)
}

// pulledAgain sends the data of a WRITE again, for a copy of the pull that was already served. The
// timeout of the command stays as it is.
func (n *NIC) pulledAgain(f *onerma.Frame, s *slot) {
	var iv vector
	iv.set(f.Counter, f.IPv4.Src)
	if iv != s.prev || n.server.full() {
		n.stats.Stale++
		return
	}
	if _, ok := n.egress.sealer.open(f, s.cmd.Key, &s.request); !ok {
		n.stats.Forged++
		return
	}
	n.serveWrite(f.Slot)
}

// finished handles a done, the last message of a WRITE or REKEY: the command ends as OK.
func (n *NIC) finished(now clock.Time, f *onerma.Frame) {
	s := n.command(f)
	if s == nil || s.state != serving || s.ticket != f.Ticket {
		n.stats.Stale++
		return
	}
	if _, ok := n.egress.sealer.open(f, s.cmd.Key, &s.prev); !ok {
		n.stats.Forged++
		return
	}
	n.end(now, f.Slot, OK)
}

// refused handles a NACK or AUTHFAIL. Before its pull, the target seals a NACK with K_d and an
// AUTHFAIL with the reserved key. An AUTHFAIL after the pull says that the region has a new key.
// The target seals it with K_d, because the request has proved that both ends know K_d.
func (n *NIC) refused(now clock.Time, f *onerma.Frame) {
	s := n.command(f)
	if s == nil || s.state == serving && f.Kind == onerma.Nack {
		n.stats.Stale++
		return
	}
	c, status := s.cmd.Key, NACK
	if f.Kind == onerma.AuthFail {
		status = RemoteAuthenticationFailure
		if s.state != serving {
			c = n.egress.sealer.reserved
		}
	}
	if _, ok := n.egress.sealer.open(f, c, &s.prev); !ok {
		n.stats.Forged++
		return
	}
	n.end(now, f.Slot, status)
}
