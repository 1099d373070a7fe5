package trunk

// windowLen is how many counters below the highest one a window remembers. A datagram that is overtaken
// by more is refused.
const windowLen = 4096

// windowWords has one word more than windowLen needs, because the word of the highest counter is cleared
// as a whole (RFC 6479).
const windowWords = windowLen/64 + 1

// window knows which counters of a key have been accepted, as in RFC 4303, appendix A2. Its zero value
// has seen none.
type window struct {
	highest uint64
	// counting: what is missing behind the counter from is counted. It begins with the next datagram that is
	// accepted, because the peer sends before it is heard. Accepted is how many counters behind from were, and
	// gone what was missing until counting ended.
	counting             bool
	from, accepted, gone uint64
	bits                 [windowWords]uint64
}

// verdict is what a window says of a counter.
type verdict uint8

const (
	fresh verdict = iota
	replayed
	old // too old to know
)

// look says whether a datagram with a counter may be accepted.
func (w *window) look(counter uint64) verdict {
	switch {
	case counter > w.highest:
		return fresh
	case counter == 0 || w.highest-counter >= windowLen:
		return old
	case w.bits[counter/64%windowWords]&(1<<(counter%64)) != 0:
		return replayed
	}
	return fresh
}

// accept notes a counter that look has found fresh, of a datagram that is authentic. It reports whether
// a later one has come before it.
func (w *window) accept(counter uint64) (overtaken bool) {
	overtaken = counter < w.highest
	if !w.counting && counter > w.highest {
		w.counting, w.from = true, counter-1
	}
	if counter > w.highest {
		from, to := w.highest/64, counter/64
		for i := from + 1; i <= to && i <= from+windowWords; i++ {
			w.bits[i%windowWords] = 0
		}
		w.highest = counter
	}
	w.bits[counter/64%windowWords] |= 1 << (counter % 64)
	if w.counting && counter > w.from {
		w.accepted++
	}
	return overtaken
}

// missing returns how many counters up to the highest one have not been accepted, of those that were sent
// while the window counted.
func (w *window) missing() uint64 {
	if !w.counting {
		return w.gone
	}
	return w.gone + w.highest - w.from - w.accepted
}

// pause ends counting until the next datagram is accepted.
func (w *window) pause() { w.gone, w.counting, w.accepted = w.missing(), false, 0 }
