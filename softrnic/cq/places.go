package cq

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// place has one completion. next is the place of the next completion of the same source, or of the
// next free place.
type place struct {
	wc     verbs.WC
	pushed uint64
	next   int32
}

// places are the completions that a queue has room for.
type places struct {
	all   []place
	taken int
	used  int32 // places from here on were never taken
	// spare is the first of a chain of free places before used; valid while there is one.
	spare int32
}

func newPlaces(n int) places { return places{all: make([]place, n)} }

// take returns a free place, one that was in use lately if there is one; false: there is none.
func (p *places) take() (int32, bool) {
	switch {
	case p.taken == len(p.all):
		return 0, false
	case p.taken == int(p.used): // none is spare
		p.taken++
		p.used++
		return p.used - 1, true
	}
	at := p.spare
	p.spare = p.all[at].next
	p.taken++
	return at, true
}

// free gives back a chain of n places.
func (p *places) free(first, last int32, n int) {
	p.all[last].next = p.spare
	p.spare = first
	p.taken -= n
}
