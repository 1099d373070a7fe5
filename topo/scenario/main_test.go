package scenario

import (
	"os"
	"runtime/debug"
	"testing"
)

// Each run makes a rack of its own and little of it lives long, so with the usual limit the garbage
// collector takes a fifth of the time of the tests.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	os.Exit(m.Run())
}
