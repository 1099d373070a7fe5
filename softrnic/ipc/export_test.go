package ipc

import "time"

// Again sets how long a sleeper waits before it looks again itself, for contexts that are not in
// use. The function that it returns restores the value.
func Again(d time.Duration) (undo func()) {
	old := again
	again = d
	return func() { again = old }
}
