package redn

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// Loop is a recycled loop: the last request of a managed queue enables this queue for one more lap,
// so that the NIC executes the same requests again. WAIT and ENABLE have absolute counts and
// indexes, so each lap must raise them. The pool has a 16-bit copy of each count, its shadow. In
// each lap masked ADDs raise the shadows, each ADD four of them. READs copy the shadows into the
// requests, with the bytes of each in reverse order. Other READs restore requests that the lap has
// changed.
//
// A lap must fill the rings of all queues of the loop; NOPs fill what the requests of the lap leave
// free. Recycle begins a loop, its caller appends the requests of a lap to the queues, and End ends
// the loop. From then on the queues cannot be used for anything else.
type Loop struct {
	q       *Queue   // the queue that enables itself
	on      []*Queue // the other queues of the loop
	pool    *Pool
	closing *Request // the ENABLE of the next lap, the last request of a lap
	scratch Mem      // 8 bytes that requests of the loop may overwrite
	exit    Mem      // the control segment of a NOP; a break copies it over the control segment of closing
	// original has the control segments of the requests in restored, as they were built, and behind
	// them the control segment of closing.
	original Mem
	restored []*Request
	counted  []*Request // requests whose counts each lap raises; the last one is closing
	by       []uint32   // by how much each lap raises the count with the same index in counted
	shadow   Mem        // the shadows of counted, 16 bits each, little-endian
	// outside counts the client's requests, if each lap answers one of them; otherwise it is nil.
	outside *Counter
	// receives is how many requests of the client one lap takes; 0 means one.
	receives uint32
}

const (
	countsInWord = 4 // shadows, of 16 bits each, in the word of an ADD
	controlLen   = 8 // bytes of the control segment of a request that a CAS can change
	// maxCountLap is the most by which a lap may raise a count. With 16 bits, a ring can order two
	// counts only if they differ by less than half of the range.
	maxCountLap = 1<<15 - 1
)

// fix says what a READ or an ADD of a loop does for the count of request `to`, which has a copy,
// the shadow, in memory. The READ copies the shadow into the request; the ADD raises the shadow by
// `by`. Verify simulates both.
type fix struct {
	to *Request
	by uint32
}

// Recycle begins a loop in q. `on` are the other queues of the loop: each lap enables their
// requests. All queues are managed and have no requests yet. Their rings compare only the low 16
// bits of counts and indexes (Counts16).
func (q *Queue) Recycle(pool *Pool, on ...*Queue) (*Loop, error) {
	l := &Loop{q: q, on: on, pool: pool}
	for _, each := range l.queues() {
		if !each.Managed || !each.Counts16 || each.next != 0 || each.loop != nil {
			return nil, fmt.Errorf("redn: queue %s: the queues of a loop are managed, have counts of 16 bits and no requests yet", each.Name)
		}
		each.loop = l
	}
	blocks := uint32(q.blocks())
	e := sendring.Entry{Op: sendring.Enable, Count: blocks, Object: uint32(q.QPN), Index: uint16(blocks - 1), QPN: q.QPN}
	l.closing = &Request{queue: q, index: blocks - 1, entry: e, to: q, changed: true}
	nop := sendring.Entry{Op: sendring.NOP, Segments: 2}
	l.exit = pool.Put(nop.AppendTo(nil)[:controlLen])
	l.scratch, _ = pool.Reserve(wordLen)
	return l, nil
}

func (l *Loop) queues() []*Queue { return append([]*Queue{l.q}, l.on...) }

// Exit returns the destination and source for a conditional copy that ends the loop with this lap.
// The copy replaces the request that enables the next lap by a NOP.
func (l *Loop) Exit() (dst, src Mem) { return l.closing.Control(), l.exit }

// Break appends requests that make this lap the last one if the operand at x equals y. on is a
// queue of the loop.
func (l *Loop) Break(on *Queue, x Mem, y Operand) {
	dst, src := l.Exit()
	l.q.If(on, x, y, dst, src, l.scratch)
}

// End appends the end of a lap: it restores the requests that the lap has changed, raises the
// counts and enables the next lap.
func (l *Loop) End() error {
	l.restore()
	l.refresh()
	l.raise()
	return l.Close()
}

// restore appends READs that restore the requests that a lap changes, and puts their original
// control segments into the pool.
func (l *Loop) restore() {
	for _, q := range l.queues() {
		for _, r := range q.requests {
			if r.changed {
				l.restored = append(l.restored, r)
			}
		}
	}
	var image []byte
	l.original, image = l.pool.Reserve(controlLen * (len(l.restored) + 1))
	for i, r := range slices.Concat(l.restored, []*Request{l.closing}) {
		copy(image[i*controlLen:], r.entry.AppendTo(nil)[:controlLen])
	}
	l.again(l.q, l.restored)
}

