package clover

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
)

// reporter tells the metadata server of appends, and the shortcuts of the newest nodes, behind the back of the data path:
// nobody waits for it.
type reporter struct {
	records []rpc.Record
	slots   []uint32
	busy    bool
	// batch is how many of the oldest records the last request has: they are dropped when it is answered.
	batch int
	// heard says that the answer to the last request has come and was not read.
	heard   bool
	seq     uint32
	sent    clock.Time
	request rpc.Request
	op      fabric.Op
	words   [rpc.MaxBatch]fabric.Op
}

func (g *reporter) forget() { g.drop(len(g.records)) }

// drop forgets the oldest n records.
func (g *reporter) drop(n int) {
	g.records = g.records[:copy(g.records, g.records[n:])]
	g.slots = g.slots[:copy(g.slots, g.slots[n:])]
	g.batch = max(0, g.batch-n)
}

func (g *reporter) answered(seq uint32) {
	if g.busy && seq == g.seq&0x7fffffff {
		g.busy, g.heard = false, true
		g.drop(g.batch)
	}
}

// appended notes an append.
func (c *Client) appended(r rpc.Record, slot uint32) {
	g := &c.gc
	if len(g.records) == maxPending {
		g.drop(1)
	}
	g.records, g.slots = append(g.records, r), append(g.slots, slot)
	c.report(r.Deleted)
}

// report sends the oldest records, if there are enough of them or now says so.
func (c *Client) report(now bool) {
	g := &c.gc
	if g.busy && !c.fab.Connected(c.meta) {
		g.busy, g.batch = false, 0 // its answer will not come: they are sent again
	}
	n := min(len(g.records), rpc.MaxBatch)
	if g.busy || n == 0 || n < c.cfg.Records && !now || !c.fab.Connected(c.meta) || !g.idle() {
		return
	}
	c.writeShortcuts(n)
	g.request = rpc.Request{Op: rpc.OpGC, N: n}
	copy(g.request.Records[:n], g.records)
	if err := c.send(&g.request, &g.op, c.at.async, slotReport); err != nil {
		return // the connection has failed; it is made again by the next call
	}
	g.busy, g.heard, g.seq, g.sent, g.batch = true, false, c.call.seq, c.rt.Now(), n
}

// hear reads the answer to the last report, which renews the lease as every answer does.
func (c *Client) hear() {
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
	c.renew(c.gc.sent, a.Epoch)
}

// idle reports whether the last shortcuts and the last request have left the buffer.
func (g *reporter) idle() bool {
	for i := range g.words {
		if o := &g.words[i]; o.WR.SGL != nil && !o.Done {
			return false
		}
	}
	return g.op.WR.SGL == nil || g.op.Done
}

// writeShortcuts posts the newest node of each key among the first n records. That of a key that comes twice is its last.
func (c *Client) writeShortcuts(n int) {
	for i := range n {
		r := &c.gc.records[i]
		if r.Deleted || c.lastOf(i, n) != i {
			continue
		}
		p, ok := c.space.Shortcut(int(c.gc.slots[i]))
		if !ok || !c.fab.Connected(c.servers[p.Server].peer) {
			continue
		}
		s := &c.servers[p.Server]
		off := c.at.words + 8*(wordSlots-rpc.MaxBatch+i)
		if c.fab.MR().Store64(off, uint64(r.New.Word())) != nil {
			return
		}
		c.fab.Write(&c.gc.words[i], s.target(p.Offset), off, layout.ShortcutLen)
		_ = c.fab.Start(&c.gc.words[i]) // a shortcut that is not written only lags
	}
}

// lastOf is the last of the first n records that has the key of record i.
func (c *Client) lastOf(i, n int) int {
	for j := n - 1; j > i; j-- {
		if c.gc.records[j].Key == c.gc.records[i].Key {
			return j
		}
	}
	return i
}

// farewell reports everything and gives back unused nodes. What fails is recovered when the lease ends.
func (c *Client) farewell(deadline clock.Time) {
	for len(c.gc.records) > 0 && c.fab.Connected(c.meta) {
		c.report(true)
		if !c.gc.busy && c.gc.idle() {
			return // it could not be posted: the verbs context has gone with its application
		}
		err := c.fab.Until(deadline, func() bool { return !c.gc.busy && c.gc.idle() || !c.fab.Connected(c.meta) })
		if err != nil {
			return
		}
	}
	for class := range c.spare {
		for len(c.spare[class]) > 0 {
			r := rpc.Request{Op: rpc.OpReturn}
			for r.N < rpc.MaxBatch && len(c.spare[class]) > 0 {
				last := len(c.spare[class]) - 1
				r.Records[r.N].New = c.spare[class][last]
				c.spare[class] = c.spare[class][:last]
				r.N++
			}
			if _, err := c.request(&r, deadline); err != nil {
				return
			}
		}
	}
	_, _ = c.request(&rpc.Request{Op: rpc.OpBye}, deadline) // the lease ends by itself, too
}
