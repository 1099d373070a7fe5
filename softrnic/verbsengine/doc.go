// Package verbsengine implements the verbs interfaces over an engine. It checks handles and the
// rules of their lifetime (destroy order, use after close); package engine implements the NIC.
//
// It has no lock and no clock: a Shell gives it exclusive use of the engine and a way to wait.
// Package device is the Shell of real time; the simulator has one in virtual time.
//
// What a handle does is documented at its interface in package verbs.
package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Shell runs an engine for the applications above a Context. All threads of an application may call
// its methods.
type Shell interface {
	verbs.Runtime

	// Enter gives the caller exclusive use of the engine until Leave. Leave sends the frames that
	// the engine appends to out. e is never nil; when the shell is closed, all objects of e are
	// invalid (engine.Engine.Down). Enter and Leave must not be nested. They are a pair of calls,
	// and not one call with a function, so that a post allocates nothing.
	Enter() (now clock.Time, e *engine.Engine, out *packetio.Batch)
	Leave()

	// Progress is called between Enter and Leave by an application that polls and found nothing.
	// The shell may handle frames that have arrived and timers that are due, and may give exclusive
	// use up during the call. In virtual time it must let some time pass, or an application that
	// only polls would never see its completion.
	Progress()

	// Await waits until c is Ready. It fails with ErrTimeout at the deadline, and with ErrClosed if
	// the shell is closed while c is not ready. Ready is called with exclusive use of the engine.
	// Await is called outside of Enter and Leave.
	Await(c Condition, deadline clock.Time) error
}

// Poller is a Shell that is told of every poll, also of polls that find completions: it may leave
// work to an application that polls. Polled is called between Enter and Leave.
type Poller interface{ Polled() }

// Poster is a Shell that is told the number of work requests that an application posts: sends and
// receives, also refused ones. Posted is called between Enter and Leave.
type Poster interface{ Posted(n int) }

// Condition is a state of the engine for which an application waits. The shell checks it whenever
// the engine's Activity has changed.
type Condition interface {
	Ready(e *engine.Engine) bool
}
