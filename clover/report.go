package clover

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// reports has the appends that a client has yet to report to the metadata server, and the WRITEs of
// shortcuts. The client reports in the background: only Close, and an operation that finds no free
// node, wait for that.
type reports struct {
	records []rpc.Record
	epochs  []uint32 // the epochs of the client when it began to link the nodes of records
	slots   []uint32 // the slots of the keys of records
	busy    bool     // a report without Config.Reporter is in flight
	// batch is how many records are in the last request to the metadata server, or in the last part
	// for Config.Reporter. They are the oldest records. The client drops them when the answer
	// arrives.
	batch int
	// heard is true if the answer to the last request has arrived, but the method hear has not read
	// it yet.
	heard bool
	// seq and sent are the sequence number and the time of the last request. op is its SEND.
	seq       uint32
	sent      clock.Time
	request   rpc.Request
	op        remotemem.Op
	shortcuts shortcuts
	// dropped is true if records were dropped that the metadata server may not have. It learns of
	// their nodes when the client introduces itself again.
	dropped bool

	// part has the records that the client has handed to Config.Reporter and for which there is no
	// outcome yet; nil means none. parts counts the parts that the client has handed over under its
	// present client number. gate opens when the outcome of a part is known.
	part  *part
	parts uint32
	gate  verbs.Gate
	// oldest is the epoch of the oldest record in a part (the records that the client hands to a
	// Reporter at a time) that may still arrive at the metadata server; 0 means that there is no
	// such part. A part that was not answered may still arrive until the metadata server has
	// answered a later part.
	oldest uint32
}

// forget drops all records and the request in flight. hello calls it, because the metadata server
// gives the client another number.
func (g *reports) forget() {
	g.abandon()
	g.heard, g.part, g.parts, g.oldest, g.dropped = false, nil, 0, 0, false
	g.drop(len(g.records))
}

// are returns true if all records are from the given epoch, also those in parts that may still
// arrive at the metadata server.
func (g *reports) are(epoch uint32) bool {
	return (len(g.epochs) == 0 || g.epochs[0] == epoch) && (g.oldest == 0 || g.oldest == epoch)
}

func (g *reports) drop(n int) {
	g.records = g.records[:copy(g.records, g.records[n:])]
	g.epochs = g.epochs[:copy(g.epochs, g.epochs[n:])]
	g.slots = g.slots[:copy(g.slots, g.slots[n:])]
	g.batch = max(0, g.batch-n)
}

func (g *reports) answered(seq uint32) {
	if g.busy && seq == g.seq&0x7fffffff {
		g.busy, g.heard = false, true
		g.drop(g.batch)
	}
}

// brings returns true if a report is in flight whose answer will bring nodes of a class.
func (g *reports) brings(class layout.Class) bool {
	return g.busy && g.request.Want > 0 && g.request.Class == class
}

// abandon is called when the connection to the metadata server has failed, before the client
// connects again. The answer to a request in flight will not arrive, so its records are sent again
// later. It returns how many nodes the lost answer may have brought.
func (g *reports) abandon() (lost int) {
	if g.busy {
		lost = g.request.Want
	}
	g.busy, g.batch = false, 0
	return lost
}

// appended stores an append for the next report, and sends the report if it is due. slot is the slot
// of the key, epoch the epoch of the client when it began to link the node, raced is true if other
// clients have appended first.
func (c *appender) appended(r rpc.Record, slot, epoch uint32, raced bool) {
	g := &c.session.gc
	if len(g.records) == maxPending {
		g.drop(1)
		g.dropped = true
	}
	g.records, g.epochs, g.slots = append(g.records, r), append(g.epochs, epoch), append(g.slots, slot)
	if !r.Deleted && !c.session.cfg.PublishedShortcuts && g.shortcuts.due(raced) {
		c.session.freshen(int(g.shortcuts.appends%turnSlots), slot, r.New.Stamped(epoch))
	}
	c.session.report(r.Deleted)
}

// report sends the oldest records to the metadata server if there are at least Config.Records of
// them, or if `now` is true. While a report is in flight, or without a connection to the server, it
// sends nothing: the records stay for a later call. With Config.Reporter it hands the records to the
// Reporter instead.
func (c *session) report(now bool) {
	g := &c.gc
	c.hear() // the answer to the next report comes to the same place
	if c.cfg.Reporter != nil {
		if n := min(len(g.records), rpc.MaxBatch); g.part == nil && n > 0 && (now || n >= c.enough()) {
			c.handOver(n)
		}
		return
	}
	if !c.fab.Connected(c.meta) {
		c.lease.taken += g.abandon()
	}
	n := min(len(g.records), rpc.MaxBatch)
	if g.busy || n == 0 || n < c.enough() && !now || !c.fab.Connected(c.meta) || !over(&g.op) {
		return
	}
	g.request = rpc.Request{Op: rpc.OpGC, N: n}
	copy(g.request.Records[:n], g.records)
	if last := &g.records[len(g.records)-1]; n >= c.enough() && !last.Deleted && !c.lease.scarce && !c.ended {
		c.want(&g.request, last.New)
	}
	b := c.message(&g.request, slotReport)
	if c.fab.MR().WriteAt(b, c.at.async) != nil {
		return
	}
	c.fab.Send(&g.op, c.meta, c.at.async, len(b))
	if c.fab.Start(&g.op) != nil {
		return // the connection has failed; a later call of request makes a new one
	}
	g.busy, g.heard, g.seq, g.sent, g.batch = true, false, c.call.seq, c.rt.Now(), n
	if c.cfg.PublishedShortcuts {
		for i := range g.firsts(n) {
			c.freshen(i, g.slots[i], g.records[i].New.Stamped(g.epochs[i]))
		}
	}
}

