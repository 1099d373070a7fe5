package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// lockRun is one run of lock histories: 16 clients use 4 words through the switch while machines
// fail. Afterwards one order of all operations on each word must explain the answers that the
// clients received. During the run, a guardian in front of each server (type guardian) checks the
// server's memory after every packet.
type lockRun struct {
	env     *env
	mode    string
	plan    *lockPlan
	log     history.Log
	words   [lockWords]*lockWord
	servers [2]*lockServer
	memory  [2][]byte // the servers' host memory, for words that are not in device memory
	clients []*lockClient
	stamps  map[uint64]holder
	scratch [areaBytes]byte
	trigger *trigger
	// operator, if not nil, changes the switch during the run. switchDown: true while the switch is
	// down after a crash.
	operator   *operator
	switchDown bool

	queuePairsFailed, inherited int  // inherited: locks that clients took over from dead owners
	atomics                     int  // number of atomics that clients have requested
	injected                    bool // the fault of the plan has begun
	blind                       bool // for tests: no guardian watches the memory
	polite                      bool // clients change words by atomics alone, as the paper's clients do
}

// Switch programs and modes of lock histories. The values of recordedHardened and recordedPublished
// are in plans that earlier versions have written, so they do not change.
const (
	modeForward       = "forward"
	modeTrack         = "track"
	modeMove          = "move"
	recordedHardened  = "hard"
	recordedPublished = "paper"
)

// runLocks returns a function that makes one run of lock histories. mode is the mode of the
// switch's rules, or the switch program.
func runLocks(mode string) func(*env) error {
	return func(e *env) error { return new(lockRun).runWith(e, mode, nil) }
}

// runWith makes one run of lock histories, by the seed of e. If begin is not nil, it is called
// with the run before the rack is built.
func (r *lockRun) runWith(e *env, mode string, begin func(*lockRun)) error {
	*r = lockRun{env: e, mode: mode, plan: new(lockPlan).draw(e), stamps: make(map[uint64]holder)}
	if begin != nil {
		begin(r)
	}
	e.report.Plan = fmt.Sprintf("%s: %v ipv6=%v", mode, r.plan, e.v6)
	if err := r.build(); err != nil {
		return err
	}
	r.arm()
	if r.operator != nil {
		r.operator.next(e.rack.Now())
	}
	for _, s := range r.servers {
		s.boot()
	}
	for i := range lockClients {
		r.start(i%lockHosts, r.plan.rounds)
	}
	return e.complete(r, nil)
}

// build makes the rack and places the words on the servers.
func (r *lockRun) build() error {
	opt := r.plan.rack
	opt.Wrap = r.wrap
	for i := range r.servers {
		r.servers[i] = &lockServer{run: r, index: i}
		r.memory[i] = make([]byte, lockWords*areaBytes)
	}
	for i, p := range r.plan.words {
		r.words[i] = &lockWord{wordPlan: p, index: i}
		s := r.servers[p.server]
		s.words = append(s.words, r.words[i])
	}
	r.env.spy = func(ev *simnet.Event) {
		if r.trigger != nil {
			r.trigger.see(ev)
		}
	}
	first := r.mode
	if r.operator != nil {
		first = r.operator.first
	}
	if err := r.env.build(clientRack(lockHosts, len(r.servers))+switchOf(first, r.env.missesIn()), opt); err != nil {
		return err
	}
	for i := range r.servers {
		r.servers[i].host = r.env.rack.Host(fmt.Sprintf("ms%d", i))
	}
	r.env.setFaults(r.plan.rules)
	return nil
}

// missesIn returns which node answers a CAS of which the switch knows that it will fail: the
// server, the switch at once, or the switch after a wait. The seed decides.
func (e *env) missesIn() rules.Answerer { return rules.Answerer(e.seed % 3) }

