package cq

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// place holds one completion that is in the chain of its source and not in the ring. pushed is the
// number of the completion, as CQ.pushed counts. next is the index of the place with the source's
// next completion. In a free place, next is the index of the next free one.
type place struct {
	wc     verbs.WC
	pushed uint64
	next   int32
}

// places is the memory for the completions of a queue that are in chains instead of the ring.
type places struct {
	all   []place
	taken int
	used  int32 // index from which on places were never used
	// spare is the index of the first place in the list of free places that were used before. It is
	// valid only if there is such a place.
	spare int32
}

// take returns a free place, if possible one that was used recently. The caller has checked that
// one is free.
func (p *places) take() int32 {
	at := p.spare
	if p.taken == int(p.used) { // no spare place
		at = p.used
		p.used++
	} else {
		p.spare = p.all[at].next
	}
	p.taken++
	return at
}

// free makes the places of a chain free: n places, linked from first to last.
func (p *places) free(first, last int32, n int) {
	p.all[last].next = p.spare
	p.spare = first
	p.taken -= n
}
