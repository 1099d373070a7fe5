package cost

import "github.com/rdmalab/rdmalab/softrnic/clock"

// words are the 64-bit words that atomics occupy, by the place of their first byte.
type words struct{ busy map[*byte]pico }

const (
	// maxWatched bounds the bytes of one packet that are compared with words in use: more than any
	// path MTU.
	maxWatched = 4096
	// maxWords is how many words are remembered before free ones are forgotten.
	maxWords = 1 << 12
)

func newWords() words { return words{busy: make(map[*byte]pico)} }

// free is when all words of b are free; 0 if none is in use.
func (w *words) free(b []byte) (at pico) {
	if len(w.busy) == 0 {
		return 0
	}
	for i := 0; i < len(b); i += 8 {
		at = max(at, w.busy[&b[i]])
	}
	return at
}

// occupy keeps the word at b until `until`.
func (w *words) occupy(now clock.Time, b []byte, until pico) {
	if len(b) == 0 {
		return // the address is of nothing: the responder will refuse
	}
	if len(w.busy) >= maxWords {
		for k, t := range w.busy {
			if t <= picoOf(now) {
				delete(w.busy, k)
			}
		}
	}
	w.busy[&b[0]] = until
}
