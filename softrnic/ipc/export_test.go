package ipc

import "time"

// Again sets how long a sleeper believes that it will be woken, for contexts that are in no use. It
// returns what undoes it.
func Again(d time.Duration) (undo func()) {
	old := again
	again = d
	return func() { again = old }
}
