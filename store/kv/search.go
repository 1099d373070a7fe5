package kv

import (
	"cmp"
	"slices"
)

// operation is one operation on a key that a History has recorded.
type operation struct {
	client int
	in     input
	out    output
	// call and end are the positions of the call and the answer in the history. end is never if
	// there was no answer.
	call, end int64
}

// optional reports whether an order may leave out the operation, because it has no answer.
func (o *operation) optional() bool { return o.end == never }

// search looks for an order of the operations on one key that explains every answer. It places one
// operation after another. An operation may be the next one if no operation that is not yet placed
// has ended before its call (Wing and Gong). If the search has failed with a set of placed
// operations and a state of the key, it does not try the same set and state again (Lowe). Four
// observations keep the number of states small:
//
//   - An operation without effect is placed as soon as the state explains its answer. In every
//     order in which it comes later, it could come now as well.
//   - Each value is written once. So the search keeps the key at a value until all GETs that have
//     found this value are placed.
//   - Values that no GET has found are all alike.
//   - An operation without an answer may be left out. If several of them are alike, trying the
//     first one is enough. If the search fails although some of them are still available, it fails
//     with fewer as well.
type search struct {
	ops []operation // in the order of their calls
	// next and back link the calls and answers of the operations that are not placed, in their
	// order. Entry 0 is the head of this list, entry 1+i is the call of operation i, and entry
	// 1+len(ops)+i its answer.
	next, back []int
	// open is the number of operations with an answer that are not placed. reads and writes count,
	// by value, operations that are not placed: the GETs that found the value, and the writes of
	// the value.
	open          int
	reads, writes map[uint64]int
	// trail lists the placed operations. left has the bits of those that are among the first 64
	// optional operations. placed is a hash of the other placed operations.
	trail  []int
	placed [2]uint64
	left   uint64
	bits   []uint64 // bits[i] is the bit of operation i in left, or 0 if it has none
	failed map[searched]*failures

	states, most int // how many states were visited, and how many may be
}

// searched is a state of the key after a set of placed operations.
type searched struct {
	placed [2]uint64
	state  state
}

// failures are the sets of optional operations that were placed when the search failed in a state.
// If the same operations and others are placed, the search fails again.
type failures struct {
	// few has at most mostCompared sets, none of which is a subset of another. Each visit compares
	// its set with all of them.
	few []uint64
	// more has the other sets. A visit finds one of them only if it is equal to the visit's set.
	more map[uint64]struct{}
}

// mostCompared is the largest number of sets in failures.few. When the search visits a state, it
// compares the set of operations that it has placed with each of these sets. So mostCompared limits
// the time of a visit, and together with the limit of visited states the time of the search.
const mostCompared = 64

// has reports whether the search has failed in this state with the set `left` or with a subset of
// it. If not, has adds the set `left`.
func (f *failures) has(left uint64) bool {
	for _, part := range f.few {
		if part&^left == 0 {
			return true
		}
	}
	f.few = slices.DeleteFunc(f.few, func(whole uint64) bool { return left&^whole == 0 })
	if len(f.few) < mostCompared {
		f.few = append(f.few, left)
		return false
	}
	if _, ok := f.more[left]; ok {
		return true
	}
	if f.more == nil {
		f.more = make(map[uint64]struct{})
	}
	f.more[left] = struct{}{}
	return false
}

// unseen stands for every value that no GET has found.
const unseen = uint64(1<<63 | 2)

