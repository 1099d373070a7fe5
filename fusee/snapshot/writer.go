package snapshot

import "slices"

// MaxBackups is the largest number of backups of a word.
const MaxBackups = 15

// Writer is one write of a replicated word, which replaces the value `old` by the value `new`. n is
// the number of backups. See the package comment.
type Writer struct {
	state    State
	n        uint8
	old, new uint64
	// has are the values of the backups as the writer knows them after its swaps.
	has [MaxBackups]uint64
}

// New makes a writer that replaces `old`, the value that it has read in the primary, with the new
// value `value`. No other writer of the word may have the same new value. backups is the number of
// backups, at most MaxBackups.
func New(old, value uint64, backups int) Writer {
	return Writer{old: old, new: value, n: uint8(min(max(backups, 0), MaxBackups))}
}

func (w *Writer) State() State { return w.state }

// Old returns the value that the writer replaces.
func (w *Writer) Old() uint64 { return w.old }

func (w *Writer) Value() uint64 { return w.new }

// Swap is a compare-and-swap of backup number Backup from the value Compare to the writer's value.
type Swap struct {
	Backup  int
	Compare uint64
}

// Swaps appends to dst the swaps that the owner must execute for the action SwapBackups. At first
// these are swaps of all backups. After the writer has won by Rule 2 or 3, they are swaps of the
// backups that have another writer's value.
func (w *Writer) Swaps(dst []Swap) []Swap {
	for i, v := range w.has[:w.n] {
		switch {
		case w.state == Swapping:
			dst = append(dst, Swap{i, w.old})
		case w.state == Fixing && v != w.new:
			dst = append(dst, Swap{i, v})
		}
	}
	return dst
}

// Begin returns the first action. The owner calls it once, before any other method that returns an
// Action.
func (w *Writer) Begin() Action {
	if w.n == 0 {
		return w.on(evAlone)
	}
	return w.on(evBegin)
}

// Backups is called with the values that the swaps have found, in the order of Swaps.
func (w *Writer) Backups(found []uint64) Action { return w.backups(found, theRules) }

// verdicts has the Writer's event for each verdict of the rules.
var verdicts = [...]event{wins1: evAll, wins2: evMost, wins3: evLeast, loses: evLost, open: evOpen, gone: evGone}

func (w *Writer) backups(found []uint64, r rules) Action {
	if w.state == Fixing {
		return w.fixed(found)
	}
	for i := range w.has[:w.n] {
		if i >= len(found) {
			return w.on(evDown)
		}
		if w.has[i] = found[i]; found[i] == w.old {
			w.has[i] = w.new
		}
	}
	return w.on(verdicts[r.backups(w.has[:w.n], w.new)])
}

// fixed handles what the winner's swaps of the remaining backups have found. If a swap has found
// neither the value that the winner has seen in that backup before, nor the winner's own value, the
// writer ends in the state Failed.
func (w *Writer) fixed(found []uint64) Action {
	n := 0
	for i, v := range w.has[:w.n] {
		if v == w.new {
			continue
		}
		if n >= len(found) || found[n] != v && found[n] != w.new {
			return w.on(evForeign)
		}
		w.has[i] = w.new
		n++
	}
	return w.on(evFixed)
}

// Logged is called when the outcome is in the log entry.
func (w *Writer) Logged() Action { return w.on(evLogged) }

// Primary is called with the value of the primary that a READ or the swap has found.
func (w *Writer) Primary(found uint64) Action { return w.primary(found, theRules) }

func (w *Writer) primary(found uint64, r rules) Action {
	switch w.state {
	case Looking:
		return w.on(verdicts[r.primary(w.has[:w.n], w.new, w.old, found)])
	case Committing:
		switch {
		case found == w.old, found == w.new:
			return w.on(evSwapped)
		case w.n == 0:
			return w.on(evGone)
		}
		return w.on(evForeign)
	default:
		if found == w.old {
			return w.on(evSame)
		}
		return w.on(evGone)
	}
}

// Winner returns the value that wins by the rules, as far as this writer knows. The writer must
// have swapped all backups before. Without backups Winner returns 0.
func (w *Writer) Winner() uint64 {
	if w.n == 0 {
		return 0
	}
	return Decide(w.has[:w.n])
}

// Decide applies the rules of the package comment to the values of the backups, of which there is
// at least one, and returns the value that wins. If a primary was lost, a master repairs the word
// with this value. That is right because a value that was ever in the primary is in all backups,
// until one of them has the value of a later writer.
func Decide(backups []uint64) uint64 {
	if v, ok := majority(backups); ok {
		return v
	}
	return slices.Min(backups)
}

// Left reports whether a backup or the primary may have the new value. If so, the owner must not
// reuse the object that the value names.
func (w *Writer) Left() bool {
	switch w.state {
	case Idle, Lost:
		return false
	case Looking, Waiting:
		return count(w.has[:w.n], w.new) > 0
	default:
		return true
	}
}

// Down is called when an operation of the owner has failed and the owner gives up: the writer
// becomes Failed.
func (w *Writer) Down() Action { return w.on(evDown) }

// on handles an event. An event that has no edge in the present state changes nothing.
func (w *Writer) on(e event) Action {
	c := diagram[w.state][e]
	if !c.ok {
		return None
	}
	w.state = c.to
	return c.does
}
