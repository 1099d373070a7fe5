package clover

import (
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// reports are the appends that a client has to report to the metadata server, and the shortcuts of
// the newest nodes. It does so in the background: no operation waits for it.
type reports struct {
	records   []rpc.Record
	shortcuts []shortcut // of the keys of records, in the same order
	busy      bool
	// batch is the number of records in the request that was sent last, or in part; these are the
	// oldest ones. They are dropped when the answer arrives.
	batch int
	// heard: the answer to the last request has arrived, and hear has not read it yet.
	heard   bool
	seq     uint32
	sent    clock.Time
	request rpc.Request
	op      remotemem.Op
	words   [rpc.MaxBatch]remotemem.Op

	// part is what Config.Reporter has of this client; nil: nothing. parts counts these parts under
	// the client's present number. gate opens when a part is over.
	part  *part
	parts uint32
	gate  verbs.Gate
	// oldest is the epoch of the oldest record that may yet arrive in a part; 0: none. A part that was
	// lost may arrive until the metadata server has answered a later one.
	oldest uint32
}

// shortcut has the fields of an append's shortcut other than the location of its node.
type shortcut struct {
	slot uint32
	// epoch is the epoch in which the client was when it began to link the node.
	epoch uint32
}

// forget drops all records and the request in flight, because the metadata server does not know the
// client any more.
func (g *reports) forget() {
	g.abandon()
	g.heard, g.part, g.parts, g.oldest = false, nil, 0, 0
	g.drop(len(g.records))
}

// are reports whether all records are of the given epoch, also those that may yet arrive.
func (g *reports) are(epoch uint32) bool {
	return (len(g.shortcuts) == 0 || g.shortcuts[0].epoch == epoch) && (g.oldest == 0 || g.oldest == epoch)
}

// drop forgets the oldest n records.
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

// abandon is called when the connection to the metadata server has failed, before the client makes
// another one: the answer to a request in flight will not arrive, and its records are sent again.
func (g *reports) abandon() { g.busy, g.batch = false, 0 }

// appended records an append for the next report.
func (c *appender) appended(r rpc.Record, s shortcut) {
	g := &c.gc
	if len(g.records) == maxPending {
		g.drop(1)
	}
	g.records, g.shortcuts = append(g.records, r), append(g.shortcuts, s)
	c.report(r.Deleted)
}

// report sends the oldest records to the metadata server if there are at least Config.Records of
// them; if now is true, fewer are enough. It sends nothing while a report is in flight or the
// client has no connection to the server: the records stay for a later call. With Config.Reporter
// it hands the records to the reporter of the process instead.
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
	if err := c.send(&g.request, &g.op, c.at.async, slotReport); err != nil {
		return // the connection has failed; the next call makes a new one
	}
	g.busy, g.heard, g.seq, g.sent, g.batch = true, false, c.call.seq, c.rt.Now(), n
}

// handOver hands the oldest n records to the Reporter.
func (c *session) handOver(n int) {
	g := &c.gc
	c.writeShortcuts(n)
	if g.parts++; g.oldest == 0 {
		g.oldest = g.shortcuts[0].epoch
	}
	g.part, g.batch = &part{Part: rpc.Part{Client: c.lease.client, Seq: g.parts, Records: slices.Clone(g.records[:n])}, gate: g.gate}, n
	c.cfg.Reporter.add(g.part)
}

// hear reads the answer to the last report, which renews the lease as every answer does. It takes
// the outcome of a part that the Reporter has sent. That renews nothing, because it does not say
// when the metadata server has last heard of this client.
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
		c.lease.until = 0
		return
	}
	c.renew(c.gc.sent, &a)
}

// idle reports whether the last WRITEs of shortcuts and the last request are complete, so that
// their buffers can be reused.
func (g *reports) idle() bool {
	for i := range g.words {
		if o := &g.words[i]; o.WR.SGL != nil && !o.Done {
			return false
		}
	}
	return g.op.WR.SGL == nil || g.op.Done
}

// writeShortcuts posts the shortcut of each key among the first n records. If a key has several
// records, its shortcut names the last one's node.
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
		_ = c.fab.Start(&c.gc.words[i]) // if it fails, the shortcut names an older node
	}
}

// lastOf returns the last of the first n records that has the key of record i.
func (c *session) lastOf(i, n int) int {
	for j := n - 1; j > i; j-- {
		if c.gc.records[j].Key == c.gc.records[i].Key {
			return j
		}
	}
	return i
}

// farewell reports all appends and gives back unused nodes. If that fails, the metadata server
// takes the nodes back when the lease ends.
func (c *appender) farewell(deadline clock.Time) {
	if c.cfg.Reporter != nil {
		c.reportAll(deadline)
	}
	for c.cfg.Reporter == nil && len(c.gc.records) > 0 && c.fab.Connected(c.meta) {
		c.report(true)
		if !c.gc.busy && c.gc.idle() {
			return // the request could not be posted: the verbs context is closed
		}
		err := c.fab.Until(deadline, func() bool { return !c.gc.busy && c.gc.idle() || !c.fab.Connected(c.meta) })
		if err != nil {
			return
		}
	}
	c.giveBack(deadline)
	_, _ = c.request(&rpc.Request{Op: rpc.OpBye, Quiet: c.quiet()}, deadline) // if the request is lost, the lease ends by itself
}

// reportAll waits until the Reporter has reported all appends, or has failed to.
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
