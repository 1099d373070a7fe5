package cost

import (
	"maps"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Memory returns at most n bytes of memory from the address va on, in the region that an R_Key
// names. If va is not the start of a 64-bit word, the result begins with the bytes of this word
// before va, as far as they are in the region. Memory also reports whether this is device memory.
// Card uses the bytes only to tell places apart, and does not read them. An invalid key or address
// gives no bytes.
type Memory func(rkey uint32, va uint64, n int) (b []byte, device bool)

// Card applies the costs of one NIC in virtual time. It is a state machine. NewCard makes one; the
// zero value cannot be used.
type Card struct {
	nic    *NIC
	memory Memory
	// in handles the request packets that all peers send, and send handles the request packets of
	// all local queue pairs. Each handles one packet at a time, which limits the NIC's rate.
	in, send server
	here     map[wire.QPN]*pair // queue pairs of this NIC
	peers    map[peer]pico      // when the last request to each left the NIC
	words    words
	// slots has the time at which the last atomic of a slot ends; see Verb.Slots.
	slots  []pico
	stalls *rand.Rand // draws which requests stall, and for how long; see Stall
	frame  wire.Frame
}

// pair is the state of one queue pair of this NIC as responder.
type pair struct {
	work server
	// stalled is the time until which the requests that have arrived are stalled.
	stalled pico
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

// maxPairs is the number of queue pairs beyond which a card forgets idle ones.
const maxPairs = 1 << 14

// NewCard returns a Card that applies the costs of the NIC. It looks up addresses by the function
// memory. seed decides which requests stall.
func (n *NIC) NewCard(memory Memory, seed uint64) *Card {
	return &Card{
		nic: n, memory: memory, here: make(map[wire.QPN]*pair), peers: make(map[peer]pico), words: newWords(),
		slots: make([]pico, n.Atomic.Slots/8), stalls: rand.New(rand.NewPCG(seed, 0)),
	}
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

// Begin returns the time at which the NIC begins to work on a frame that reaches it at the time
// `now`. The caller then calls Arrive.
func (c *Card) Begin(now clock.Time, frame []byte) clock.Time {
	stall := &c.nic.Stall
	if stall.Share == 0 || wire.ParseFrame(frame, &c.frame) != nil || !c.frame.BTH.Opcode.Is(wire.OpRequest) {
		return now
	}
	q := c.pair(now, c.frame.BTH.DestQP)
	at := picoOf(now)
	if c.stalls.Float64() < stall.Share {
		at += pico(c.stalls.ExpFloat64() * float64(picoOf(clock.Time(stall.Mean))))
	}
	q.stalled = max(q.stalled, at)
	return q.stalled.time()
}

// Arrive returns the time at which a frame on which the NIC begins to work at the time `now` takes
// effect; the caller then passes it to the NIC's state machine. Frames that are not RoCEv2 go to the host's
// kernel and take no time.
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

// touched returns the memory that the address in a request names, at most maxWatched bytes, and
// sets q.device: whether this is device memory. A SEND has no address, and goes to host memory. A
// later packet of a WRITE has no address either: touched returns no bytes, and q.device stays that
// of the first packet.
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

// Depart returns when a frame that the NIC makes at the time `now` leaves the NIC. posted: the
// frame belongs to a work request that was just posted, so the doorbell takes time.
func (c *Card) Depart(now clock.Time, frame []byte, posted bool) clock.Time {
	f := &c.frame
	if wire.ParseFrame(frame, f) != nil || !f.BTH.Opcode.Is(wire.OpRequest) {
		return now
	}
	at := c.send.serve(picoOf(now), c.nic.verb(f.BTH.Opcode).Total.span())
	if posted {
		at += picoOf(clock.Time(c.nic.Doorbell))
	}
	to := peer{f.Eth.Dst, f.BTH.DestQP}
	left, known := c.peers[to]
	if !known && len(c.peers) >= maxPairs {
		maps.DeleteFunc(c.peers, func(_ peer, left pico) bool { return left <= picoOf(now) })
	}
	at = max(at, left)
	c.peers[to] = at
	return at.time()
}

// pair returns the state of a queue pair, and makes it if there is none. If there are too many
// states, pair first removes those of idle queue pairs, which need none.
func (c *Card) pair(now clock.Time, n wire.QPN) *pair {
	q := c.here[n]
	if q != nil {
		return q
	}
	if len(c.here) >= maxPairs {
		t := picoOf(now)
		maps.DeleteFunc(c.here, func(_ wire.QPN, q *pair) bool { return max(q.work.free, q.stalled, q.requests, q.answers) <= t })
	}
	q = new(pair)
	c.here[n] = q
	return q
}
