package lease

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Watch is what a client has seen of a word by which another client shows that it is alive. W is
// the type of the word. The zero Watch has seen nothing.
type Watch[W comparable] struct {
	word  W
	since clock.Time // when the client first knew that the word has this value
	begun bool       // true after the first call of Seen
}

// Seen notes that a request which was sent at the time `asked` has found word, and that its answer
// is read at the time `now`. It returns for how long the word certainly was unchanged: from the time
// at which the client read this value first until `asked`, because the answer may be old when it is
// read, for example if the client's process was stopped. It returns 0 if the word has changed.
func (w *Watch[W]) Seen(word W, asked, now clock.Time) time.Duration {
	if !w.begun || word != w.word {
		*w = Watch[W]{word, now, true}
		return 0
	}
	return max(0, asked.Sub(w.since))
}