// switchOf returns the switch section of a rack file, with one rule for each memory server. For
// modeForward it returns "": the switch only forwards.
func switchOf(mode string, misses rules.Answerer) string {
	action, how := "atomics", "hard, misses: "+misses.String()
	switch mode {
	case modeForward:
		return ""
	case modeTrack, modeMove:
		action, how = mode, recordedHardened
	case recordedPublished:
		how = recordedPublished
	}
	out := "switch:\n  program: swordbox\n  rules:\n"
	for i := range 2 {
		out += fmt.Sprintf("    - {server: ms%d, action: %s, mode: %s, shards: 2, service: %s}\n", i, action, how, switchService)
	}
	return out
}

// wrap puts a guardian, which checks the memory, around the NIC of each memory server, unless r.blind
// is set.
func (r *lockRun) wrap(name string, n simnet.Node) simnet.Node {
	for i := range r.servers {
		if name == fmt.Sprintf("ms%d", i) {
			if r.blind {
				return n
			}
			return &guardian{n, r.servers[i]}
		}
	}
	return n
}

// renew is called for each word when its server starts. `start` is how often the server has
// started, this time included. If the word's memory is new or was lost, renew begins a new history
// of the word. Otherwise the word's history goes on.
func (r *lockRun) renew(w *lockWord, start int) {
	w.lost = false
	if start > 1 && !w.device && r.plan.survives {
		return
	}
	w.epoch = start
	w.contested = false
	w.lastSeen = 0
	first := uint64(0)
	if w.kind == register || w.kind == counter {
		first = r.env.draw.Uint64()
		_ = w.mr.Store64(w.base+wordOff, first)
	}
	w.word, w.guard = first, 0
	w.log = r.log.Add(w.name(), first)
	if !r.blind {
		r.log.Watch(w.log)
	}
}

// start starts a client, which does the given number of rounds, on compute host number host.
func (r *lockRun) start(host, rounds int) {
	h := r.env.rack.Host(fmt.Sprintf("cn%d", host))
	c := &lockClient{run: r, id: len(r.clients), host: h, rounds: rounds, draw: newDraw(r.env.draw.Uint64())}
	r.clients = append(r.clients, c)
	r.env.client(h.Spec.Name, fmt.Sprintf("locks-%d", c.id), c.work)
}

// arm sets the trigger that injects the fault of the plan.
func (r *lockRun) arm() {
	p := r.plan
	if p.what == noFault {
		return
	}
	t := &trigger{n: p.after, fire: func() { r.env.rack.At(r.env.rack.Now(), r.inject) }}
	if p.what == clientCrash {
		t.victim, t.step = p.victim, p.step
	}
	r.trigger = t
}

// inject injects the plan's fault and schedules its end after plan.down.
func (r *lockRun) inject() {
	r.injected = true
	rack, p := r.env.rack, r.plan
	h := rack.Host(p.victim)
	end := func() {}
	switch p.what {
	case clientCrash:
		if p.step == beforeSwitch {
			h.SetLink(false)
		}
		h.Crash()
		for _, c := range r.clients {
			if c.host == h {
				c.dead, c.diedAt = true, rack.Now()
				if c.wants != nil && c.wants.kind == bitLock {
					c.wants.contested = true
				}
			}
		}
		end = func() {
			h.SetLink(true)
			r.restart(h)
			r.start(slices.Index(rack.Hosts(), h), 2)
		}
	case serverCrash:
		h.Crash()
		for _, w := range r.servers[0].words {
			if w.device || !p.survives {
				w.lost = true
				clear(w.area)
			}
		}
		end = func() {
			r.restart(h)
			r.servers[0].boot()
		}
	case switchCrash:
		rack.CrashSwitch()
		r.switchDown = true
		end = func() {
			r.switchDown = false
			r.env.restartSwitch()
		}
	case linkCut:
		h.SetLink(false)
		end = func() { h.SetLink(true) }
	case noFault:
	}
	over := rack.Now().Add(p.down)
	rack.At(over, end)
	// This application keeps the run going until the fault has ended, even if all clients end
	// before.
	rack.Host("ms1").Go("survivor", false, func(ctx verbs.Context) {
		for ctx.Runtime().Now() <= over {
			ctx.Runtime().Sleep(p.down)
		}
	})
}

