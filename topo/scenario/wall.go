package scenario

import (
	"fmt"
	"runtime/debug"
	"time"
)

// wallNow is the time of this machine, for reporting how long a run took: nothing in a run depends
// on it.
func wallNow() time.Time { return time.Now() }

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }
