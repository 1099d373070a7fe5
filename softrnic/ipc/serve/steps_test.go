package serve

import (
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// stepShell is a NIC without queue pairs that notes what the pump asks of it. Await fails at once:
// the device is closed.
type stepShell struct {
	verbsengine.Shell
	nic   engine.Engine
	asked []string
	now   clock.Time
	tick  time.Duration // by which each call of Now lets time pass
	enter func()        // called by Enter, if it is set
}

func (s *stepShell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	if s.enter != nil {
		s.enter()
	}
	return 0, &s.nic, nil
}
func (s *stepShell) Leave()          {}
func (s *stepShell) Now() clock.Time { s.now = s.now.Add(s.tick); return s.now }
func (s *stepShell) Progress()       { s.asked = append(s.asked, "progress") }

func (s *stepShell) Drive() bool { s.asked = append(s.asked, "drive"); return false }

func (s *stepShell) Polled()                                       { s.asked = append(s.asked, "polled") }
func (s *stepShell) Await(verbsengine.Condition, clock.Time) error { return verbs.ErrClosed }

// pumpOf is a pump for n programs; the other ends of their wake sockets are returned.
func pumpOf(t *testing.T, n int) (s *pump, shell *stepShell, wakes []int) {
	t.Helper()
	shell = &stepShell{}
	s = newPump(shell, -1)
	for range n {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		wake := os.NewFile(uintptr(pair[0]), "wake")
		t.Cleanup(func() { must(t, errors.Join(wake.Close(), unix.Close(pair[1]))) })
		c := &client{link: newLink(nil), s: &Server{pump: s}, wake: wake}
		s.ports = append(s.ports, c.newPort(make([]byte, ring.ControlLen)))
		wakes = append(wakes, pair[1])
	}
	return s, shell, wakes
}

// woken returns how many wake-ups a program has got.
func woken(fd int) int {
	var b [64]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0
	}
	return n
}

// A step that finds nothing to post lets the NIC make progress, in a hurry without a pause; one
// that has posted does not. Each is a poll.
func TestStepsOfThePump(t *testing.T) {
	s, shell, _ := pumpOf(t, 1)
	p := s.ports[0]
	served := 0
	bell, _ := p.addBell(bellFunc(func() { served++ }))
	for _, c := range []struct {
		name  string
		hasty bool
		do    func()
		found seen
		want  []string
	}{
		{"idle", false, func() {}, idle, []string{"polled", "progress"}},
		{"in a hurry", true, func() {}, idle, []string{"polled", "drive"}},
		{"polled", false, func() { p.ctl.Polls.Add(1) }, polled, []string{"polled", "progress"}},
		{"posted", false, func() { p.ctl.Ring(bell) }, posted, []string{"polled"}},
		{"posted and polled", false, func() { p.ctl.Polls.Add(1); p.ctl.Ring(bell) }, posted, []string{"polled"}},
		{"the NIC was active", false, func() { shell.nic.Events.Notify() }, carried, []string{"polled", "progress"}},
		{"active and posted", false, func() { shell.nic.Events.Notify(); p.ctl.Ring(bell) }, carried, []string{"polled"}},
		{"idle again", false, func() {}, idle, []string{"polled", "progress"}},
	} {
		shell.asked = nil
		c.do()
		if found := s.look(c.hasty); found != c.found || !slices.Equal(shell.asked, c.want) {
			t.Errorf("%s: found %d, want %d; the NIC was asked for %q, want %q", c.name, found, c.found, shell.asked, c.want)
		}
	}
	if served != 3 {
		t.Errorf("%d bells were served", served)
	}
	shell.asked = nil
	s.driver, s.poller = nil, nil // a shell that has neither
	if s.look(true); !slices.Equal(shell.asked, []string{"progress"}) {
		t.Errorf("a simple shell was asked for %q", shell.asked)
	}
	shell.asked = nil
	if s.ended = true; s.look(false) != idle || len(shell.asked) != 0 {
		t.Errorf("after the end: %q", shell.asked)
	}
}

