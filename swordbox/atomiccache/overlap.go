package atomiccache

import (
	"cmp"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Everything is a length that stands for the whole memory of a server, whatever the address is. The
// caller uses it for a request whose address it does not know.
const Everything = ^uint32(0)

// Overlapping appends to buf the words of a server that overlap the n bytes at va, in the order of
// their addresses.
func (t *Table) Overlapping(buf []*Word, server uint16, va uint64, n uint32) []*Word {
	if n == 0 || t.live == 0 {
		return buf
	}
	start := len(buf)
	va, last := rangeOf(va, n)
	if pages := last>>pageShift - va>>pageShift; pages < uint64(t.live) {
		for p := va >> pageShift; p <= last>>pageShift; p++ {
			for i := t.byPage.get(Key{server, p<<pageShift | 1}); i != 0; i = t.at(i - 1).next {
				if w := t.at(i - 1); w.VA+7 >= va && w.VA <= last {
					buf = append(buf, w)
				}
			}
		}
	} else {
		for i := range t.n {
			if w := t.at(i); w.Server == server && w.VA+7 >= va && w.VA <= last {
				buf = append(buf, w)
			}
		}
	}
	slices.SortFunc(buf[start:], func(a, b *Word) int { return cmp.Compare(a.VA, b.VA) })
	return buf
}

// rangeOf returns the addresses of the first and the last of n bytes at va.
func rangeOf(va uint64, n uint32) (first, last uint64) {
	last = va + uint64(n) - 1
	switch {
	case n == Everything:
		return 0, ^uint64(0)
	case last < va:
		return va, ^uint64(0) // no region wraps around the end of the address space
	}
	return va, last
}

// Touches reports whether the n bytes at va overlap the word.
func (w *Word) Touches(va uint64, n uint32) bool {
	first, last := rangeOf(va, n)
	return n > 0 && w.VA+7 >= first && w.VA <= last
}

// ClientAll decides about a new operation on the n bytes at va that only the client's connection
// may carry. The result is Client, or Wait if a word that the operation touches does not allow it
// yet. The caller ends the decision with EndAll.
func (t *Table) ClientAll(now clock.Time, server uint16, va uint64, n uint32) Decision {
	t.cover = t.Overlapping(t.cover[:0], server, va, n)
	d := Decision{Kind: Client, window: t.interval(now)}
	for _, w := range t.cover {
		w.look(now)
		if w.State == Busy || w.State != Pass && w.occupied() {
			w.step(now, evForeign, &Decision{})
			d.Kind = Wait
		}
	}
	if d.Kind == Wait {
		return d
	}
	for _, w := range t.cover {
		w.step(now, evForeign, &Decision{})
	}
	d.serial = t.serial
	return d
}

// EndAll ends a decision of ClientAll. It is called when the server has executed the operation, or
// will never execute it.
func (t *Table) EndAll(now clock.Time, d Decision, server uint16, va uint64, n uint32) {
	if d.Kind != Client {
		return
	}
	t.cover = t.Overlapping(t.cover[:0], server, va, n)
	for _, w := range t.cover {
		w.clientEnded(now, d)
	}
}

// AtMost reports whether the n bytes at va touch at most max words. looked is how many pages and
// words AtMost has examined: a measure of the time that it took.
func (t *Table) AtMost(server uint16, va uint64, n uint32, max int) (ok bool, looked int) {
	if n == 0 || int(server) >= len(t.bounds) {
		return true, 0
	}
	va, last := rangeOf(va, n)
	if b := &t.bounds[server]; !b.any || last < b.first || va > b.last {
		return true, 0
	}
	found := 0
	touch := func(w *Word) {
		looked++
		if w.Server == server && w.VA+7 >= va && w.VA <= last {
			found++
		}
	}
	if pages := last>>pageShift - va>>pageShift; pages < uint64(t.live) {
		for p := va >> pageShift; p <= last>>pageShift && found <= max; p++ {
			looked++
			for i := t.byPage.get(Key{server, p<<pageShift | 1}); i != 0; i = t.at(i - 1).next {
				touch(t.at(i - 1))
			}
		}
	} else {
		for i := uint32(0); i < t.n && found <= max; i++ {
			touch(t.at(i))
		}
	}
	return found <= max, looked
}

// bound is the range of addresses of the words of a server that the table has had. It never
// shrinks.
type bound struct {
	first, last uint64 // addresses of the first and the last byte
	any         bool
}

// widen extends the range of a server's words so that it contains the word of key k.
func (t *Table) widen(k Key) {
	for int(k.Server) >= len(t.bounds) {
		t.bounds = append(t.bounds, bound{})
	}
	b := &t.bounds[k.Server]
	if !b.any {
		*b = bound{k.VA, k.VA + 7, true}
	}
	b.first, b.last = min(b.first, k.VA), max(b.last, k.VA+7)
}