// newSearch prepares a search that visits at most limit states.
func newSearch(list []operation, limit int) *search {
	s := &search{
		ops: slices.Clone(list), most: limit,
		reads: map[uint64]int{}, writes: map[uint64]int{}, failed: map[searched]*failures{},
	}
	slices.SortFunc(s.ops, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	for i := range s.ops {
		if o := &s.ops[i]; o.in.kind == opGet && o.out.outcome == done {
			s.reads[o.out.value]++
		}
	}
	s.bits = make([]uint64, len(s.ops))
	optional := 0
	for i := range s.ops {
		o := &s.ops[i]
		if o.in.kind.writes() {
			if s.reads[o.in.value] == 0 {
				o.in.value = unseen
			}
			s.writes[o.in.value]++
		}
		switch {
		case !o.optional():
			s.open++
		case optional < 64:
			s.bits[i] = 1 << optional
			optional++
		}
	}
	s.link()
	return s
}

// link makes the list of all calls and answers.
func (s *search) link() {
	n := len(s.ops)
	order := make([]int, 0, 2*n)
	at := func(e int) int64 {
		if e > n {
			return s.ops[e-1-n].end
		}
		return s.ops[e-1].call
	}
	for i := range s.ops {
		order = append(order, 1+i)
		if !s.ops[i].optional() {
			order = append(order, 1+n+i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at(a), at(b)) })
	s.next, s.back = make([]int, 1+2*n), make([]int, 1+2*n)
	last := 0
	for _, e := range order {
		s.next[last], s.back[e] = e, last
		last = e
	}
	s.next[last], s.back[0] = 0, last
}

func (s *search) isCall(e int) bool { return e > 0 && e <= len(s.ops) }

// place makes operation i the next one of the order: it removes the operation from the list of
// calls and answers. unplace puts the operation that was placed last back into the list.
func (s *search) place(i int) {
	s.unlink(1 + i)
	if !s.ops[i].optional() {
		s.unlink(1 + len(s.ops) + i)
	}
	s.trail = append(s.trail, i)
	s.count(i, -1)
}

func (s *search) unplace() {
	i := s.trail[len(s.trail)-1]
	s.trail = s.trail[:len(s.trail)-1]
	if !s.ops[i].optional() {
		s.relink(1 + len(s.ops) + i)
	}
	s.relink(1 + i)
	s.count(i, 1)
}

func (s *search) unlink(e int) { s.next[s.back[e]], s.back[s.next[e]] = s.next[e], s.back[e] }
func (s *search) relink(e int) { s.next[s.back[e]], s.back[s.next[e]] = e, e }

// count updates the counters when operation i is placed (by is -1), or is no longer placed (by is
// 1).
func (s *search) count(i, by int) {
	switch o := &s.ops[i]; {
	case o.in.kind == opGet && o.out.outcome == done:
		s.reads[o.out.value] += by
	case o.in.kind.writes():
		s.writes[o.in.value] += by
	}
	if !s.ops[i].optional() {
		s.open += by
	}
	if s.bits[i] != 0 {
		s.left ^= s.bits[i]
		return
	}
	s.placed[0] ^= mix(uint64(2*i + 1))
	s.placed[1] ^= mix(uint64(2*i + 2))
}

// found searches for an order of the operations that are not placed, beginning in state st, and
// returns true if there is one. It also returns false when the limit of visited states is reached
// (see undecided).
func (s *search) found(st state) bool {
	if s.states++; s.undecided() {
		return false
	}
	mark := len(s.trail)
	s.placeIdle(st)
	if s.open == 0 || !s.hasFailed(st) && s.mayLeave(st.value) && (s.tryEach(st, false) || s.tryEach(st, true)) {
		return true
	}
	for len(s.trail) > mark {
		s.unplace()
	}
	return false
}

// undecided reports whether the limit of visited states is reached.
func (s *search) undecided() bool { return s.states > s.most }

// placeIdle places the operations that change nothing and whose answers the state st explains.
func (s *search) placeIdle(st state) {
	for again := true; again; {
		again = false
		for e := s.next[0]; s.isCall(e); e = s.next[e] {
			o := &s.ops[e-1]
			if o.out.outcome == unknown || o.out.outcome == done && o.in.kind != opGet {
				continue
			}
			if _, n := step(st, o.in, o.out); n > 0 {
				s.place(e - 1)
				again = true
			}
		}
	}
}

// hasFailed reports whether the search has failed before in this state, with the same or fewer
// optional operations placed. If not, it records the attempt that begins now.
func (s *search) hasFailed(st state) bool {
	at := searched{s.placed, st}
	f := s.failed[at]
	if f == nil {
		f = new(failures)
		s.failed[at] = f
	}
	return f.has(s.left)
}

// mayLeave reports whether the next operation of the order may replace this value of the key. It
// may if all GETs that have found the value are placed, or if a write of the same value is still to
// be placed.
func (s *search) mayLeave(value uint64) bool { return s.reads[value] == 0 || s.writes[value] > 0 }

// tryEach tries each operation that may be the next one: those with an answer or, if optional is
// true, those without. It returns true if an order was found.
func (s *search) tryEach(st state, optional bool) bool {
	var tried []int
	for e := s.next[0]; s.isCall(e); e = s.next[e] {
		i := e - 1
		o := &s.ops[i]
		if o.optional() != optional || optional && slices.ContainsFunc(tried, func(j int) bool { return s.alike(i, j) }) {
			continue
		}
		after, n := step(st, o.in, o.out)
		for _, to := range after[:n] {
			if optional && to == st {
				continue // the order without the operation is tried anyway
			}
			s.place(i)
			if s.found(to) {
				return true
			}
			s.unplace()
			if s.undecided() {
				return false
			}
		}
		if optional {
			tried = append(tried, i)
		}
	}
	return false
}

// alike reports whether the optional operations i and j have the same effects.
func (s *search) alike(i, j int) bool {
	a, b := &s.ops[i], &s.ops[j]
	return a.in.kind == b.in.kind && a.in.value == b.in.value && a.in.losses == b.in.losses && a.out.exposed == b.out.exposed
}
