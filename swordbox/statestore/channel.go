package statestore

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// channel sends the amounts that rules count to one memory server, over at most one connection at a
// time, and handles the results of that connection's requester. The channel is made for the first
// rule that needs it, and removed when no rule needs it and its connection has ended. If a
// connection ends while a rule needs the channel, the channel gets a new connection.
type channel struct {
	extmem.Link
	m *Machine
	// number names the channel in captures.
	number uint32
	// depth is how many FETCH_ADDs may be in flight. wanted is the depth for which the present
	// rules ask; the next connection gets it. users is the number of rules that use the channel.
	depth, wanted, users int
	limits               requester.Limits

	conn   *requester.Conn
	former requester.Stats // counters of former requesters of the channel
	grant  memgrant.Grant
	known  bool // grant has been set
	pending
	window window
	flight flight
	tx     wire.Frame // scratch
}

// window lets amounts wait, so that those of one counter are added up: what waits when a window ends
// is sent, and what comes after that waits for the end of the next window.
type window struct {
	length time.Duration // 0 means that amounts do not wait
	end    clock.Time    // end of the present window; clock.Never if there is none
	left   int           // counters whose amounts are to be sent since the last window has ended
}

// open returns how many of the `used` counters that have amounts may be sent now. It begins a window
// if amounts must wait and none has begun.
func (w *window) open(now clock.Time, used int) int {
	if w.length == 0 {
		w.end, w.left = clock.Never, used
		return used
	}
	switch {
	case w.left > 0 || used == 0:
	case w.end == clock.Never:
		w.end = now.Add(w.length)
	case now >= w.end:
		w.end, w.left = clock.Never, used
	}
	w.left = min(w.left, used)
	return w.left
}

// flight holds the amounts of the FETCH_ADDs that the requester has, in the order of Submit.
type flight struct {
	ring    []sent // the length is a power of 2
	head, n int    // index of the oldest one in ring; number of FETCH_ADDs
	sum     uint64 // sum of their amounts
}

// sent is a FETCH_ADD that was submitted to the requester.
type sent struct{ offset, amount uint64 }

func (f *flight) push(s sent) {
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = s
	f.n++
	f.sum += s.amount
}

func (f *flight) pop() sent {
	s := f.ring[f.head]
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.n--
	f.sum -= s.amount
	return s
}

// newChannel makes a channel for at most depth FETCH_ADDs in flight. number names it in captures.
func (m *Machine) newChannel(depth int, number uint32) *channel {
	ch := &channel{m: m, number: number, wanted: depth}
	ch.pending.reset()
	ch.window.end = clock.Never
	ch.resize(depth)
	return ch
}

// resize makes the requester of the channel. If the depth has changed, it makes a new one. No
// FETCH_ADD may be in flight.
func (ch *channel) resize(depth int) {
	if ch.conn != nil && ch.depth == depth {
		return
	}
	if ch.conn != nil {
		ch.former = ch.Requested()
	}
	n := 1
	for n < depth {
		n *= 2
	}
	ch.depth, ch.flight = depth, flight{ring: make([]sent, n)}
	ch.conn = requester.New(requester.Config{Number: ch.number, Ring: depth, Waiting: 1, Silence: ch.m.env.Silence}, ch)
	ch.conn.SetLimits(ch.limits)
}

// setLimits sets the limits of the channel's requests.
func (ch *channel) setLimits(l requester.Limits) {
	ch.limits = l
	ch.conn.SetLimits(l)
}

// limit returns how many FETCH_ADDs may be in flight now. It is at most the number of atomics whose
// results the server's NIC remembers, so that the NIC executes a retransmitted FETCH_ADD only once.
func (ch *channel) limit() int { return min(ch.depth, ch.conn.Link().Depth) }

func (ch *channel) Requested() requester.Stats {
	sum := ch.former
	metrics.Add(&sum, ch.conn.Stats())
	return sum
}

func (ch *channel) Needed() bool { return ch.users > 0 }

func (ch *channel) Begin(s *switchconn.Shared) {
	g, _ := memgrant.Of(s.Answer) // Fit has returned no error
	if ch.known && (g.Boot != ch.grant.Boot || g.Region != ch.grant.Region) {
		ch.m.stats.Restarts++
	}
	if ch.flight.n == 0 {
		ch.resize(ch.wanted)
	}
	ch.grant, ch.known = g, true
	ch.conn.Attach(requester.LinkOf(s))
}

// End is called when the connection has ended. If no rule uses the channel, its pending amounts are
// dropped.
func (ch *channel) End(c *pipeline.Ctx) {
	ch.conn.Detach(c)
	if ch.users == 0 {
		ch.m.stats.Dropped += ch.pending.sum
		ch.pending.reset()
	}
}

// count adds an amount to the counter at offset. It sends the amount at once if nothing else waits
// and the limit allows. Otherwise it adds the amount to the pending amount of the counter.
func (ch *channel) count(c *pipeline.Ctx, offset, amount uint64) {
	if !ch.add(offset, amount) {
		ch.m.stats.Dropped += amount
		return
	}
	ch.pump(c)
}

// pump sends waiting amounts, as far as the window and the limit allow.
func (ch *channel) pump(c *pipeline.Ctx) {
	for ch.window.open(c.Now, ch.pending.used) > 0 && ch.conn.State() == requester.Up && ch.flight.n < ch.limit() {
		ch.window.left--
		offset, amount, ok := ch.next()
		if !ok {
			return
		}
		if offset+wordLen > uint64(ch.grant.Region.Len) {
			ch.m.stats.Dropped += amount
			ch.m.stats.Outside++
			continue
		}
		ch.send(c, sent{offset, amount})
	}
}

// send submits a FETCH_ADD. The requester has room for it, because at most limit FETCH_ADDs are in
// flight.
func (ch *channel) send(c *pipeline.Ctx, s sent) {
	f := &ch.tx
	*f = wire.Frame{V6: ch.conn.Link().To.V6}
	f.BTH.Opcode = wire.RCFetchAdd
	f.AtomicETH = wire.AtomicETH{VA: ch.grant.Region.Addr + s.offset, RKey: ch.grant.Region.RKey, SwapOrAdd: s.amount}
	ch.flight.push(s)
	ch.m.stats.Adds++
	ch.conn.Submit(c, f, requester.Tag{})
}

// Done accounts for a FETCH_ADD that has ended. If the server has not executed it, its amount waits
// again.
func (ch *channel) Done(_ *pipeline.Ctx, _ requester.Tag, a requester.Answer) {
	s := ch.flight.pop()
	st := &ch.m.stats
	switch a.Kind {
	case requester.Lost:
		st.Uncertain += s.amount
	case requester.Returned, requester.Refused:
		if !ch.add(s.offset, s.amount) {
			st.Dropped += s.amount
		}
	default:
		st.Applied += s.amount
	}
}

// Retry returns false: the channel does not send a refused FETCH_ADD in another form.
func (ch *channel) Retry(requester.Tag) bool { return false }

// Failed is called when the connection has failed. It asks the program for a new one.
func (ch *channel) Failed(c *pipeline.Ctx, why string) {
	ch.m.stats.Failures++
	ch.m.Links.Fail(c, ch, why)
}

// Describe says in captures that the switch made the request to count.
func (ch *channel) Describe(_ requester.Tag, n *transform.Note) { n.Made, n.Why = true, "count" }
