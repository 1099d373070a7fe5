package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Proc is a thread of an application: a coroutine that runs until it parks, and is resumed by the
// virtual clock or by Wake. Its methods other than Wake, Name and Done are for the thread itself.
type Proc struct {
	net    *Net
	id     uint32
	name   string
	daemon bool

	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	state   procState
	waits   string // what it is parked for
	since   clock.Time
	expired bool
	dead    bool // killed: every Park unwinds
	// hung: the thread does not run until Resume; due: it would have run since.
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

// errStopped unwinds a coroutine whose network was closed.
type errStopped struct{}

// Go starts a thread. It first runs when the current event is over. A daemon does not keep Run
// going and may be left waiting for ever.
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

// finish runs as the coroutine's last act, also when it panics.
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

// Name is the thread's name.
func (p *Proc) Name() string { return p.name }

// Done reports whether the thread has returned.
func (p *Proc) Done() bool { return p.state == procDone }

// Current is the thread that is running; nil outside of threads.
func (n *Net) Current() *Proc { return n.current }

// Park waits until Wake or until t, and reports whether it was woken. A caller that waits for a
// condition looks again: wakes may be spurious. waits says for what, for the report of a run that
// hangs.
func (p *Proc) Park(t clock.Time, waits string) bool {
	n := p.net
	if n.current != p {
		panic("sim: Park of " + p.name + " from outside of it")
	}
	if n.closed || p.dead {
		panic(errStopped{})
	}
	p.state, p.waits, p.since, p.expired = procParked, waits, n.now, false
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

// Wake makes a parked thread runnable; it runs when the current event is over. It does nothing to
// others.
func (p *Proc) Wake() {
	if p.state != procParked {
		return
	}
	p.state = procReady
	p.net.wakes.Remove(p.id)
	p.net.ready = append(p.net.ready, p)
}

func (p *Proc) expire() {
	p.Wake()
	p.expired = true
}

// Hang stops a thread until Resume: what wakes it meanwhile takes effect then. It must not be called
// for the thread that is running.
func (p *Proc) Hang() { p.hung = true }

// Resume ends Hang.
func (p *Proc) Resume() {
	p.hung = false
	if p.due {
		p.due = false
		p.net.ready = append(p.net.ready, p)
	}
}

// Kill ends a thread where it stands, as the end of its process does; its deferred calls run. A
// thread cannot kill itself; one that has returned is left alone.
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
	if p.state != procDone { // it never ran
		p.finish()
	}
}

// runReady runs the thread that became runnable first.
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

// Close ends all threads that are left. The network is not usable afterwards; closing twice is
// harmless.
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

// StuckError is a run that cannot end: why it was given up, and which threads still wait for what.
type StuckError struct {
	Reason  string
	At      clock.Time
	Waiting []Waiting
}

// Waiting is a thread that has not returned.
type Waiting struct {
	Name  string
	For   string
	Since clock.Time
}

// maxNamed bounds the threads named in the text of a StuckError.
const maxNamed = 8

// Error names the reason and the threads that wait.
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
