package cq

// chain is an entry of the heap chains: the completions of the source s that are not in the ring.
// oldest is the number of the oldest of them, as CQ.pushed counts.
type chain struct {
	oldest uint64
	s      *Source
}

// chains is a binary heap: the chain with the oldest completion is the first.
type chains []chain

// add appends a chain for the source s, which has just pushed its first completion that is not in
// the ring. This completion is the newest of the queue, so the chain belongs at the end of the
// heap.
func (h *chains) add(s *Source, oldest uint64) {
	s.at = len(*h)
	*h = append(*h, chain{oldest: oldest, s: s})
}

// remove removes the chain at index i.
func (h *chains) remove(i int) {
	old := *h
	last := len(old) - 1
	*h = old[:last]
	if i == last {
		return
	}
	old[i] = old[last]
	old[i].s.at = i
	if !h.up(i) {
		h.down(i)
	}
}

// up moves the chain at index i towards the front of the heap, until the chain above it has an
// older completion. It returns false if the chain stays where it is.
func (h chains) up(i int) bool {
	start := i
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].oldest < h[i].oldest {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i != start
}

// down moves the chain at index i away from the front of the heap, until no chain below it has an
// older completion.
func (h chains) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].oldest < h[least].oldest {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h chains) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].s.at, h[j].s.at = i, j
}
