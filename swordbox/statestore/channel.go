package statestore

import (
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// channel is a connection to a store, and the user of its requester. It lasts from the first rule
// that needs it until no rule does and it has no connection; connections come and go.
type channel struct {
	m   *Machine
	key switchconn.Key
	// number names the channel in captures.
	number uint32
	// depth is how many FETCH_ADDs may be in flight by the rules. wanted is the depth of the rules that
	// are in force, which the next connection has. users is the number of rules.
	depth, wanted, users int

	conn       *requester.Conn
	generation uint32
	ownQPN     wire.QPN
	grant      memgrant.Grant
	known      bool   // grant has been set
	why        string // why the channel is not up; "": it is, or was never
	pending
	flight flight
	tx     wire.Frame // scratch
}

// flight holds the amounts of the requests that the requester has, in the order of Submit.
type flight struct {
	ring    []sent // its length is a power of 2
	head, n int
	sum     uint64
}

// sent is a FETCH_ADD that the requester has.
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

// newChannel makes a channel for a number of FETCH_ADDs in flight. number names it in captures.
func newChannel(m *Machine, key switchconn.Key, depth int, number uint32) *channel {
	ch := &channel{m: m, key: key, number: number, wanted: depth}
	ch.pending.reset()
	ch.resize(depth)
	return ch
}

// resize makes the requester of a channel, or another one if the depth has changed. Nothing may be in
// flight.
func (ch *channel) resize(depth int) {
	if ch.conn != nil && ch.depth == depth {
		return
	}
	n := 1
	for n < depth {
		n *= 2
	}
	ch.depth, ch.flight = depth, flight{ring: make([]sent, n)}
	ch.conn = requester.New(requester.Config{Number: ch.number, Ring: depth, Waiting: 1, Silence: ch.m.cfg.Silence}, ch)
}

// limit is how many FETCH_ADDs may be in flight now: no more than the server's NIC remembers, so that
// it executes a retransmission once.
func (ch *channel) limit() int { return min(ch.depth, ch.conn.Link().Depth) }

// attach uses a new connection.
func (ch *channel) attach(s *switchconn.Shared) bool {
	g, err := memgrant.Of(s.Answer)
	if err != nil {
		ch.why = err.Error()
		return false
	}
	if ch.known && (g.Boot != ch.grant.Boot || g.Region != ch.grant.Region) {
		ch.m.stats.Restarts++
	}
	if ch.flight.n == 0 {
		ch.resize(ch.wanted)
	}
	ch.grant, ch.known, ch.why = g, true, ""
	ch.generation, ch.ownQPN = s.Generation, s.OwnQPN
	ch.conn.Attach(requester.LinkOf(s))
	return true
}

// count adds an amount to a counter: at once, if nothing waits and the limit allows, and otherwise
// with what else waits for the counter.
func (ch *channel) count(c *pipeline.Ctx, offset, amount uint64) {
	if !ch.add(offset, amount) {
		ch.m.stats.Dropped += amount
		return
	}
	ch.pump(c)
}

// pump sends what waits, as far as the limit allows.
func (ch *channel) pump(c *pipeline.Ctx) {
	for ch.conn.State() == requester.Up && ch.flight.n < ch.limit() {
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

// send submits a FETCH_ADD. The requester has room for it, because no more than limit are in flight.
func (ch *channel) send(c *pipeline.Ctx, s sent) {
	f := &ch.tx
	*f = wire.Frame{V6: ch.conn.Link().To.V6}
	f.BTH.Opcode = wire.RCFetchAdd
	f.AtomicETH = wire.AtomicETH{VA: ch.grant.Region.Addr + s.offset, RKey: ch.grant.Region.RKey, SwapOrAdd: s.amount}
	ch.flight.push(s)
	ch.m.stats.Adds++
	ch.conn.Submit(c, f, requester.Tag{})
}

// Done accounts for a FETCH_ADD that has ended. One that was not executed waits again.
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

// Retry reports that a refused FETCH_ADD is not sent in another form.
func (ch *channel) Retry(requester.Tag) bool { return false }

// Failed asks the program to replace the connection.
func (ch *channel) Failed(c *pipeline.Ctx, why string) {
	ch.m.stats.Failures++
	ch.why = why
	ch.m.forget(ch)
	if ch.m.cfg.Failed != nil {
		ch.m.cfg.Failed(c, ch.key, ch.generation, why)
	}
}

// Describe says in captures that the switch counts.
func (ch *channel) Describe(_ requester.Tag, n *transform.Note) { n.Made, n.Why = true, "count" }