// The pump polls until nothing has happened for the spin time. After completions it makes some steps
// without a pause. If another thread has needed the processor, it stops at the first step without
// work, and polls less next time.
func TestHowLongThePumpPolls(t *testing.T) {
	const spin = 50
	at := func(steps ...int) map[int]bool {
		m := map[int]bool{}
		for _, n := range steps {
			m[n] = true
		}
		return m
	}
	for name, c := range map[string]struct {
		polls, posts, completes map[int]bool // steps in which these occur
		long                    int          // the step that takes a millisecond
		longer                  int          // the spin time, if it is not spin
		crowded                 bool
		steps, hasty            int
	}{
		"nothing":                  {steps: spin},
		"a poll":                   {polls: at(10), steps: spin + 9},
		"a post":                   {posts: at(10), steps: spin + 9},
		"a completion":             {completes: at(10), steps: spin + 9, hasty: eager},
		"several":                  {polls: at(40), posts: at(60), completes: at(20, 90), steps: spin + 89, hasty: 2 * eager},
		"a post after completions": {completes: at(10), posts: at(13), steps: spin + 12, hasty: 2},
		"a long step":              {longer: 5000, long: 7, steps: 7},
		"a long step with work":    {longer: 5000, posts: at(7), long: 7, steps: 5000 + 6 - 1000},
		"a long step with a poll":  {longer: 5000, polls: at(7), long: 7, steps: 7},
		"crowded":                  {crowded: true, steps: 1},
		"crowded, with work":       {crowded: true, posts: at(1, 2), completes: at(3), steps: 4, hasty: 1},
		"crowded, with polls":      {crowded: true, polls: at(1, 2, 3), steps: 1},
	} {
		s, shell, _ := pumpOf(t, 1)
		p := s.ports[0]
		bell, _ := p.addBell(bellFunc(func() {}))
		s.spinTime, shell.tick = time.Duration(max(spin, c.longer))*time.Microsecond, time.Microsecond
		if c.crowded {
			s.pace.Took(time.Second)
		}
		step := 0
		shell.enter = func() {
			step++
			if step > 10000 {
				panic("the pump polls for ever")
			}
			if c.polls[step] {
				p.ctl.Polls.Add(1)
			}
			if c.posts[step] {
				p.ctl.Ring(bell)
			}
			if c.completes[step] {
				shell.nic.Events.Notify()
			}
			if step == c.long {
				shell.now = shell.now.Add(time.Millisecond)
			}
		}
		s.spin()
		hasty := 0
		for _, x := range shell.asked {
			if x == "drive" {
				hasty++
			}
		}
		if step != c.steps || hasty != c.hasty {
			t.Errorf("%s: %d steps, %d of them in a hurry; want %d and %d", name, step, hasty, c.steps, c.hasty)
		}
	}
}

// When the device is closed before the server, the programs learn that their objects are gone, and
// do not wait for a pump that does not run any more. The pump returns when the server ends.
func TestClosedDevice(t *testing.T) {
	s, _, wakes := pumpOf(t, 2)
	stop, end := make(chan struct{}), make(chan struct{})
	go func() {
		s.run(stop)
		close(end)
	}()
	for i, fd := range wakes {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 20000)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(poll, 20000)
		}
		if n != 1 || err != nil {
			t.Fatalf("program %d is not woken: %v", i, err)
		}
	}
	select {
	case <-end:
		t.Error("the pump has returned before the server has ended")
	default:
	}
	close(stop)
	<-end
	for i, p := range s.ports {
		if p.ctl.Incarnation.Load() == 0 || p.ctl.Asleep.Load() == 0 {
			t.Errorf("program %d: incarnation %d, asleep %d", i, p.ctl.Incarnation.Load(), p.ctl.Asleep.Load())
		}
	}
}

// A sleeping pump goes on when a program attaches, when a program has rung a bell, and, if it polls
// at all, when a program has woken it.
func TestWhatEndsTheSleep(t *testing.T) {
	for name, c := range map[string]struct {
		spin  time.Duration
		do    func(s *pump, e *engine.Engine)
		ready bool
	}{
		"nothing":       {1, func(*pump, *engine.Engine) {}, false},
		"an attachment": {-1, func(s *pump, e *engine.Engine) { s.add(s.ports[0].c.newPort(make([]byte, ring.ControlLen)), e) }, true},
		"a bell":        {-1, func(s *pump, _ *engine.Engine) { s.ports[1].ctl.Ring(0) }, true},
		"a wake-up":     {1, func(s *pump, _ *engine.Engine) { s.woken(s.ports[0]) }, true},
		"one without":   {-1, func(s *pump, _ *engine.Engine) { s.woken(s.ports[0]) }, false},
		"more than it may": {-1, func(s *pump, _ *engine.Engine) {
			for i := range uint32(maxBellsAtOnce + 1) {
				s.ports[0].ctl.Ring(i)
			}
			s.woken(s.ports[0])
		}, true},
		"as many as it may": {-1, func(s *pump, _ *engine.Engine) {
			for i := range uint32(maxBellsAtOnce) {
				s.ports[0].ctl.Ring(i)
			}
			s.woken(s.ports[0])
		}, false},
	} {
		s, shell, _ := pumpOf(t, 2)
		s.spinTime = c.spin
		c.do(s, &shell.nic)
		if got := (*asleep)(s).Ready(&shell.nic); got != c.ready {
			t.Errorf("%s: goes on: %v", name, got)
		}
		if n := s.ports[0].wakes; (n == 1) != (name != "nothing" && name != "an attachment" && name != "a bell") {
			t.Errorf("%s: %d wake-ups are counted", name, n)
		}
	}
}

