package passive

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// ErrOpen says that it is unknown whether a Change was made: the connection failed, and another
// client has changed the word since.
var ErrOpen = fmt.Errorf("%w: the connection failed, and the key has changed", kv.ErrTimeout)

// Change changes a word from `old` to `young` by CAS. No other client may ever write the value
// `young` to this word. `made` reports whether Change did it. Without an error `made` is certain:
// false says that the word had another value and nothing is changed.
//
// With kv.ErrNoEffect nothing is changed, now or later. With any other error the change may have
// been made, or may be made later.
//
// Change may have to send its CAS again, without knowing whether the first one was made. If the
// first one was made, the second CAS finds `young` or a value that other clients wrote after it.
// `after` reports whether `found` may be such a later value. Then Change returns ErrOpen.
func (c *Conn) Change(server int, at, old, young uint64, after func(found uint64) bool, deadline clock.Time) (made bool, err error) {
	found, sent, err := c.Swap(server, at, old, young, deadline)
	switch {
	case err != nil && sent == 0:
		return false, errors.Join(err, kv.ErrNoEffect)
	case errors.Is(err, kv.ErrLost):
		// the change may have been made before the memory was lost
		return false, errors.Join(err, kv.ErrTimeout)
	case err != nil:
		return false, err
	case found == old, sent > 1 && found == young:
		return true, nil
	case sent > 1 && after(found):
		return false, ErrOpen
	}
	return false, nil
}
