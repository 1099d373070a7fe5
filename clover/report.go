package clover

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
)

// reporter reports appends to the metadata server, and writes the shortcuts of the newest nodes, in
// the background: no operation waits for it.
type reporter struct {
	records   []rpc.Record
	shortcuts []shortcut // of the keys of records, in the same order
	busy      bool
	// batch is the number of records in the request that was sent last; these are the oldest ones.
	// They are dropped when the answer arrives.
	batch int
	// heard: the answer to the last request has arrived, and hear has not read it yet.
	heard   bool
	seq     uint32
	sent    clock.Time
	request rpc.Request
	op      remotemem.Op
	words   [rpc.MaxBatch]remotemem.Op
}

// shortcut has the fields of an append's shortcut other than the location of its node.
type shortcut struct {
	slot uint32
	// epoch is the epoch in which the client was when it began to link the node.
	epoch uint32
}

// forget drops all records and the request in flight, because the metadata server does not know the
// client any more.
func (g *reporter) forget() {
	g.abandon()
	g.heard = false
	g.drop(len(g.records))
}

// drop forgets the oldest n records.
func (g *reporter) drop(n int) {
	g.records = g.records[:copy(g.records, g.records[n:])]
	g.shortcuts = g.shortcuts[:copy(g.shortcuts, g.shortcuts[n:])]
	g.batch = max(0, g.batch-n)
}

func (g *reporter) answered(seq uint32) {
	if g.busy && seq == g.seq&0x7fffffff {
		g.busy, g.heard = false, true
		g.drop(g.batch)
	}
}

// abandon is called when the connection to the metadata server has failed, before the client makes
// another one: the answer to a request in flight will not arrive, and its records are sent again.
func (g *reporter) abandon() { g.busy, g.batch = false, 0 }

// appended records an append for the next report.
func (c *appender) appended(r rpc.Record, s shortcut) {
	g := &c.gc
	if len(g.records) == maxPending {
		g.drop(1)
	}
	g.records, g.shortcuts = append(g.records, r), append(g.shortcuts, s)
	c.report(r.Deleted)
}

// report sends the oldest records if there are at least Config.Records of them, or in any case if
// now is true.
func (c *appender) report(now bool) {
	g := &c.gc
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

// hear reads the answer to the last report, which renews the lease as every answer does.
func (c *appender) hear() {
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
// their buffers can be used again.
func (g *reporter) idle() bool {
	for i := range g.words {
		if o := &g.words[i]; o.WR.SGL != nil && !o.Done {
			return false
		}
	}
	return g.op.WR.SGL == nil || g.op.Done
}

// writeShortcuts posts the shortcut of each key among the first n records. If a key has several
// records, its shortcut names the last one's node.
func (c *appender) writeShortcuts(n int) {
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
func (c *appender) lastOf(i, n int) int {
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
	for len(c.gc.records) > 0 && c.fab.Connected(c.meta) {
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