// A program is woken once for each time that one of its threads waits.
func TestOneWakeUpForEachWait(t *testing.T) {
	s, _, wakes := pumpOf(t, 1)
	p := s.ports[0]
	q := ring.NewQueue(make([]byte, ring.QueueLen(4, 64)), 4, 64)
	for i, wait := range []uint64{0, 1, 0, 2, 0} {
		if wait > 0 {
			q.Wait.Store(wait)
		}
		p.wakeIf(q)
		if n := woken(wakes[0]); (n == 1) != (wait > 0) || q.Wait.Load() != 0 {
			t.Errorf("step %d: %d wake-ups; the queue waits: %d", i, n, q.Wait.Load())
		}
	}
}

// A producer's position inside of the ring says how many entries wait; one outside of it breaks the
// rules, and nothing is taken.
func TestPositionsOfProducers(t *testing.T) {
	for _, c := range []struct {
		tail   uint64
		n      int
		broken bool
	}{{10, 0, false}, {11, 1, false}, {14, 4, false}, {15, 0, true}, {9, 0, true}, {1 << 40, 0, true}} {
		cl, _ := unread(t)
		p := &port{c: cl}
		r := posts{q: ring.NewQueue(make([]byte, ring.QueueLen(4, 64)), 4, 64), head: 10}
		r.q.Tail.Store(c.tail)
		if n := r.take(p); n != c.n || (p.broken != "") != c.broken {
			t.Errorf("tail %d: %d entries, broken: %q", c.tail, n, p.broken)
		}
	}
}

// The memory of a program is lost when two looks in a row find the copy asleep, and not when the
// thread had run between them; in any case after memoryLooks looks.
func TestLooksAtACopy(t *testing.T) {
	const asleepThread = 1 << 30 // one that cannot be looked at
	for name, c := range map[string]struct {
		asleep []bool // at each look; afterwards as at the last one
		done   int    // the copy ends after this many looks; 0: never
		ok     bool
		looks  int
	}{
		"at once":               {[]bool{true}, 1, true, 1},
		"asleep":                {[]bool{true}, 0, false, 2},
		"asleep late":           {[]bool{false, true}, 0, false, 3},
		"asleep and done":       {[]bool{false, true, false}, 2, true, 2},
		"asleep, awake, asleep": {[]bool{true, false, true, false}, 3, true, 3},
		"awake":                 {[]bool{false}, 0, false, memoryLooks},
		"awake and done":        {[]bool{false}, memoryLooks - 1, true, memoryLooks - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &programMemory{stuck: newStuck()}
				g := &guard{m: m, ask: make(chan struct{}, 1), done: make(chan struct{}, 1), late: time.NewTimer(time.Hour)}
				g.late.Stop()
				begin, end := time.Now(), make(chan struct{})
				go func() {
					<-g.ask
					for i := 0; c.done == 0 || i < c.done; i++ {
						if g.thread.Store(0); c.asleep[min(i, len(c.asleep)-1)] {
							g.thread.Store(asleepThread)
						}
						pause := memoryCheck
						if i == 0 {
							pause += memoryCheck / 2 // so that each step is between two looks
						}
						select {
						case <-time.After(pause):
						case <-end:
							return
						}
					}
					g.ok = true
					g.done <- struct{}{}
				}()
				ok := g.Read(make([]byte, 8), 0)
				close(end)
				looks := int(time.Since(begin) / memoryCheck)
				if ok != c.ok || m.lost.Load() == c.ok || looks != c.looks {
					t.Errorf("copied: %v, lost: %v, after %d looks, want %v after %d", ok, m.lost.Load(), looks, c.ok, c.looks)
				}
			})
		})
	}
}
