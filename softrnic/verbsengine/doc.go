// Package verbsengine implements the verbs interfaces over an engine. It checks handles and the
// rules of their lifetime (destroy order, use after close); package engine implements the NIC.
//
// It has no lock and no clock: a Shell gives it exclusive access to the engine and a way to wait.
// Package device is the Shell of real time; the simulator has one in virtual time.
package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Shell runs an engine for the applications above a Context. All methods may be called by every
// thread of the application.
type Shell interface {
	verbs.Runtime

	// Enter gives the caller exclusive use of the engine until Leave. Frames that the engine
	// appends to out are sent by Leave. e is never nil; when the shell is closed all its objects
	// are dead (engine.Engine.Down). Enter and Leave must not be nested. They come in pairs instead
	// of taking a function, so that a post allocates nothing.
	Enter() (now clock.Time, e *engine.Engine, out *packetio.Batch)
	Leave()

	// Progress is called between Enter and Leave by an application that polls and found nothing:
	// the shell may handle frames that have arrived and timers that are due. It may give up
	// exclusiveness during the call. In virtual time it must let some time pass, or an application
	// that spins on Poll never sees its completion.
	Progress()

	// Await returns nil as soon as c is Ready, ErrTimeout when deadline passes first, ErrClosed
	// when the shell is closed while c is not ready. Ready is called with exclusive use of the
	// engine. It is called outside of Enter and Leave.
	Await(c Condition, deadline clock.Time) error
}

// Poller is a Shell that counts every poll, also one that finds completions: it may leave the work
// to an application that polls. Polled is called between Enter and Leave.
type Poller interface{ Polled() }

// Poster is a Shell that counts the work requests of an application, sends and receives alike, also
// those that are refused. Posted is called between Enter and Leave.
type Poster interface{ Posted(n int) }

// Condition is a state of the engine that an application waits for. The shell checks it whenever
// the engine's Activity has changed.
type Condition interface {
	Ready(e *engine.Engine) bool
}
