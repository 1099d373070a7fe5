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

// Places are allocated in blocks. When no place is taken, all blocks but keptBlocks are freed.
const (
	blockBits  = 10
	blockLen   = 1 << blockBits
	keptBlocks = 16
)

// places is the memory for the completions of a queue that are in chains instead of the ring.
type places struct {
	blocks []*[blockLen]place
	taken  int
	used   int32 // index from which on places were not used since none was taken
	// spare is the index of the first place in the list of free places that were used before. It is
	// valid only if there is such a place.
	spare int32
}

// at returns the place with index i.
func (p *places) at(i int32) *place { return &p.blocks[i>>blockBits][i&(blockLen-1)] }

// take returns a free place, if possible one that was used recently. The caller has checked that
// the queue has room.
func (p *places) take() int32 {
	at := p.spare
	if p.taken == int(p.used) { // no spare place
		at = p.used
		if int(at)>>blockBits == len(p.blocks) {
			p.blocks = append(p.blocks, new([blockLen]place))
		}
		p.used++
	} else {
		p.spare = p.at(at).next
	}
	p.taken++
	return at
}

// free makes the places of a chain free: n places, linked from first to last.
func (p *places) free(first, last int32, n int) {
	p.at(last).next = p.spare
	p.spare = first
	if p.taken -= n; p.taken == 0 {
		p.used = 0
		p.shrink()
	}
}

// shrink frees all blocks but keptBlocks. No place is taken.
func (p *places) shrink() {
	if len(p.blocks) > keptBlocks {
		clear(p.blocks[keptBlocks:])
		p.blocks = p.blocks[:keptBlocks]
	}
}
