package clover

import (
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// reports has the appends that a client has yet to report to the metadata server, and the shortcuts
// of their keys. The client reports them in the background: only Close, and an operation that finds
// no free node, wait for that.
type reports struct {
	records   []rpc.Record
	shortcuts []shortcut // shortcuts of the keys of records, in the same order
	busy      bool       // a report without Config.Reporter is in flight
	// batch is how many records are in the last request to the metadata server, or in the last part
	// for Config.Reporter. They are the oldest records. The client drops them when the answer
	// arrives.
	batch int
	// heard is true if the answer to the last request has arrived, but the method hear has not read
	// it yet.
	heard bool
	// seq and sent are the sequence number and the time of the last request. op is its SEND. words
	// are the WRITEs of shortcuts.
	seq     uint32
	sent    clock.Time
	request rpc.Request
	op      remotemem.Op
	words   [rpc.MaxBatch]remotemem.Op

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

// shortcut says which shortcut writeShortcuts writes for an append, and with which epoch. The
// location that it writes is in the append's record.
type shortcut struct {
	slot uint32
	// epoch is the epoch of the client when it began to link the node.
	epoch uint32
}

// forget drops all records and the request in flight. hello calls it, because the metadata server
// gives the client another number.
func (g *reports) forget() {
	g.abandon()
	g.heard, g.part, g.parts, g.oldest = false, nil, 0, 0
	g.drop(len(g.records))
}

// are returns true if all records are from the given epoch, also those in parts that may still
// arrive at the metadata server.
func (g *reports) are(epoch uint32) bool {
	return (len(g.shortcuts) == 0 || g.shortcuts[0].epoch == epoch) && (g.oldest == 0 || g.oldest == epoch)
}

func (g *reports) drop(n int) {
	g.records = g.records[:copy(g.records, g.records[n:])]
	g.shortcuts = g.shortcuts[:copy(g.shortcuts, g.shortcuts[n:])]
	g.batch = max(0, g.batch-n)
}

func (g *reports) answered(seq uint32) {
	if g.busy && seq == g.seq&0x7fffffff {
		g.busy, g.heard = false, true
		g.drop(g.batch)
	}
}

// abandon is called when the connection to the metadata server has failed, before the client
// connects again. The answer to a request in flight will not arrive, so its records are sent again
// later.
func (g *reports) abandon() { g.busy, g.batch = false, 0 }

// appended stores an append for the next report, and sends the report if it is due.
func (c *appender) appended(r rpc.Record, s shortcut) {
	g := &c.gc
	if len(g.records) == maxPending {
		g.drop(1)
	}
	g.records, g.shortcuts = append(g.records, r), append(g.shortcuts, s)
	c.report(r.Deleted)
}

// report sends the oldest records to the metadata server if there are at least Config.Records of
// them, or if `now` is true. First it posts the WRITEs of the shortcuts of their keys. While a
// report is in flight, or without a connection to the server, it sends nothing: the records stay
// for a later call. With Config.Reporter it hands the records to the Reporter instead.
func (c *session) report(now bool) {
	g := &c.gc
	if c.cfg.Reporter != nil {
		c.hear()
		if n := min(len(g.records), rpc.MaxBatch); g.part == nil && n > 0 && (now || n >= c.cfg.Records) && g.idle() {
			c.handOver(n)
		}
		return
	}
	if !c.fab.Connected(c.meta) {
		g.abandon()
	}
	n := min(len(g.records), rpc.MaxBatch)
	if g.busy || n == 0 || n < c.cfg.Records && !now || !c.fab.Connected(c.meta) || !g.idle() {
		return
	}
	c.writeShortcuts(n)
	g.request = rpc.Request{Op: rpc.OpGC, N: n}
	copy(g.request.Records[:n], g.records)
	b := c.message(&g.request, slotReport)
	if c.fab.MR().WriteAt(b, c.at.async) != nil {
		return
	}
	c.fab.Send(&g.op, c.meta, c.at.async, len(b))
	if c.fab.Start(&g.op) != nil {
		return // the connection has failed; a later call of request makes a new one
	}
	g.busy, g.heard, g.seq, g.sent, g.batch = true, false, c.call.seq, c.rt.Now(), n
}

// handOver hands the oldest n records to the Reporter, as one part.
func (c *session) handOver(n int) {
	g := &c.gc
	c.writeShortcuts(n)
	if g.parts++; g.oldest == 0 {
		g.oldest = g.shortcuts[0].epoch
	}
	g.part, g.batch = &part{Part: rpc.Part{Client: c.lease.client, Seq: g.parts, Records: slices.Clone(g.records[:n])}, gate: g.gate}, n
	c.cfg.Reporter.add(g.part)
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
	c.renew(c.gc.sent, &a)
}

// idle reports whether the last WRITEs of shortcuts and the last report are complete, so that their
// buffers can be used again.
func (g *reports) idle() bool {
	for i := range g.words {
		if o := &g.words[i]; o.WR.SGL != nil && !o.Done {
			return false
		}
	}
	return g.op.WR.SGL == nil || g.op.Done
}

// writeShortcuts posts the WRITE of a shortcut for each key among the first n records. If a key has
// several records, its shortcut names the node of the last one. writeShortcuts leaves out keys that
// were deleted, and shortcuts on servers without a connection.
func (c *session) writeShortcuts(n int) {
	for i := range n {
		r := &c.gc.records[i]
		if r.Deleted || c.lastOf(i, n) != i {
			continue
		}
		said := c.gc.shortcuts[i]
		p, ok := c.space.Shortcut(int(said.slot))
		if !ok || !c.fab.Connected(c.servers[p.Server].peer) {
			continue
		}
		s := &c.servers[p.Server]
		off := c.at.words + 8*(wordSlots-rpc.MaxBatch+i)
		if c.fab.MR().Store64(off, uint64(r.New.Stamped(said.epoch))) != nil {
			return
		}
		c.fab.Write(&c.gc.words[i], s.target(p.Offset), off, layout.ShortcutLen)
		_ = c.fab.Start(&c.gc.words[i]) // on failure the shortcut goes on naming an older node
	}
}

// lastOf returns the index of the last of the first n records that has the same key as record i.
func (c *session) lastOf(i, n int) int {
	for j := n - 1; j > i; j-- {
		if c.gc.records[j].Key == c.gc.records[i].Key {
			return j
		}
	}
	return i
}

// farewell reports all appends, gives back spare nodes and says OpBye. If that fails, the metadata
// server takes the nodes back when the lease ends.
func (c *appender) farewell(deadline clock.Time) {
	if c.cfg.Reporter != nil {
		c.reportAll(deadline)
	}
	for c.cfg.Reporter == nil && len(c.gc.records) > 0 && c.fab.Connected(c.meta) {
		c.report(true)
		// If report has posted no request, the verbs context is closed: nothing more can be sent.
		if !c.gc.busy && c.gc.idle() {
			return
		}
		err := c.fab.Until(deadline, func() bool { return !c.gc.busy && c.gc.idle() || !c.fab.Connected(c.meta) })
		if err != nil {
			return
		}
	}
	c.giveBack(deadline)
	// If this request is lost, the lease ends by itself.
	_, _ = c.request(&rpc.Request{Op: rpc.OpBye, Quiet: c.quiet()}, deadline)
}

// reportAll waits until the Reporter has reported all appends of this client, or has failed to
// report some.
func (c *appender) reportAll(deadline clock.Time) {
	g := &c.gc
	for len(g.records) > 0 && c.fab.Until(deadline, g.idle) == nil {
		c.report(true)
		p := g.part
		if p == nil {
			return
		}
		for over, lost := false, false; !over; {
			if over, lost = c.cfg.Reporter.outcome(p); lost || !over && g.gate.Wait(deadline) != nil {
				return
			}
		}
		c.hear()
	}
}
