package tracestore

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// channel is the connection to one server, for all rings that have cells there. When the connection
// ends, another one may follow.
type channel struct {
	extmem.Link
	extmem.Conn
	m *Machine
	// need is up to which offset the rings need the server's memory, in bytes; 0 if no ring has cells
	// there.
	need uint64
	// inFlight is how many records are in WRITEs that the requester has.
	inFlight uint64
	// depth is how many WRITEs may be in flight; the next connection has the depth wanted. number names
	// the channel in captures.
	depth, wanted int
	number        uint32
	limits        requester.Limits
	former        requester.Stats // counters of former requesters of the channel
}

// newChannel makes a channel for at most depth WRITEs in flight.
func (m *Machine) newChannel(number uint32, depth int) *channel {
	ch := &channel{m: m, number: number, wanted: depth}
	ch.resize()
	return ch
}

// resize makes the requester of the channel, or a new one if another depth is wanted. No WRITE may be
// in flight.
func (ch *channel) resize() {
	if ch.depth == ch.wanted {
		return
	}
	if ch.depth > 0 {
		ch.former = ch.Requested()
	}
	ch.depth = ch.wanted
	ch.Conn.Conn = requester.New(requester.Config{Number: ch.number, Ring: ch.depth, Waiting: 1, Silence: ch.m.env.Silence}, ch)
	ch.SetLimits(ch.limits)
}

// Requested returns the counters of all requesters of the channel.
func (ch *channel) Requested() requester.Stats {
	sum := ch.former
	metrics.Add(&sum, ch.Conn.Stats())
	return sum
}

func (ch *channel) Needed() bool { return ch.need > 0 }

// Fit returns an error if the server's memory is too small for the rings.
func (ch *channel) Fit(s *switchconn.Shared) error {
	all := extmem.Area{Servers: []netip.Addr{ch.Key().Server}, Cells: 1, Size: int(ch.need)}
	_, err := all.Grant(s)
	return err
}

func (ch *channel) Begin(s *switchconn.Shared) {
	g, _ := memgrant.Of(s.Answer) // Fit has returned no error
	ch.resize()                   // the requester of the former connection has no WRITE
	ch.Attach(s, g)
}

// End is called when the connection has ended.
func (ch *channel) End(c *pipeline.Ctx) { ch.Detach(c) }

// up reports whether the channel can take a WRITE of n bytes now.
func (ch *channel) up(n int) bool { return ch.Usable() && ch.Conn.Up() && ch.Requests.Room(n) }

// write submits a WRITE of records, of which the requester keeps a copy.
func (ch *channel) write(c *pipeline.Ctx, offset uint64, b []byte, records int) {
	f := ch.Request(wire.RCWriteOnly, offset, len(b))
	f.Payload = b
	ch.inFlight += uint64(records)
	ch.m.stats.Writes++
	ch.Submit(c, f, requester.Tag{Generation: uint32(records)})
}

// Done accounts for the records of a WRITE that has ended.
func (ch *channel) Done(_ *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	n, st := uint64(t.Generation), &ch.m.stats
	ch.inFlight -= n
	switch a.Kind {
	case requester.Lost:
		st.Uncertain += n
	case requester.Returned, requester.Refused:
		st.Dropped += n
	default:
		st.Stored += n
	}
}

// Failed is called when the connection has failed. It asks the program for a new one.
func (ch *channel) Failed(c *pipeline.Ctx, why string) {
	ch.m.stats.Failures++
	ch.m.Links.Fail(c, ch, why)
}

// Describe says in captures that the switch made the request for a trace.
func (ch *channel) Describe(_ requester.Tag, n *transform.Note) { n.Made, n.Why = true, "trace" }
