package ipc_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
)

// TestConformance runs the suite of the verbs interfaces over real sockets and real shared memory.
// Daemon and application are one process.
func TestConformance(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			verbstest.Run(t, func(t *testing.T) *verbstest.World { return newHouse(t, spin, nil).world(t) })
		})
	}
}

// envProgram makes the test binary run one of the helper programs, which it names; envSockets has
// the sockets of the NICs.
const (
	envProgram = "IPC_TEST_PROGRAM"
	envSockets = "IPC_TEST_SOCKETS"
)

// program runs this test binary as another process that is attached to the NICs of a house.
func (h *house) program(t testing.TB, what string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envProgram+"="+what, envSockets+"="+h.sockets[0]+","+h.sockets[1])
	return cmd
}

// socketsOfProgram are the sockets that this process was given.
func socketsOfProgram() (s [2]string) {
	a, b, _ := strings.Cut(os.Getenv(envSockets), ",")
	return [2]string{a, b}
}

// TestConformanceOfAnotherProcess runs the suite in a second process.
func TestConformanceOfAnotherProcess(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, spin, nil)
			out, err := h.program(t, "suite", "-test.run=^TestSuiteInside$", "-test.v").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ran := strings.Count(string(out), "--- PASS: TestSuiteInside/")
			if skipped := strings.Count(string(out), "--- SKIP: TestSuiteInside/"); ran < len(verbstest.Tests())-2 || skipped > 2 {
				t.Errorf("%d tests ran and %d did not; only what makes NICs fail may be left out\n%s", ran, skipped, out)
			}
			h.empty(t)
		})
	}
}

// TestSuiteInside runs in the second process, which TestConformanceOfAnotherProcess starts; in the
// first one it returns at once.
func TestSuiteInside(t *testing.T) {
	if os.Getenv(envProgram) != "suite" {
		return
	}
	verbstest.Run(t, func(t *testing.T) *verbstest.World { return worldOf(t, socketsOfProgram()) })
}
