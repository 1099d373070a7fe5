package cost

import (
	"maps"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// words has the 64-bit words on which atomics are being executed, by the address of their first
// byte, and when each is free again.
type words struct{ busy map[*byte]pico }

const (
	// maxWatched is how many bytes of one packet are compared with occupied words. It is not less than
	// any path MTU.
	maxWatched = 4096
	// maxWords is the number of words beyond which free ones are forgotten.
	maxWords = 1 << 12
)

func newWords() words { return words{busy: make(map[*byte]pico)} }

// free returns the time from which on no atomic occupies any word of b; 0 if w remembers no atomic
// on them. b begins at a word.
func (w *words) free(b []byte) (at pico) {
	if len(w.busy) == 0 {
		return 0
	}
	for i := 0; i < len(b); i += 8 {
		at = max(at, w.busy[&b[i]])
	}
	return at
}

// occupy marks the word at the beginning of b as occupied until `until`. now only decides which
// words are forgotten if there are too many.
func (w *words) occupy(now clock.Time, b []byte, until pico) {
	if len(b) == 0 {
		return // an invalid address: the responder will refuse the request
	}
	if len(w.busy) >= maxWords {
		maps.DeleteFunc(w.busy, func(_ *byte, free pico) bool { return free <= picoOf(now) })
	}
	w.busy[&b[0]] = until
}
