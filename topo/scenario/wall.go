package scenario

import (
	"fmt"
	"runtime/debug"
	"time"
)

// wallNow returns the time of this machine. It is used only to report how long a run took, so runs
// do not depend on it.
func wallNow() time.Time { return time.Now() }

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }
