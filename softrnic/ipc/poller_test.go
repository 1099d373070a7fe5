package ipc_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/engine"
)

// polls are a Poller that sleeps after each post, and one that does not sleep in a test.
var polls = map[string]time.Duration{"sleeps": -1, "polls": time.Minute}

// The suite of the verbs interfaces passes if one Poller looks at the rings of the programs of all
// NICs, and packets cross direct links.
func TestConformanceWithPoller(t *testing.T) {
	for name, poll := range polls {
		t.Run(name, func(t *testing.T) {
			verbstest.Run(t, func(t *testing.T) *verbstest.World { return newDirectHouse(t, newPoller(t, poll)).world(t) })
		})
	}
}

// A program in another process uses NICs that share a Poller; when it has ended, nothing is left.
func TestConformanceOfAnotherProcessWithPoller(t *testing.T) {
	for name, poll := range polls {
		t.Run(name, func(t *testing.T) {
			h := newDirectHouse(t, newPoller(t, poll))
			out, err := h.program(t, "suite", "-test.run=^TestSuiteInside$", "-test.v").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			h.empty(t)
		})
	}
}

// While a thread keeps one NIC, as a host that hangs does, the programs of another NIC that has the
// same Poller go on, and so does its own program afterwards.
func TestPollerPassesNICThatIsKept(t *testing.T) {
	for name, poll := range polls {
		t.Run(name, func(t *testing.T) {
			p := newPoller(t, poll)
			h, others := newDirectHouse(t, p), newDirectHouse(t, p)
			held, other := h.victim(t), others.victim(t)
			kept, release := make(chan struct{}), make(chan struct{})
			go h.dev[0].With(func(*engine.Engine) { close(kept); <-release })
			<-kept
			done := make(chan struct{})
			go func() { defer close(done); held.fine() }()
			for range 20 {
				other.fine()
			}
			select {
			case <-done:
				t.Error("a NIC that another thread keeps has served a program")
			default:
			}
			close(release)
			<-done
		})
	}
}
