package pdpm

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A client whose host was stopped between a request and its answer does not take the lock over from
// a holder that it has seen only before that. It does so when a later request finds the same tag.
func TestAStoppedHostEndsNoLease(t *testing.T) {
	const lease = 10 * time.Millisecond
	at := func(ms int) clock.Time { return clock.Time(0).Add(time.Duration(ms) * time.Millisecond) }
	var w watch
	for _, c := range []struct {
		tag        tag
		asked, now int // in milliseconds
		stuck      bool
	}{
		{7, 0, 1, false},
		{7, 2, 500, false}, // stopped for half a second
		{8, 501, 502, false},
		{8, 503, 900, false}, // stopped again
		{8, 901, 902, true},
		{0, 903, 904, false},
		{0, 1000, 1001, false}, // a free lock is not taken over
	} {
		if got := w.stuck(c.tag, at(c.asked), at(c.now), lease); got != c.stuck {
			t.Errorf("tag %d, asked at %d ms, answered at %d ms: stuck %v", c.tag, c.asked, c.now, got)
		}
	}
}
