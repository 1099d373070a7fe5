package simnet

import (
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Proc is a thread of an application: a coroutine that runs until it parks, and continues at a
// given virtual time or after Wake. Only the thread itself may call its methods, except Wake, Hang,
// Resume, Kill, Name and Done.
type Proc struct {
	net    *Net
	id     uint32
	name   string
	daemon bool
	node   NodeID // see Place

	// next continues the coroutine and stop ends it; the coroutine calls yield to park.
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	state   procState
	waits   string     // what the parked thread waits for, for error messages
	since   clock.Time // when the thread parked last
	until   clock.Time // the deadline of the last Park
	expired bool       // true if the time of the last Park has come before a Wake
	dead    bool       // Kill has killed the thread, so that Park unwinds its stack
	// hung: true if Hang has stopped the thread. due: true if the thread has become runnable while
	// it was hung.
	hung, due bool
	joiners   []*Proc
}

type procState uint8

const (
	procReady procState = iota
	procRunning
	procParked
	procDone
)

// errStopped is the panic value that unwinds a coroutine after Kill, or after Close of its network.
type errStopped struct{}

// Go starts a thread, which first runs when the current event is over. Run does not wait for
// daemons, which may stay parked for ever.
func (n *Net) Go(name string, daemon bool, f func(p *Proc)) *Proc {
	p := &Proc{net: n, id: uint32(len(n.procs)), name: name, daemon: daemon}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer p.finish()
		if !n.closed {
			f(p)
		}
	})
	n.procs = append(n.procs, p)
	n.ready = append(n.ready, p)
	if !daemon {
		n.live++
	}
	return p
}

// finish is called when the coroutine ends, even by a panic.
func (p *Proc) finish() {
	n := p.net
	if r := recover(); r != nil {
		if _, stopped := r.(errStopped); !stopped && n.failure == nil {
			n.failure = fmt.Errorf("client %s panicked: %v\n%s", p.name, r, debug.Stack())
		}
	}
	p.state = procDone
	if !p.daemon {
		n.live--
	}
	for _, j := range p.joiners {
		j.Wake()
	}
}

// Place says that the thread runs on a node: if the network is divided (Net.Split), it is in the node's
// shard. Without it, a thread is in that of the first node.
func (p *Proc) Place(id NodeID) { p.node = id }

func (p *Proc) Name() string { return p.name }

// Done reports whether the thread has returned.
func (p *Proc) Done() bool { return p.state == procDone }

// Current returns the running thread; nil if none runs.
func (n *Net) Current() *Proc { return n.current }

// Park waits until Wake or until time t, and reports whether Wake has ended the wait. Wake may come
// without a reason, so a caller that waits for a condition must check the condition again. waits
// says what the thread waits for, in the error of a run that hangs.
func (p *Proc) Park(t clock.Time, waits string) bool {
	n := p.net
	if n.current != p {
		panic("sim: Park of " + p.name + " from outside of it")
	}
	if n.closed || p.dead {
		panic(errStopped{})
	}
	p.state, p.waits, p.since, p.until, p.expired = procParked, waits, n.now, t, false
	n.wakes.Set(p.id, t)
	if !p.yield(struct{}{}) {
		panic(errStopped{})
	}
	return !p.expired
}

// Join waits until q has returned.
func (p *Proc) Join(q *Proc) {
	for q.state != procDone {
		q.joiners = append(q.joiners, p)
		p.Park(clock.Never, "the end of "+q.name)
	}
}

// Wake makes a parked thread runnable. The thread runs when the current event is over. Wake does
// nothing if the thread is not parked.
func (p *Proc) Wake() {
	if p.state != procParked {
		return
	}
	p.state = procReady
	p.net.wakes.Remove(p.id)
	p.net.ready = append(p.net.ready, p)
}

// Hang stops the thread until Resume. A Wake or a deadline in between takes effect at Resume. The
// running thread cannot be stopped.
func (p *Proc) Hang() { p.hung = true }

// Resume ends Hang. If the thread has become runnable meanwhile, it runs when the current event is
// over.
func (p *Proc) Resume() {
	p.hung = false
	if p.due {
		p.due = false
		p.net.ready = append(p.net.ready, p)
	}
}

// Kill ends a thread at the place where it is parked, as the end of its process would. Its deferred
// calls run. A thread cannot kill itself. Kill does nothing if the thread has returned.
func (p *Proc) Kill() {
	n := p.net
	if p.state == procDone || p == n.current {
		return
	}
	n.wakes.Remove(p.id)
	n.ready = slices.DeleteFunc(n.ready, func(q *Proc) bool { return q == p })
	p.dead, p.due = true, false
	before := n.current
	n.current = p
	p.stop()
	n.current = before
	if p.state != procDone { // the coroutine has never run, so it did not call finish
		p.finish()
	}
}

// runReady runs the thread that became runnable first, unless it is hung.
func (n *Net) runReady() {
	p := n.ready[0]
	n.ready = slices.Delete(n.ready, 0, 1)
	if p.hung {
		p.due = true
		return
	}
	p.state = procRunning
	n.current = p
	p.next()
	n.current = nil
}

// Close ends all threads. The network cannot be used afterwards. A second call does nothing.
func (n *Net) Close() {
	n.closed = true
	for i := 0; i < len(n.procs); i++ {
		p := n.procs[i]
		n.current = p
		p.stop()
		p.state = procDone
	}
	n.current = nil
}

// StuckError is the error of a run that cannot go on. It has the reason, and what each thread waits
// for.
type StuckError struct {
	Reason  string
	At      clock.Time
	Waiting []Waiting
}

// Waiting describes a thread that has not returned.
type Waiting struct {
	Name  string
	For   string
	Since clock.Time
}

// maxNamed bounds how many threads the text of a StuckError names.
const maxNamed = 8

func (e *StuckError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stuck: %s at %v", e.Reason, e.At)
	for i, w := range e.Waiting {
		if i == maxNamed {
			fmt.Fprintf(&b, "; and %d more", len(e.Waiting)-i)
			break
		}
		fmt.Fprintf(&b, "; %s waits for %s since %v", w.Name, w.For, w.Since)
	}
	return b.String()
}

func (n *Net) stuck(reason string) error {
	e := &StuckError{Reason: reason, At: n.now}
	for _, p := range n.procs {
		if p.daemon || p.state == procDone {
			continue
		}
		w := Waiting{Name: p.name, For: p.waits, Since: p.since}
		if p.state != procParked {
			w.For = "the processor"
		}
		e.Waiting = append(e.Waiting, w)
	}
	return e
}
