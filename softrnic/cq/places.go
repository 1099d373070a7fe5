package cq

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// place has one completion. next is the index of the place of the source's next completion, or of
// the next free place.
type place struct {
	wc     verbs.WC
	pushed uint64
	next   int32
}

// places has room for the completions of a queue.
type places struct {
	all   []place
	taken int
	used  int32 // index from which on places were never used
	// spare is the first of a list of free places below used. It is valid if there is such a place.
	spare int32
}

func newPlaces(n int) places { return places{all: make([]place, n)} }

// take returns a free place, if possible one that was used recently. It returns -1 if there is
// none.
func (p *places) take() int32 {
	at := p.spare
	switch {
	case p.taken == len(p.all):
		return -1
	case p.taken == int(p.used): // no spare place
		at = p.used
		p.used++
	default:
		p.spare = p.all[at].next
	}
	p.taken++
	return at
}

// free makes the n places of a chain free.
func (p *places) free(first, last int32, n int) {
	p.all[last].next = p.spare
	p.spare = first
	p.taken -= n
}