// again appends READs to q that copy the original control segments over the requests in `all`.
// These must be the first requests of a list: those in l.restored, and then l.closing. l.original
// has the segments in this order.
func (l *Loop) again(q *Queue, all []*Request) {
	for at := 0; at < len(all); at += sendring.MaxSGE {
		part := all[at:min(at+sendring.MaxSGE, len(all))]
		dst := make([]Mem, len(part))
		for i, r := range part {
			dst[i] = r.Control()
		}
		q.Read(0, l.original.At(at*controlLen, len(part)*controlLen), dst...)
	}
}

// refresh appends READs that copy the counts for the next lap from their shadows into the requests
// that have counts. l.closing is one of these requests.
func (l *Loop) refresh() {
	for _, r := range l.q.requests {
		if r.counts() {
			l.counted = append(l.counted, r)
		}
	}
	l.counted = append(l.counted, l.closing)
	var image []byte
	l.shadow, image = l.pool.Reserve((len(l.counted) + countsInWord - 1) / countsInWord * wordLen)
	const each = sendring.MaxSGE / 2 // counts in one READ: each takes two SGEs, one for each of its bytes
	for i, r := range l.counted {
		l.by = append(l.by, l.perLap(r))
		binary.LittleEndian.PutUint16(image[2*i:], uint16(r.entry.Count+l.by[i]))
	}
	for at := 0; at < len(l.counted); at += each {
		part := l.counted[at:min(at+each, len(l.counted))]
		var dst []Mem
		for _, r := range part {
			c := r.Count()
			dst = append(dst, c.At(3, 1), c.At(2, 1))
		}
		read := l.q.Read(0, l.shadow.At(2*at, 2*len(part)), dst...)
		for i, r := range part {
			read.fixes = append(read.fixes, fix{r, l.by[at+i]})
		}
	}
}

// perLap returns by how much each lap raises the count of r, a WAIT, ENABLE or RECV_ENABLE.
func (l *Loop) perLap(r *Request) (n uint32) {
	if r.held {
		return 0
	}
	if r.receive || r.waits != nil && r.waits == l.outside {
		return max(1, l.receives)
	}
	for _, q := range l.queues() {
		if r.to == q {
			return uint32(q.blocks())
		}
		if r.waits == q.Done {
			for _, other := range q.requests {
				if other.entry.Flags&sendring.Signalled != 0 {
					n++
				}
			}
			return n
		}
	}
	return 0
}

// raise appends the ADDs that raise the shadows. Each ADD has a fence: it waits for the READs of
// the lap. So the ADDs do not change shadows that the READs still copy, and the NIC executes all
// later requests with their new counts. The first ADD is there for its fence even if it adds 0.
func (l *Loop) raise() {
	for at := 0; at < len(l.by); at += countsInWord {
		var addend, last uint64
		for i, by := range l.by[at:min(at+countsInWord, len(l.by))] {
			addend |= uint64(by) << (16 * i)
			last |= 1 << (16*i + 15)
		}
		if addend == 0 && at > 0 {
			continue
		}
		word := l.shadow.At(2*at, wordLen)
		add := l.q.remote(sendring.MaskedFetchAdd, sendring.Fence, word, l.scratch)
		add.entry.SwapAdd, add.entry.Compare = addend, last
		for i, by := range l.by[at:min(at+countsInWord, len(l.by))] {
			add.fixes = append(add.fixes, fix{l.counted[at+i], by})
		}
	}
}

// Close fills the rings with NOPs and appends the request that enables the next lap, at the end of
// the ring. End calls it. A caller that uses Close without End gets a loop that does not raise its
// counts: its second lap hangs, and Verify reports this.
func (l *Loop) Close() error {
	for i, by := range l.by {
		if by > maxCountLap {
			return fmt.Errorf("redn: queue %s: a lap raises the count at index %d by %d; at most %d", l.q.Name, l.counted[i].index, by, maxCountLap)
		}
	}
	for _, q := range l.queues() {
		end := uint32(q.blocks())
		if q == l.q {
			end--
		}
		if q.next > end {
			return fmt.Errorf("redn: queue %s: a lap of %d blocks does not fit into a ring of %d", q.Name, q.next+uint32(q.blocks())-end, q.blocks())
		}
		for fence := sendring.Fence; q.next < end; fence = 0 {
			n := min(end-q.next, sendring.MaxBlocks-1)
			q.Append(sendring.Entry{Op: sendring.NOP, Flags: fence, Segments: uint8(n * sendring.BlockSize / 16)}).pad = true
		}
	}
	l.q.requests = append(l.q.requests, l.closing)
	l.q.next++
	return nil
}

// Start appends requests that start the loop, for the first time or after a break, to queue `from`,
// which is managed. They restore the requests that the last lap has changed. Then an ENABLE starts
// the loop. Its count must be that of l.closing, the ENABLE at the end of a lap, which each lap
// raises. So a READ copies the count of l.closing into the ENABLE before the NIC executes it.
func (l *Loop) Start(from *Queue) {
	l.again(from, slices.Concat(l.restored, []*Request{l.closing}))
	enable := &Request{queue: from, index: from.next + 2}
	from.Read(sendring.Signalled, l.closing.Count(), enable.Count())
	from.Wait(from.Done)
	from.enable(l.q, l.closing.entry.Count)
}
