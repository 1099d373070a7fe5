package ipc_test

import (
	"fmt"
	"testing"
)

// wakeState is the state of a program that posts and waits, and of its daemon, either of which may
// sleep. The program has two posters, each with a ring and a bell, and one thread that waits for
// completions.
type wakeState struct {
	// Shared memory: of each poster the positions and Wait, the control page, and the completion
	// queue.
	tail, head, wait [2]uint8
	bell             [2]bool
	summary, asleep  bool
	cqTail           uint8
	cqWait           bool
	// The wake socket: the bytes that wait to be read at either end.
	toDaemon, toProgram uint8
	// The program's own state: whether the channel that each sleeper has taken was closed, and how
	// many completions were waited for.
	closed [3]bool
	polled uint8
	ended  uint8 // waits that have ended
	// buffer has the stores of Wait that the program's processor has not executed yet.
	buffer [3]bool
	// The daemon's state, guarded by the exclusive use of the engine: the thread that has it, the
	// completions that the link has yet to deliver and those in the queue, whether there is work
	// for the pump and for waiters, and the pump's own state.
	owner                     uint8
	link, engine              uint8
	forPump, forWaiters       bool
	stirred, parked, released bool
	// The bells that a thread of the daemon has taken from the control page.
	taken  [2]bool
	served bool
	tails  uint8
}

// wakePlan is the setup of a run of the model, and the rules of the protocol that it breaks.
type wakePlan struct {
	posts     [2]uint8 // of each poster
	early     bool     // a post returns before the daemon has taken it
	reaper    bool     // a thread waits for a completion of each post
	limit     int      // bells that the daemon takes in one step
	blocking  bool     // the pump does not take over when it is woken: Config.Spin is negative
	leftovers bool     // ...even if woken has left bells rung

	// Planted bugs: each one is an order that the protocol excludes, or omits a check that it
	// needs. buffered is a processor that makes loads before a store that precedes them, as it may
	// if the store is not an exchange and has no fence: see ring.Shared.
	asleepLate, ringLate, waitLate, channelLate, noCarry, noReady, buffered bool
}

// The threads that may own the engine; 0: none does.
const (
	pumpThread = iota + 1
	wokenThread
	nicThread
)

// model builds the threads.
type model struct {
	wakePlan
	*asm[wakeState]
	own    uint8
	labels int
}

func (m *model) label(s string) string {
	m.labels++
	return fmt.Sprint(s, m.labels)
}

// enter and leave are exclusive use of the engine; leave wakes the threads that wait for it.
func (m *model) enter() {
	own := m.own
	m.asm.wait("enter", func(s *wakeState) bool {
		free := s.owner == 0
		s.owner = own
		return free
	})
}

func (m *model) leave() {
	quiet, unready := m.label("quiet"), m.label("unready")
	m.when("nothing new", func(s *wakeState) bool { return !s.forWaiters || !s.parked }, quiet)
	m.private()
	m.ready("", unready)
	m.do("release the pump", func(s *wakeState) { s.parked, s.released = false, true })
	m.private()
	m.at(unready)
	m.at(quiet)
	m.do("leave", func(s *wakeState) { s.forWaiters, s.owner = false, 0 })
	m.private()
}

// ready models asleep.Ready: it jumps to yes or to no; "" is the next instruction.
func (m *model) ready(yes, no string) {
	follows := m.label("ready")
	if yes == "" {
		yes = follows
	}
	if !m.noCarry {
		m.carry()
	}
	m.when("stirred?", func(s *wakeState) bool { return s.stirred }, yes)
	m.private()
	if !m.noReady {
		m.when("bells?", func(s *wakeState) bool { return s.summary }, yes)
	}
	m.jump(no)
	m.at(follows)
}

// carry models Server.carry with cqPort.move.
func (m *model) carry() {
	none, awake := m.label("none"), m.label("awake")
	m.when("carried already?", func(s *wakeState) bool { return !s.forPump }, none)
	m.private()
	m.do("completions to the ring", func(s *wakeState) {
		s.forPump = false
		s.cqTail += s.engine
		s.engine = 0
	})
	m.when("waits for completions?", func(s *wakeState) bool { w := s.cqWait; s.cqWait = false; return !w }, awake)
	m.do("wake the program", func(s *wakeState) { s.toProgram = 1 })
	m.at(awake)
	m.at(none)
}

// serve models port.serve with Control.Take and posts.finish.
func (m *model) serve() {
	silent := m.label("silent")
	m.when("any bell?", func(s *wakeState) bool { s.served = false; return !s.summary }, silent)
	m.private()
	m.do("take the summary", func(s *wakeState) { s.summary = false })
	m.do("take the bells", func(s *wakeState) { s.taken, s.bell = s.bell, [2]bool{}; s.served = s.taken != [2]bool{} })
	if m.limit == 1 {
		one := m.label("one")
		m.when("one bell", func(s *wakeState) bool { return !s.taken[0] || !s.taken[1] }, one)
		m.private()
		m.do("put a bell back", func(s *wakeState) { s.bell[1], s.taken[1] = true, false })
		m.do("put the summary back", func(s *wakeState) { s.summary = true })
		m.at(one)
	}
	for i := range 2 {
		next := m.label("next")
		m.when("rung?", func(s *wakeState) bool { r := s.taken[i]; s.taken[i] = false; return !r }, next)
		m.private()
		m.do("look at the tail", func(s *wakeState) { s.tails = s.tail[i] })
		m.do("publish the head", func(s *wakeState) {
			if m.reaper {
				s.link += s.tails - s.head[i]
			}
			s.head[i], s.tails = s.tails, 0
		})
		m.when("waits for the head?", func(s *wakeState) bool { w := s.wait[i]; s.wait[i] = 0; return w == 0 }, next)
		m.do("wake the program", func(s *wakeState) { s.toProgram = 1 })
		m.at(next)
	}
	m.at(silent)
}

