package cost

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Memory returns at most n bytes of the memory at an R_Key and an address, and reports whether they
// are device memory. Card uses the bytes only to tell places apart, and does not read them. An
// invalid key or address gives no bytes.
type Memory func(rkey uint32, va uint64, n int) (b []byte, device bool)

// Card applies the costs of one NIC in virtual time. It is a state machine. NewCard makes one; the
// zero value cannot be used.
type Card struct {
	nic    *NIC
	memory Memory
	// in serves the request packets of all peers, send those of all local queue pairs, one at a
	// time each: they limit the NIC's rate.
	in, send server
	here     map[wire.QPN]*pair
	peers    map[peer]*line
	words    words
	// slots has the time at which the last atomic of a slot ends; see Verb.Slots.
	slots []pico
	frame wire.Frame
}

// pair is the state of one queue pair of this NIC as responder.
type pair struct {
	work server
	// requests and answers are the times at which the last request and the last answer take effect. A
	// queue pair handles its packets in order.
	requests, answers pico
	device            bool // the message that is arriving accesses device memory
}

// peer is a queue pair of another host.
type peer struct {
	mac wire.MAC
	qpn wire.QPN
}

// line is the path to a queue pair of another host. left is when the last request to it left the
// NIC.
type line struct{ left pico }

// maxPairs is the number of queue pairs beyond which a card forgets idle ones.
const maxPairs = 1 << 14

// NewCard returns a Card. It looks up addresses in memory.
func NewCard(nic *NIC, memory Memory) *Card {
	return &Card{nic: nic, memory: memory, here: make(map[wire.QPN]*pair), peers: make(map[peer]*line), words: newWords(), slots: make([]pico, nic.Atomic.Slots/8)}
}

// verb returns the costs of a request's opcode.
func (n *NIC) verb(o wire.Opcode) *Verb {
	switch {
	case o.Is(wire.OpAtomic):
		return &n.Atomic
	case o.Is(wire.OpRead | wire.OpFlush):
		return &n.Read
	case o.Is(wire.OpWrite):
		return &n.Write
	}
	return &n.Send
}

// Arrive returns when a frame that reaches the NIC at now takes effect; the caller then passes it
// to the NIC's state machine. Frames that are not RoCEv2 go to the host's kernel and cost nothing.
func (c *Card) Arrive(now clock.Time, frame []byte) clock.Time {
	f := &c.frame
	if wire.ParseFrame(frame, f) != nil {
		return now
	}
	at, q := picoOf(now), c.pair(now, f.BTH.DestQP)
	if !f.BTH.Opcode.Is(wire.OpRequest) {
		q.answers = max(q.answers, at+picoOf(clock.Time(c.nic.Completion)))
		return q.answers.time()
	}
	v := c.nic.verb(f.BTH.Opcode)
	touched := c.touched(f, q)
	start := c.in.serve(at, v.Total.span())
	start = max(start, q.work.free, c.words.free(touched))
	busy := v.QP.of(q.device).span()
	if f.BTH.Opcode.Is(wire.OpAtomic) {
		word := v.Word.of(q.device).span()
		if n := uint64(len(c.slots)); n > 0 {
			slot := &c.slots[f.AtomicETH.VA/8%n]
			start = max(start, *slot)
			*slot = start + word
		}
		c.words.occupy(now, touched, start+word)
		busy = max(busy, word)
	}
	q.work.serve(start, busy)
	q.requests = max(q.requests, start+picoOf(clock.Time(v.Latency.of(q.device))))
	return q.requests.time()
}

// touched returns the memory that the address in a request names, and sets q.device: whether this
// is device memory. A later packet of a message has no address. For such a packet, touched returns
// no bytes, and q.device stays that of the first packet.
func (c *Card) touched(f *wire.Frame, q *pair) (b []byte) {
	switch o := f.BTH.Opcode; {
	case o.Has(wire.HasAtomicETH):
		b, q.device = c.memory(f.AtomicETH.RKey, f.AtomicETH.VA, 8)
	case o.Has(wire.HasRETH):
		n := len(f.Payload)
		if o.Is(wire.OpRead) {
			n = int(min(f.RETH.Length, maxWatched))
		}
		b, q.device = c.memory(f.RETH.RKey, f.RETH.VA, min(n, maxWatched))
	case o.Is(wire.OpSend):
		q.device = false
	}
	return b
}

// Depart returns when a frame that the NIC makes at now leaves the NIC. posted: the frame belongs
// to a work request that was just posted, so the doorbell takes time.
func (c *Card) Depart(now clock.Time, frame []byte, posted bool) clock.Time {
	f := &c.frame
	if wire.ParseFrame(frame, f) != nil || !f.BTH.Opcode.Is(wire.OpRequest) {
		return now
	}
	at := c.send.serve(picoOf(now), c.nic.verb(f.BTH.Opcode).Total.span())
	if posted {
		at += picoOf(clock.Time(c.nic.Doorbell))
	}
	l := c.line(now, peer{f.Eth.Dst, f.BTH.DestQP})
	l.left = max(l.left, at)
	return l.left.time()
}

// pair returns the state of a queue pair. An idle queue pair needs no state.
func (c *Card) pair(now clock.Time, n wire.QPN) *pair {
	q := c.here[n]
	if q != nil {
		return q
	}
	if len(c.here) >= maxPairs {
		for n, q := range c.here {
			if t := picoOf(now); q.work.free <= t && q.requests <= t && q.answers <= t {
				delete(c.here, n)
			}
		}
	}
	q = new(pair)
	c.here[n] = q
	return q
}

// line returns the state for requests to a peer, and makes it if there is none. If there are too
// many, line forgets those without recent traffic.
func (c *Card) line(now clock.Time, p peer) *line {
	l := c.peers[p]
	if l != nil {
		return l
	}
	if len(c.peers) >= maxPairs {
		for p, l := range c.peers {
			if l.left <= picoOf(now) {
				delete(c.peers, p)
			}
		}
	}
	l = new(line)
	c.peers[p] = l
	return l
}
