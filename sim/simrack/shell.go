package simrack

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// pollCost is the virtual time that a poll takes if this poll and the one before it have found
// nothing. So time advances although an application polls all the time.
const pollCost = 200 * time.Nanosecond

// shell is one application in virtual time. Its threads are coroutines of the simulated network.
// Only one of them runs at a time, so it needs no locks.
type shell struct {
	host    *Host
	name    string
	daemon  bool
	rand    *rand.Rand
	threads []*simnet.Proc
	idle    int // number of polls in succession that have found no completion
	// spent is the processor time, by the cost model, of the call in progress.
	spent time.Duration
	out   *packetio.Batch // the frames that the call in progress sends
}

var (
	_ verbsengine.Shell  = (*shell)(nil)
	_ verbsengine.Poller = (*shell)(nil)
	_ verbsengine.Poster = (*shell)(nil)
)

// waiter is a thread that waits for a condition of its host's NIC. met is true if the condition has
// held.
type waiter struct {
	proc *simnet.Proc
	cond verbsengine.Condition
	met  bool
}

func (b *shell) start(name string, f func()) {
	p := b.host.net().Go(name, b.daemon, func(*simnet.Proc) { f() })
	p.Place(b.host.node)
	b.threads = append(b.threads, p)
}

func (b *shell) net() *simnet.Net { return b.host.net() }

func (b *shell) Now() clock.Time { return b.net().Now() }

// Sleep parks the running thread for the virtual time d.
func (b *shell) Sleep(d time.Duration) {
	b.idle = 0
	until := b.Now().Add(max(d, 0))
	p := b.net().Current()
	for b.Now() < until {
		p.Park(until, "time to pass")
	}
}

func (b *shell) Go(name string, f func()) { b.start(b.name+"/"+name, f) }

// Wait waits until all threads of the application, except the calling one, have ended.
func (b *shell) Wait() {
	self := b.net().Current()
	for i := 0; i < len(b.threads); i++ { // threads may start others meanwhile
		if p := b.threads[i]; p != self {
			self.Join(p)
		}
	}
}

func (b *shell) Rand() *rand.Rand { return b.rand }

// Enter begins a step of the host's NIC, which a call of the application causes.
func (b *shell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	now, out := b.net().Begin(b.host.node)
	b.out = out
	return now, b.host.eng, out
}

// Leave ends the step: it sends the NIC's frames, and wakes the threads whose conditions hold now.
// Then the processor time of the call passes.
func (b *shell) Leave() {
	if t := b.host.rack.transits; t != nil {
		t.posted(b.out.Frames)
	}
	b.net().End(b.host.node)
	b.host.look()
	if d := b.spent; d > 0 {
		b.spent = 0
		b.compute(d)
	}
}

// compute lets the processor time d pass for the running thread. If no thread runs, no time passes.
func (b *shell) compute(d time.Duration) {
	p := b.net().Current()
	if p == nil {
		return
	}
	for until := b.Now().Add(d); b.Now() < until; {
		p.Park(until, "its processor")
	}
}

// Posted adds the processor time of posting n work requests to the call in progress.
func (b *shell) Posted(n int) {
	if c := b.host.rack.opt.Cost; c != nil {
		b.spent += time.Duration(n) * c.Client.Post
	}
}

// Polled adds the processor time of a poll to the call in progress.
func (b *shell) Polled() {
	if c := b.host.rack.opt.Cost; c != nil {
		b.spent += c.Client.Poll
	}
}

// Progress is called when a poll has found nothing. It lets time pass for an application that polls
// all the time.
func (b *shell) Progress() {
	if b.idle++; b.idle < 2 {
		return
	}
	d := pollCost + b.spent
	b.spent = 0 // set to 0 before another thread runs
	b.net().End(b.host.node)
	b.net().Current().Park(b.Now().Add(d), "its next poll")
	b.net().Begin(b.host.node)
}

// Await parks the running thread until condition c holds, or until the deadline.
func (b *shell) Await(c verbsengine.Condition, deadline clock.Time) error {
	b.idle = 0
	h := b.host
	if c.Ready(h.eng) {
		return nil
	}
	w := &waiter{proc: b.net().Current(), cond: c}
	h.waiters = append(h.waiters, w)
	defer func() {
		h.waiters = slices.DeleteFunc(h.waiters, func(o *waiter) bool { return o == w })
	}()
	for !w.met {
		if b.Now() >= deadline {
			return verbs.ErrTimeout
		}
		w.proc.Park(deadline, "a completion or event of "+h.Spec.Name)
	}
	return nil
}

// gate is the verbs.Gate of threads in the simulation. By it, one thread waits for another.
type gate struct {
	shell *shell
	open  bool
	proc  *simnet.Proc // the thread that waits; nil means none
}

func (b *shell) NewGate() verbs.Gate { return &gate{shell: b} }

// Wait parks the running thread until another thread calls Open.
func (g *gate) Wait(deadline clock.Time) error {
	b := g.shell
	b.idle = 0
	for !g.open {
		if b.Now() >= deadline {
			return verbs.ErrTimeout
		}
		g.proc = b.net().Current()
		g.proc.Park(deadline, "another thread of "+b.name)
		g.proc = nil
	}
	g.open = false
	return nil
}

func (g *gate) Open() {
	if g.open = true; g.proc != nil {
		g.proc.Wake()
	}
}