// pump models Server.pump.
func (m *model) pump() {
	m.own = pumpThread
	m.at("look")
	m.enter()
	m.serve()
	m.carry()
	m.leave()
	m.when("look again", func(s *wakeState) bool { return s.served }, "look")
	m.private()
	say := func() {
		m.enter()
		m.do("say that it sleeps", func(s *wakeState) { s.asleep = true })
		m.private()
		m.leave()
	}
	if !m.asleepLate {
		say()
	}
	m.enter()
	m.ready("up", "park")
	m.at("park")
	m.do("park", func(s *wakeState) { s.parked = true })
	m.private()
	m.leave()
	if m.asleepLate {
		say()
	}
	m.asm.wait("sleep", func(s *wakeState) bool { r := s.released; s.released = false; return r })
	m.jump("awake")
	m.at("up")
	m.leave()
	m.at("awake")
	m.enter()
	m.do("say that it is awake", func(s *wakeState) { s.asleep, s.stirred = false, false })
	m.private()
	m.leave()
	m.jump("look")
}

// woken models client.listenWake with Server.woken.
func (m *model) woken() {
	m.own = wokenThread
	m.at("listen")
	m.asm.wait("read the wake socket", func(s *wakeState) bool { n := s.toDaemon; s.toDaemon = 0; return n > 0 })
	m.enter()
	m.serve()
	silent := m.label("silent")
	m.when("no bell rang", func(s *wakeState) bool { return !s.served }, silent)
	m.private()
	m.carry()
	m.at(silent)
	stir := func() {
		m.do("stir the pump", func(s *wakeState) { s.stirred, s.forPump, s.forWaiters = true, true, true })
		m.private()
	}
	switch {
	case !m.blocking:
		stir()
	case !m.leftovers:
		done := m.label("done")
		m.when("all served", func(s *wakeState) bool { return !s.summary }, done)
		stir()
		m.at(done)
	}
	m.leave()
	m.jump("listen")
}

// nic delivers a completion for each post, at any time.
func (m *model) nic() {
	m.own = nicThread
	m.at("link")
	m.asm.wait("frame", func(s *wakeState) bool { return s.link > 0 })
	m.enter()
	m.do("completion", func(s *wakeState) { s.link--; s.engine++; s.forPump, s.forWaiters = true, true })
	m.private()
	m.leave()
	m.jump("link")
}

// run explores the model.
func (p wakePlan) run() (states int, stuck string) {
	var threads []*asm[wakeState]
	add := func(f func(m *model)) {
		m := &model{wakePlan: p, asm: newAsm[wakeState]()}
		f(m)
		threads = append(threads, m.asm)
	}
	add((*model).pump)
	add((*model).woken)
	add((*model).listen)
	for i := range p.posts {
		add(func(m *model) { m.poster(i) })
	}
	if p.buffered {
		for i := range 3 {
			add(func(m *model) { m.processor(i) })
		}
	}
	all := p.posts[0] + p.posts[1]
	if p.reaper { // otherwise the posts are receives, for which no completion comes
		add((*model).nic)
		add((*model).reap)
		all *= 2
	}
	return explore(wakeState{}, threads, func(s *wakeState) bool { return s.ended == all })
}

// In no order of the steps of programs and daemon is a wake-up lost: a thread that waits for the
// progress of a post, or for a completion, is woken without a timer. Each rule of the protocol is
// needed: without it there is an order that hangs.
func TestNoWakeUpIsLost(t *testing.T) {
	for name, p := range map[string]wakePlan{
		"a post and its completion":      {posts: [2]uint8{1, 0}, reaper: true},
		"two posts":                      {posts: [2]uint8{2, 0}},
		"a post that returns at once":    {posts: [2]uint8{1, 0}, reaper: true, early: true},
		"two posts that return at once":  {posts: [2]uint8{2, 0}, reaper: true, early: true},
		"two posters that do not wait":   {posts: [2]uint8{1, 1}, limit: 1, reaper: true, early: true},
		"two posters, a bell at a time":  {posts: [2]uint8{1, 1}, limit: 1},
		"a pump that does not take over": {posts: [2]uint8{1, 1}, limit: 1, blocking: true},
		"...and a completion":            {posts: [2]uint8{1, 0}, reaper: true, blocking: true},
	} {
		n, stuck := p.run()
		if stuck != "" {
			t.Errorf("%s: %s", name, stuck)
		}
		t.Logf("%s: %d states", name, n)
	}
	for name, p := range map[string]wakePlan{
		"the pump says too late that it sleeps":   {posts: [2]uint8{1, 0}, asleepLate: true},
		"the program asks before it rings":        {posts: [2]uint8{1, 0}, ringLate: true},
		"the program looks before it says":        {posts: [2]uint8{1, 0}, waitLate: true},
		"the channel is taken after the look":     {posts: [2]uint8{1, 0}, channelLate: true},
		"...and the post returns at once":         {posts: [2]uint8{1, 0}, reaper: true, early: true, noReady: true},
		"no thread carries while the pump sleeps": {posts: [2]uint8{1, 0}, reaper: true, noCarry: true},
		"the pump sleeps over a bell":             {posts: [2]uint8{1, 0}, noReady: true},
		"a store that is made behind a look":      {posts: [2]uint8{1, 0}, buffered: true},
		"bells are left rung":                     {posts: [2]uint8{1, 1}, limit: 1, blocking: true, leftovers: true},
	} {
		if n, stuck := p.run(); stuck == "" {
			t.Errorf("%s: not found in %d states", name, n)
		}
	}
}
