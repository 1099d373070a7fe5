package lookuptable

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// circle has the frames that wait in the switch for their entries. A chip would recirculate them: a
// frame passes the chip again and again until its entry has come. Here it waits in memory, and the
// counters say how long, which is how many passes a chip would need.
type circle struct {
	places []held // by the index of the frame's lookup in bouncer.frames; nil: frames are deposited
	number uint32 // of the next frame
	bytes  int    // of all frames that wait
}

// held is a frame that waits since a time. The place owns the bytes of the frame.
type held struct {
	frame packetio.Frame
	since clock.Time
}

// hold lets a frame wait in the switch, and asks for its entry.
func (b *bouncer) hold(c *pipeline.Ctx, in int, f packetio.Frame, k *Key, h uint64) bool {
	if !b.Up() {
		return b.table.Refuse(c, in, f, &b.table.stats.Blocked, ReasonBlocked)
	}
	if b.circle.bytes+len(f.Data) > b.table.Cells*b.table.Cell {
		return b.table.Refuse(c, in, f, &b.table.stats.Full, ReasonFull)
	}
	b.circle.bytes += len(f.Data)
	x := &b.circle.places[(b.first+b.n)%len(b.frames)]
	bytes := append(x.frame.Data[:0], f.Data...)
	x.frame, x.since = f, c.Now
	x.frame.Data, x.frame.Open = bytes, nil
	b.circle.number++
	b.begin(c, flight{Lookup: Lookup{Key: *k, Hash: h, In: in}, number: b.circle.number})
	return true
}

// release ends the lookups whose entries have come, in the order of the frames' arrival, and reports
// whether there was one.
func (b *bouncer) release(c *pipeline.Ctx) (moved bool) {
	for b.n > 0 && b.at(0).Found != Unknown {
		l, x := b.at(0).Lookup, &b.circle.places[b.first]
		f := x.frame
		b.table.stats.Circled++
		b.table.stats.CircledNS += uint64(c.Now.Sub(x.since))
		b.circle.bytes -= len(f.Data)
		b.pop()
		b.table.Done(c, &l, f)
		if cap(x.frame.Data) > b.table.Cell { // a super-frame: its memory does not stay
			x.frame.Data = nil
		}
		moved = true
	}
	return moved
}