// restart restarts a crashed host. If the plan's field again is true, the host uses the same QPNs,
// keys and addresses as in its first incarnation.
func (r *lockRun) restart(h *simrack.Host) {
	if !r.plan.again {
		h.Restart()
		return
	}
	if err := h.Reboot(); err != nil {
		r.env.rack.Stop(err)
	}
}

// moves reports whether the switch moves requests to its connections to the servers.
func (r *lockRun) moves() bool { return r.mode != modeForward && r.mode != modeTrack }

// shortLimit is the shortest time after which a queue pair runs out of retries: eight waits of at
// least 4 ms each.
const shortLimit = 33 * time.Millisecond

// allow returns an error unless the plan's fault explains that client c's queue pair to a server
// has failed with this status.
func (r *lockRun) allow(c *lockClient, server int, status verbs.Status) error {
	ok := false
	long := r.plan.down > shortLimit
	// A switch that moves requests sends their clients a NAK when it has given up a server, and
	// when it has lost its state of the clients' flows.
	told := r.moves() && status == verbs.RemOpErr
	switch r.plan.what {
	case noFault:
	case clientCrash:
		// The host has rebooted with the same QPNs, and the switch has not seen that the old queue
		// pairs have ended. The switch refuses answers to the new queue pairs until it can
		// distinguish them from the old ones.
		ok = r.plan.again && c.id >= lockClients && r.mode != modeForward && status == verbs.RetryExcErr
	case linkCut:
		ok = long && (status == verbs.RetryExcErr || told)
	case switchCrash:
		// After its restart, the switch sends no requests to a server until the connections that
		// its earlier incarnation had to the server have ended.
		ok = (long || r.moves()) && status == verbs.RetryExcErr || told
	case serverCrash:
		// RemAccessErr: on a new connection of the switch, the restarted server refuses R_Keys from
		// before its crash.
		ok = server == 0 && (status == verbs.RetryExcErr || told || r.moves() && status == verbs.RemAccessErr)
	}
	ok = ok && r.injected
	// A switch program that was just loaded drops requests in the same way as a switch that has
	// restarted.
	if o := r.operator; o != nil && o.programs > 0 && status == verbs.RetryExcErr {
		ok = ok || r.env.rack.Now() < o.loaded.Add(time.Second)
	}
	if ok {
		return nil
	}
	return fmt.Errorf("its queue pair to ms%d failed: %v", server, status)
}

// judge checks the run: all clients that are alive have done their rounds; the guardians, which
// watch the words in the servers' memory, have seen every lock that a client took, unless a queue
// pair has failed; and the histories are linearizable.
func (r *lockRun) judge() error {
	grants, waited := 0, time.Duration(0)
	for _, c := range r.clients {
		if !c.dead {
			grants += c.grants
		}
		waited = max(waited, c.longest)
		if !c.dead && (!c.finished || c.starved > 0) {
			return fmt.Errorf("client %d did %d of %d rounds and gave up %d locks that were never free", c.id, c.done, c.rounds, c.starved)
		}
	}
	seen := 0
	for _, w := range r.words {
		seen += w.granted
	}
	executed := uint64(0)
	for _, s := range r.servers {
		executed += s.host.Counters().RxAtomicRequests
	}
	r.env.note("%d operations on words, %d without answer; %d times inside, %d seen at the memory; %d queue pairs failed; %d locks taken over from the dead; the longest wait %v",
		r.log.Ops, r.log.Pending, grants, seen, r.queuePairsFailed, r.inherited, waited)
	r.env.note("%d CAS and FETCH_ADD were asked for, the memory servers executed %d as such", r.atomics, executed)
	if r.queuePairsFailed == 0 && seen < grants && !r.blind {
		return fmt.Errorf("clients were inside %d times, the memory saw %d", grants, seen)
	}
	return r.log.Check(r.final, history.MostSteps)
}

// final returns the value that the word of history number `log` has in memory after the run. It
// returns false if that memory was lost, or if the word has begun a later history.
func (r *lockRun) final(log int) (uint64, bool) {
	for _, w := range r.words {
		if w.log == log {
			return w.load(wordOff)
		}
	}
	return 0, false
}