// enough returns how many appends the client collects before it reports them: Config.Records, but
// fewer if the metadata server gives it fewer nodes at a time. A node that a client has superseded
// is free only when the client has reported the new one; and the client gets new nodes in the answer
// before it has used all old ones.
func (c *session) enough() int {
	if c.lease.granted == 0 {
		return c.cfg.Records
	}
	return max(1, min(c.cfg.Records, c.lease.granted*3/4))
}

// handOver hands the oldest n records to the Reporter, as one part.
func (c *session) handOver(n int) {
	g := &c.gc
	if g.parts++; g.oldest == 0 {
		g.oldest = g.epochs[0]
	}
	g.part, g.batch = &part{Part: rpc.Part{Client: c.lease.client, Seq: g.parts, Records: slices.Clone(g.records[:n])}, gate: g.gate}, n
	c.cfg.Reporter.add(g.part)
	if c.cfg.PublishedShortcuts {
		for i := range g.firsts(n) {
			c.freshen(i, g.slots[i], g.records[i].New.Stamped(g.epochs[i]))
		}
	}
}

// hear reads the answer to the last report that the client has sent itself, and renews the lease by
// it. It also handles the outcome of the part (a list of this client's records) that the Reporter
// has sent for the client. Such an outcome does not renew the lease, because it does not say when
// the metadata server has last heard of this client.
func (c *session) hear() {
	if g := &c.gc; g.part != nil {
		if over, lost := c.cfg.Reporter.outcome(g.part); over {
			if g.part = nil; lost {
				g.batch = 0
			} else {
				g.oldest = 0
			}
			g.drop(g.batch)
		}
	}
	if !c.gc.heard {
		return
	}
	c.gc.heard = false
	var b [rpc.MaxAnswer]byte
	var a rpc.Answer
	if c.fab.MR().ReadAt(b[:], c.at.asyncAnswer) != nil || a.Parse(b[:], rpc.OpGC) != nil {
		return
	}
	if a.Status == rpc.Unknown {
		c.lease.End()
		return
	}
	if c.gc.request.Want > 0 {
		c.lease.granted = max(1, a.N)
		if a.N == c.gc.request.Want {
			c.lease.granted = c.batch()
		}
	}
	c.spare[c.gc.request.Class] = append(c.spare[c.gc.request.Class], a.Locations[:a.N]...)
	c.renew(c.gc.sent, &a)
}

// awaitReport waits for the answer to the report in flight, and reads it. It also returns if the
// connection to the metadata server has failed, so that there will be no answer.
func (c *session) awaitReport(deadline clock.Time) error {
	err := c.fab.Expect(c.meta, deadline, func() bool { return !c.gc.busy })
	c.hear()
	if errors.Is(err, verbs.ErrClosed) {
		return err
	}
	return nil
}

// over reports whether the NIC has done with a request, so that its buffer can be used again.
func over(o *remotemem.Op) bool { return o.WR.SGL == nil || o.Done }

// idle reports whether the last WRITEs of shortcuts and the last report are complete.
func (g *reports) idle() bool {
	return g.shortcuts.idle() && over(&g.op)
}

// want makes a report also ask for the nodes that the client lacks of a batch: nodes of the class
// and the server of `like`, the node that the client has appended last.
func (c *session) want(r *rpc.Request, like layout.Location) {
	p, ok := c.space.Place(like.Handle)
	if !ok {
		return
	}
	r.Class, _ = layout.ClassOf(p.Len)
	one := c.space.Servers > 1 && !c.cfg.Spread
	if one {
		r.Near = p.Server + 1
	}
	have := 0
	for _, l := range c.spare[r.Class] {
		if at, _ := c.space.Place(l.Handle); !one || at.Server == p.Server {
			have++
		}
	}
	r.Want = max(0, c.batch()-have)
}

// farewell reports all appends, gives back spare nodes and says OpBye. If that fails, the metadata
// server takes the nodes back when the lease ends.
func (c *appender) farewell(deadline clock.Time) {
	if c.session.cfg.Reporter != nil {
		c.reportAll(deadline)
	}
	for c.session.cfg.Reporter == nil && len(c.session.gc.records) > 0 && c.session.fab.Connected(c.session.meta) {
		c.session.report(true)
		// If report has posted no request, the verbs context is closed: nothing more can be sent.
		if !c.session.gc.busy && c.session.gc.idle() {
			return
		}
		err := c.session.fab.Expect(c.session.meta, deadline, func() bool { return !c.session.gc.busy && c.session.gc.idle() })
		if failed := (*remotemem.OpError)(nil); err != nil && !errors.As(err, &failed) {
			return
		}
	}
	c.session.giveBack(deadline)
	// If this request is lost, the lease ends by itself.
	_, _ = c.session.request(&rpc.Request{Op: rpc.OpBye, Quiet: c.session.quiet()}, deadline)
}

// reportAll waits until the Reporter has reported all appends of this client, or has failed to
// report some.
func (c *appender) reportAll(deadline clock.Time) {
	g := &c.session.gc
	for len(g.records) > 0 && c.session.fab.Until(deadline, g.idle) == nil {
		c.session.report(true)
		p := g.part
		if p == nil {
			return
		}
		for over, lost := false, false; !over; {
			if over, lost = c.session.cfg.Reporter.outcome(p); lost || !over && g.gate.Wait(deadline) != nil {
				return
			}
		}
		c.session.hear()
	}
}
