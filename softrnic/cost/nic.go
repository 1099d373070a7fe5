package cost

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Memory resolves a remote key and an address to at most n bytes of memory, and reports whether
// they are on the NIC. The bytes only identify the place; their content is not read. An invalid key
// or address gives no bytes.
type Memory func(rkey uint32, va uint64, n int) (b []byte, device bool)

// Card is the machine that carries out the figures of one NIC. Its zero value is of no use; call
// NewCard.
type Card struct {
	nic    *NIC
	memory Memory
	// in serves the requests of all peers, send those of all local queue pairs.
	in, send server
	here     map[wire.QPN]*pair
	peers    map[peer]*line
	words    words
	frame    wire.Frame
}

// pair is the side that answers of one local queue pair.
type pair struct {
	work server
	// requests and answers are when the last one of them was handed over: a queue pair takes its
	// packets in order.
	requests, answers pico
	device            bool // memory of the message in progress
}

// peer is a queue pair of another host as the sender knows it.
type peer struct {
	mac wire.MAC
	qpn wire.QPN
}

// line is when the last request to a peer left.
type line struct{ left pico }

// maxPairs is how many queue pairs a card remembers before it forgets idle ones.
const maxPairs = 1 << 14

// NewCard makes the machine. It looks up addresses in memory.
func NewCard(nic *NIC, memory Memory) *Card {
	return &Card{nic: nic, memory: memory, here: make(map[wire.QPN]*pair), peers: make(map[peer]*line), words: newWords()}
}

// verb returns the price of a request's opcode.
func (n *NIC) verb(o wire.Opcode) *Verb {
	switch {
	case o.Is(wire.OpAtomic):
		return &n.Atomic
	case o.Is(wire.OpRead):
		return &n.Read
	case o.Is(wire.OpWrite):
		return &n.Write
	}
	return &n.Send
}

// Arrive returns when a frame that reaches the NIC at now takes effect: the caller passes it on at
// that time. Frames that are not RoCE belong to the host's stack and cost nothing.
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
		c.words.occupy(now, touched, start+word)
		busy = max(busy, word)
	}
	q.work.serve(start, busy)
	q.requests = max(q.requests, start+picoOf(clock.Time(v.Latency.of(q.device))))
	return q.requests.time()
}

// touched is the memory that a request names; a packet without an address goes where its message
// began.
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

// Depart returns when a frame that the NIC makes at now leaves it. posted: the frame belongs to a
// work request that is being posted.
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

// pair returns the state of a queue pair. An idle queue pair has no state that must be remembered.
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

// line returns the state of the link to a peer. A peer that is not known yet gets a new one; if
// there are too many, those without traffic are forgotten.
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
