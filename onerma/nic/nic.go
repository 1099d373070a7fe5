package nic

import (
	"errors"
	"math/bits"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// NIC is one incarnation of a NIC. The NIC, its portals and its regions must be used by one
// goroutine at a time.
type NIC struct {
	cfg     Config
	up      bool
	piece   int // largest body of a data message, in bytes; see pieceOf
	regions []*Region

	// State of the NIC as an initiator: slots are its commands, freeSlots the slots that no portal
	// has, and offers the WRITEs and REKEYs whose requests must be sent.
	slots     []slot
	freeSlots []uint16
	offers    ring[waiter]
	// State of the NIC as a target. tickets are its inbound WRITEs and REKEYs, freeTickets the
	// unused entries of tickets. inbound is the sum of the bytes of all waiting inbound requests.
	tickets     []ticket
	freeTickets []uint16
	inbound     int

	window window
	server server
	egress egress
	// timers holds the timeouts of slots and tickets. The number of a slot's timer is that of the
	// slot. The number of a ticket's timer is that of the ticket plus the number of slots.
	timers   clock.Queue
	last     clock.Time // time of the last call of Frame or Tick
	rx       onerma.Frame
	stats    Stats
	activity uint64
}

// New makes a NIC that is up, with empty tables.
func New(cfg Config) (*NIC, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := &NIC{
		cfg: cfg, up: true, regions: make([]*Region, cfg.Regions),
		piece: pieceOf(cfg.LinkMTU),
		slots: make([]slot, cfg.Slots), offers: newRing[waiter](cfg.Slots), tickets: make([]ticket, cfg.Tickets),
		window: newWindow(cfg.Window, cfg.Slots+cfg.Tickets),
		server: server{queue: newRing[transfer](cfg.Slots + maxQueued)},
		egress: egress{self: cfg.Addr.As4(), sealer: sealer{epoch: uint64(cfg.Epoch), reserved: NewCipher(reservedKey)}},
	}
	e := &n.egress
	e.stats = &n.stats
	e.tx.Eth.Src = cfg.MAC
	e.tx.IPv4 = wire.IPv4{DF: true, TTL: 64, Src: e.self}
	e.tx.UDP.SrcPort = onerma.UDPPort
	for i := cfg.Slots - 1; i >= 0; i-- {
		n.slots[i].generation = cfg.Rand.Uint32()
		n.freeSlots = append(n.freeSlots, uint16(i))
	}
	for i := cfg.Tickets - 1; i >= 0; i-- {
		n.tickets[i].generation = uint16(cfg.Rand.Uint32())
		n.freeTickets = append(n.freeTickets, uint16(i))
	}
	return n, nil
}

// pieceOf returns the largest body of a data message on a link: the largest power of two that fits.
// So the data messages of operations of 4096 bytes have equal lengths, and those of many operations
// travel as one super-frame.
func pieceOf(mtu int) int {
	room := min(onerma.MaxOp, mtu-onerma.Overhead)
	return 1 << (bits.Len(uint(room)) - 1)
}

// Config returns the NIC's configuration with its defaults.
func (n *NIC) Config() Config { return n.cfg }

// Stats returns a copy of the counters.
func (n *NIC) Stats() Stats { return n.stats }

// Window returns how many bytes were requested and have not arrived, and the size of the
// solicitation window.
func (n *NIC) Window() (used, size int) { return n.window.used, n.window.size }

// Activity returns a number that changes when a command has ended, so that its completion can be
// polled.
func (n *NIC) Activity() uint64 { return n.activity }

// Down ends this incarnation of the NIC. Its commands get no completions, and the NIC sends and
// receives nothing any more.
func (n *NIC) Down() { n.up = false }

func errDown(op string) error {
	return opError(op, verbs.ErrClosed, "the NIC or the portal is closed")
}

// Frame handles a received frame of any protocol. It ignores the port number, because the NIC has
// one port. It neither changes nor keeps the bytes of the frame.
func (n *NIC) Frame(now clock.Time, _ int, f packetio.Frame, out *packetio.Batch) {
	if !n.up {
		return
	}
	n.last = max(n.last, now)
	n.expire(now, out)
	n.receive(now, f.Data, out)
	n.work(now, out)
}

// receive handles one received frame b: it ignores what is no message for this NIC, and passes
// messages on by their kind.
func (n *NIC) receive(now clock.Time, b []byte, out *packetio.Batch) {
	f := &n.rx
	if err := onerma.ParseFrame(b, f); err != nil {
		if !errors.Is(err, onerma.ErrNot) {
			n.stats.Malformed++
		}
		return
	}
	if f.Eth.Dst != n.cfg.MAC || f.IPv4.Dst != n.egress.self || f.IPv4.Src == n.egress.self || f.Eth.Tagged && f.Eth.VLAN() != 0 {
		return
	}
	n.stats.Received++
	n.stats.ReceivedBytes += uint64(len(b))
	switch f.Kind {
	case onerma.Request:
		n.requested(now, f, out)
	case onerma.Pull:
		n.pulled(now, f)
	case onerma.Data:
		if f.Op == onerma.Read {
			n.landRead(now, f)
		} else {
			n.landWrite(f, out)
		}
	case onerma.Done:
		n.finished(now, f)
	case onerma.Nack, onerma.AuthFail:
		n.refused(now, f)
	}
}

// Tick handles the timers that have expired, and sends all messages that may be sent now.
func (n *NIC) Tick(now clock.Time, out *packetio.Batch) {
	if !n.up {
		return
	}
	n.last = max(n.last, now)
	n.expire(now, out)
	n.work(now, out)
}

// expire ends commands and tickets (inbound WRITEs and REKEYs) whose timeout has passed, and those
// that have waited for the window longer than the dispatch timeout. It is called first in Frame and
// Tick, so that no byte is written to memory at or after the timeout of its operation.
func (n *NIC) expire(now clock.Time, out *packetio.Batch) {
	n.window.settle(now)
	for {
		id, at := n.timers.Next()
		if at > now {
			break
		}
		n.timers.Remove(id)
		if int(id) < len(n.slots) {
			n.end(now, uint16(id), Timeout)
			continue
		}
		n.stats.Abandoned++
		n.release(uint16(int(id) - len(n.slots)))
	}
	for {
		w, ok := n.window.expired(now)
		if !ok {
			return
		}
		if !w.ticket {
			n.end(now, w.index, DispatchTimeout)
			continue
		}
		t := &n.tickets[w.index]
		n.stats.Nacks++
		n.egress.answer(&t.from, &t.head, onerma.Nack, t.cipher, &t.prev, out)
		n.release(w.index)
	}
}

// work sends all that may be sent now: the requests of WRITEs and REKEYs, which need no room in the
// window; the requests of READs and the pulls that the window admits; and data.
func (n *NIC) work(now clock.Time, out *packetio.Batch) {
	for n.offers.n > 0 {
		n.request(now, n.offers.pop().index, out)
	}
	for {
		w, ok := n.window.admit()
		if !ok {
			break
		}
		if w.ticket {
			n.pull(now, w.index, out)
		} else {
			n.request(now, w.index, out)
		}
	}
	n.serve(now, out)
}

// Deadline returns when Tick must be called; clock.Never if the NIC only waits for frames.
func (n *NIC) Deadline() clock.Time {
	if !n.up {
		return clock.Never
	}
	_, at := n.timers.Next()
	at = clock.Min(at, n.window.deadline())
	if n.offers.n > 0 || n.window.ready() {
		at = clock.Min(at, n.last)
	}
	if n.server.queue.n > 0 {
		at = clock.Min(at, max(n.server.free, n.last))
	}
	return at
}
