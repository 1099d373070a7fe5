package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// flowTable holds the sequencers of all flows: the switch's state of the flows to servers with
// rules. Each sequencer has a small index. When a sequencer is removed from the table (reap),
// another one may get its index.
type flowTable struct {
	list   []*sequencer // index is sequencer.index; nil means that the index is free
	free   []uint32
	serial uint32 // serial number of the newest sequencer
}

// add gives a sequencer its index and serial number.
func (t *flowTable) add(l *sequencer) {
	t.serial++
	l.serial = t.serial
	if n := len(t.free); n > 0 {
		l.index = t.free[n-1]
		t.free = t.free[:n-1]
		t.list[l.index] = l
		return
	}
	l.index = uint32(len(t.list))
	t.list = append(t.list, l)
}

func (t *flowTable) remove(l *sequencer) {
	t.list[l.index] = nil
	t.free = append(t.free, l.index)
}

// byTag returns the sequencer of the flow that submitted the request with a tag; nil if the
// sequencer is no longer in the table.
func (t *flowTable) byTag(tag requester.Tag) *sequencer {
	if int(tag.Flow) >= len(t.list) {
		return nil
	}
	if l := t.list[tag.Flow]; l != nil && l.serial == tag.Generation {
		return l
	}
	return nil
}

// tag identifies a request of the sequencer's flow on a shared connection.
func (l *sequencer) tag(psn wire.PSN) requester.Tag {
	return requester.Tag{Flow: l.index, Generation: l.serial, PSN: psn}
}

// blockedList holds the sequencers that have held requests, or that must still send a sequence NAK,
// in the order in which they began to wait or were last served.
type blockedList struct {
	list  []*sequencer
	again []*sequencer // scratch memory of prune
}

// add puts a sequencer on the list, so that settle releases its held requests when their place is
// free.
func (b *blockedList) add(l *sequencer) {
	if !l.waits.blocked {
		l.waits.blocked = true
		b.list = append(b.list, l)
	}
}

// prune removes the sequencers that do not wait any more. It moves each sequencer of which settle
// has just released a request (served) to the end of the list. So a client with many requests does
// not keep other clients from a word.
func (b *blockedList) prune() {
	if len(b.list) == 0 {
		return
	}
	b.again = b.again[:0]
	n := 0
	for _, l := range b.list {
		switch {
		case l.waits.held.n == 0 && l.naks != nakOwed:
			l.waits.blocked = false
		case l.waits.served:
			b.again = append(b.again, l)
		default:
			b.list[n] = l
			n++
		}
		l.waits.served = false
	}
	n += copy(b.list[n:], b.again)
	clear(b.list[n:])
	b.list = b.list[:n]
}
