// Package verbsengine implements the verbs interfaces over an engine. It checks that the handles in
// a call belong to the same context, and destroys all objects of a context that is closed, in an
// order that works. Package engine implements the NIC and its objects.
//
// This package has no lock and no clock: a Shell gives it exclusive use of the engine and a way to
// wait. Package device is the Shell of real time; the simulator has one in virtual time.
//
// The methods of the objects are documented in package verbs.
package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Shell runs an engine for the applications that use a Context. All threads of an application may
// call its methods.
type Shell interface {
	verbs.Runtime

	// Enter gives the caller exclusive use of the engine until Leave. Leave sends the frames that the
	// engine appends to out. e is never nil; when the shell is closed, all objects of e are invalid
	// (engine.Engine.Down). Enter and Leave must not be nested. They are two methods, instead of one
	// that takes a function, so that a post allocates nothing.
	Enter() (now clock.Time, e *engine.Engine, out *packetio.Batch)
	Leave()

	// Progress is called between Enter and Leave when an application has polled and found nothing. The
	// shell may handle frames that have arrived and timers that are due, and may let others use the
	// engine during the call. In virtual time it must let some time pass: otherwise an application
	// that only polls would never get a completion.
	Progress()

	// Await waits until c is Ready. It fails with ErrTimeout at the deadline, and with ErrClosed if
	// the shell is closed while c is not ready. Ready is called with exclusive use of the engine.
	// Await is called outside of Enter and Leave.
	Await(c Condition, deadline clock.Time) error
}

// Poller is a Shell with a method that is called for every poll, even if the poll finds
// completions. So the shell knows that an application polls, and may leave it to the application's
// calls of Progress to handle frames and timers. Polled is called between Enter and Leave.
type Poller interface{ Polled() }

// Poster is a Shell with a method that is called for every post. n is the number of work requests:
// sends and receives, also refused ones. Posted is called between Enter and Leave.
type Poster interface{ Posted(n int) }

// Condition is a state of the engine for which an application waits. The shell checks it whenever
// the engine's Activity has changed.
type Condition interface {
	Ready(e *engine.Engine) bool
}

// Patient is a Condition of a thread that waits for something that another host may begin at any
// time, like the next request for a connection. The shell need not poll for it: most such waits are
// long.
type Patient interface {
	Condition
	// Patient returns true if the shell need not poll. It is called with exclusive use of the engine.
	Patient() bool
}
