package serialize_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// The planned search makes a rack for each of thousands of schedules, and little of it lives long:
// the garbage collector runs less often than usual.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	os.Exit(m.Run())
}
