package clover

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The error of a full store says what is full: all memory, the part of one class, or the memory
// servers that answer.
func TestFullNamesWhatIsFull(t *testing.T) {
	const hint = "; `rdmalab clover stat` shows how the nodes are used"
	fixed := layout.Space{Servers: 3, Entries: layout.Counts{100, 0, 0, 0, 0, 7}, Shortcuts: 1}
	shared := layout.Space{Servers: 2, Shortcuts: 1}
	shared.ShareIn(70*layout.UsualSegment, layout.Classes-1)
	for _, c := range []struct {
		space  layout.Space
		unused int
		want   string
	}{
		{fixed, 0, "store is full: the fixed part for nodes of 4096 B: 21 nodes" + hint},
		{shared, 0, "store is full: no free node of 4096 B, and all 140 segments are in use" + hint},
		{shared, 9, "store is full: no free node of 4096 B, and 9 of 140 segments cannot be used: a memory server does not answer" + hint},
	} {
		a := (&finder{session: new(session)}).client().appender
		a.session.space = c.space
		if err := a.full(5, c.unused); err.Error() != c.want || !errors.Is(err, kv.ErrFull) {
			t.Errorf("%q; want %q", err, c.want)
		}
	}
}
