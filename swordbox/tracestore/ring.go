package tracestore

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// ring is a ring of records in the memory of servers, for one rule or several.
type ring struct {
	Layout
	m     *Machine
	index uint32 // number of the ring among those of the machine, from 1
	ids   []string
	// number is that of the newest record; positions are one less. epoch is 0 until the first record.
	number  uint64
	epoch   uint32
	batches []batch // one for each server
}

// batch has records for neighbouring cells of a server, which wait for their WRITE.
type batch struct {
	ch      *channel
	bytes   []byte
	offset  uint64 // of the first record, in the server's memory
	records int
	due     clock.Time // when the WRITE leaves at the latest; clock.Never if there are no records
}

func (m *Machine) newRing(l *Layout) *ring {
	m.begun++
	g := &ring{Layout: *l, m: m, index: m.begun, batches: make([]batch, len(l.Servers))}
	for i := range g.batches {
		g.batches[i] = batch{bytes: make([]byte, 0, l.Batch*packettrace.Size), due: clock.Never}
	}
	return g
}

// record puts a record into the next cell. It sets the record's Number and Epoch.
func (g *ring) record(c *pipeline.Ctx, r *packettrace.Record) {
	server, offset := g.Place(g.number)
	b := &g.batches[server]
	g.number++
	st := &g.m.stats
	st.Records++
	if g.epoch == 0 {
		if !b.ch.Conn.Up() {
			st.Dropped++
			return
		}
		// The epoch is never 0. The factor is even and spreads rings over all bits, so that rings of
		// one connection have different epochs although bit 0 is always set.
		g.epoch = b.ch.Nonce() ^ g.index*0x9e3779b2 | 1
	}
	if !b.takes(g.Batch, offset) {
		if g.flush(c, b); !b.takes(g.Batch, offset) {
			st.Dropped++ // the server can take no WRITE, and the batch has no room
			return
		}
	}
	if b.records == 0 {
		b.offset, b.due = offset, c.Now.Add(g.Wait)
	}
	r.Number, r.Epoch = g.number, g.epoch
	b.bytes = r.AppendTo(b.bytes)
	b.records++
	if b.due <= c.Now || !b.takes(g.Batch, offset+packettrace.Size) {
		g.flush(c, b)
	}
}

// takes reports whether a record for an offset in the server's memory can go into the batch, which has
// at most `most` records.
func (b *batch) takes(most int, offset uint64) bool {
	if b.ch.Conn.Up() {
		most = max(1, min(most, b.ch.Longest()/packettrace.Size))
	}
	return b.records == 0 || b.records < most && offset == b.offset+uint64(len(b.bytes))
}

// flush sends the records of a batch, if there are any and the server can take a WRITE.
func (g *ring) flush(c *pipeline.Ctx, b *batch) {
	switch {
	case b.records == 0 || !b.ch.up(0):
		return
	case len(b.bytes) > b.ch.Longest(): // the connection before this one had a longer path MTU
		g.m.stats.Dropped += uint64(b.records)
	default:
		b.ch.write(c, b.offset, b.bytes, b.records)
	}
	b.bytes, b.records, b.due = b.bytes[:0], 0, clock.Never
}

// deadline returns when the next batch is to be sent that its server can take.
func (g *ring) deadline() clock.Time {
	at := clock.Never
	for i := range g.batches {
		if b := &g.batches[i]; b.ch.up(0) {
			at = clock.Min(at, b.due)
		}
	}
	return at
}

// pump sends the batches that are due.
func (g *ring) pump(c *pipeline.Ctx) {
	for i := range g.batches {
		if b := &g.batches[i]; b.due <= c.Now {
			g.flush(c, b)
		}
	}
}

// waiting returns how many records are in batches.
func (g *ring) waiting() (n uint64) {
	for i := range g.batches {
		n += uint64(g.batches[i].records)
	}
	return n
}
