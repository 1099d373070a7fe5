package cq

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// maxRing is the largest number of completions in the ring. It is small, because Purge goes through
// the whole ring while the NIC is locked. With this limit, that takes a few microseconds at most.
const maxRing = 1 << 10

// entry is a completion in the ring, and its source.
type entry struct {
	wc verbs.WC
	s  *Source
}

// firstRing is the number of entries that a ring has when the first completion comes.
const firstRing = 64

// ring has the n oldest completions of a queue, in the order in which they were pushed.
type ring struct {
	all  []entry
	most int // all has at most so many entries; it grows up to this number
	head int // index of the oldest completion
	n    int
}

// grow doubles the number of entries. It is called when all are used, and there are fewer than
// most.
func (r *ring) grow() {
	all := make([]entry, min(max(2*len(r.all), firstRing), r.most))
	n := copy(all, r.all[r.head:])
	copy(all[n:], r.all[:r.head])
	r.all, r.head = all, 0
}

// at returns the index in r.all of the completion that has i older completions in the ring. If i is
// r.n, it returns the index of the free entry behind the newest completion.
func (r *ring) at(i int) int {
	if i += r.head; i >= len(r.all) {
		i -= len(r.all)
	}
	return i
}

// add appends a completion of s. The caller has checked that the ring is not full.
func (r *ring) add(s *Source, wc *verbs.WC) {
	if r.n == len(r.all) {
		r.grow()
	}
	e := &r.all[r.at(r.n)]
	e.wc, e.s = *wc, s
	r.n++
}

// poll moves up to len(wc) completions to wc, and returns their number.
func (r *ring) poll(wc []verbs.WC) int {
	n := min(len(wc), r.n)
	all, at := r.all, r.head
	for i := range wc[:n] {
		wc[i] = all[at].wc
		if at++; at == len(all) {
			at = 0
		}
	}
	r.head = at
	r.n -= n
	return n
}

// purge removes the completions that are to go.
func (r *ring) purge(goes func(e *entry) bool) {
	kept := 0
	for i := range r.n {
		from := r.at(i)
		if goes(&r.all[from]) {
			continue
		}
		if to := r.at(kept); to != from {
			r.all[to] = r.all[from]
		}
		kept++
	}
	r.n = kept
}
