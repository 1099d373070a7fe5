package serve

import (
	"maps"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// eager is the number of steps that the pump makes without a pause after it has copied a
// completion. They take one or two microseconds, and the application often posts in this time.
// After a post the pump yields the processor at once, because the peer may be another thread of
// this machine.
const eager = 8

// pump copies work requests and completions between the rings of all applications and the NIC.
// The fields after driver are used only with exclusive use of the engine.
type pump struct {
	spinTime time.Duration // how long the pump polls after the last event
	pace     pollpace.Spinner
	shell    verbsengine.Shell
	poller   verbsengine.Poller // shell, if it implements Poller; else nil
	driver   verbsengine.Driver // shell, if it implements Driver; else nil
	trier    Trier              // shell, if it implements Trier; else nil

	ports    []*port
	qps      map[wire.QPN]*port          // the ports of the applications that own the queue pairs, by QPN
	cqs      map[uint32]*port            // the ports of the applications that own the completion queues, by their numbers
	srqs     map[uint32]*port            // the ports of the applications that own the shared receive queues, by their numbers
	targets  map[wire.QPN][]targetHandle // of XRC, with the handles that programs have of them
	table    *mem.Table                  // memory table of the NIC's latest incarnation that the pump has seen
	activity uint64                      // Engine.Activity when completions were last copied
	crammed  bool                        // completions wait for room in the ring of an unmodified program
	again    *time.Timer                 // calls carry while crammed is set; nil until it was first set
	stirred  bool                        // ends the sleep of the pump, which then checks all bells
	ended    bool
	asks     bool    // what Server.SetAsks has set
	heard    []heard // events that are to be sent to applications
	scratch  scratch
}

func newPump(shell verbsengine.Shell, spinTime time.Duration) *pump {
	p := &pump{
		spinTime: spinTime, shell: shell,
		qps: make(map[wire.QPN]*port), cqs: make(map[uint32]*port), srqs: make(map[uint32]*port), targets: make(map[wire.QPN][]targetHandle),
	}
	p.poller, _ = shell.(verbsengine.Poller)
	p.driver, _ = shell.(verbsengine.Driver)
	p.trier, _ = shell.(Trier)
	p.with(func(e *engine.Engine) {
		p.table = e.Tables.Mem()
		e.Hooks.Event = p.hear
	})
	return p
}

func (s *pump) with(f func(e *engine.Engine)) {
	_, e, _ := s.shell.Enter()
	defer s.shell.Leave()
	f(e)
}

// add makes the pump serve the application of port p. The caller has exclusive use of the engine e.
func (s *pump) add(p *port, e *engine.Engine) {
	s.tell() // events that were raised before are not for this port
	s.ports = append(s.ports, p)
	p.ask(s.asks)
	s.stirred = true // so that the pump, before it sleeps again, tells the application that it sleeps
	e.Events.Notify()
}

// end makes run return.
func (s *pump) end() {
	s.with(func(e *engine.Engine) {
		s.ended, s.stirred = true, true
		e.Hooks.Event = nil
		e.Events.Notify()
	})
}

// run serves the rings until the method end is called. If the device is closed before that, run
// waits for stop and returns.
func (s *pump) run(stop <-chan struct{}) {
	for {
		s.spin()
		if !s.sleep(stop) {
			return
		}
	}
}

// spin makes steps of the pump, at least one. It returns when the steps of a whole spin time have
// found no work and no application has polled meanwhile. If other threads need the processor, spin
// returns after the first step without work, even if an application polls.
func (s *pump) spin() {
	patient := s.pace.Begin()
	start := s.shell.Now()
	last := start
	polling := false // whether the last step found nothing to do
	for hasty := 0; ; hasty-- {
		found := s.look(hasty > 0)
		switch found {
		case idle:
		case polled:
			last = start
		case posted:
			last, hasty = start, 0
		case carried:
			last, hasty = start, eager+1
		}
		now := s.shell.Now()
		switch {
		case now.Sub(last) >= s.spinTime:
			return
		case found < posted && (!patient || s.pace.Took(now.Sub(start))): // other threads need the processor
			return
		case found >= posted && polling:
			s.pace.Found()
		}
		polling = found < posted
		start = now
	}
}

// seen says what a step of the pump has found. If several values apply, seen is the last one of
// them in this list.
type seen int

const (
	idle    seen = iota
	polled       // an application polls for completions
	posted       // work requests were posted
	carried      // completions were copied, or the NIC was active in another way
)

// look makes one step of the pump: it posts the work requests of the objects whose bells were rung
// or, if there are none, lets the NIC make progress. Then it copies completions to the
// applications. If hasty is set, the NIC makes no pause (see drive).
func (s *pump) look(hasty bool) (found seen) {
	now, e, out := s.shell.Enter()
	defer s.shell.Leave()
	if len(s.ports) == 0 || s.ended {
		return idle
	}
	if s.poller != nil {
		s.poller.Polled()
	}
	for _, p := range s.ports {
		if p.polled() {
			found = max(found, polled)
		}
		if p.serve(now, out) {
			found = posted
		}
	}
	if found != posted {
		s.drive(hasty)
	}
	if s.carry(e) {
		found = carried
	}
	return found
}

// drive lets the NIC make progress. If hasty is true and the shell is a Driver, drive makes no
// pause. Otherwise the shell may pause (Shell.Progress).
func (s *pump) drive(hasty bool) {
	if hasty && s.driver != nil {
		s.driver.Drive()
		return
	}
	s.shell.Progress()
}

// sleep waits until a bell is rung or stirred is set. It returns false if the server has ended.
// During the sleep the goroutine that drives the NIC calls Ready, which copies completions.
func (s *pump) sleep(stop <-chan struct{}) bool {
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Asleep.Store(1)
		}
	})
	if err := s.shell.Await((*asleep)(s), clock.Never); err != nil {
		s.bury() // the device was closed before the server ended
		<-stop
		return false
	}
	ended := false
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Asleep.Store(0)
		}
		s.stirred, ended = false, s.ended
	})
	return !ended
}

// asleep is the condition that ends the sleep of the pump.
type asleep pump

var _ verbsengine.Patient = (*asleep)(nil)

// Patient reports whether no application is attached. Then no shell needs to poll for the end of
// the pump's sleep.
func (a *asleep) Patient() bool { return len(a.ports) == 0 }

// Ready copies completions, and reports whether the pump has work.
func (a *asleep) Ready(e *engine.Engine) bool {
	s := (*pump)(a)
	s.carry(e)
	if s.stirred {
		return true
	}
	for _, p := range s.ports {
		if p.ctl.Rung() {
			return true
		}
	}
	return false
}

// woken serves an application that has woken the daemon. It also ends the sleep of the pump if the
// pump is configured to poll (spinTime), or if more bells were rung than one step may serve.
func (s *pump) woken(p *port) {
	now, e, out := s.shell.Enter()
	defer s.shell.Leave()
	p.wakes++
	if slices.Contains(s.ports, p) && p.serve(now, out) {
		s.carry(e)
	}
	if s.spinTime > 0 || p.ctl.Rung() { // the application sends no second wake-up for the remaining bells, so the pump must serve them
		s.stirred = true
		e.Events.Notify()
	}
}

// catchUp serves the bells that an application rang before it sent a request. So the NIC has the
// posts before the request changes an object. Between two rounds of catchUp, the pump can serve
// other applications. A step of the pump first clears all rung bells, and at its end sets those
// again that it has not served. During the step, these bells seem not to be rung, so catchUp checks
// them only with exclusive use of the engine. If the application keeps ringing, catchUp stops and
// leaves the remaining bells to the pump.
func (s *pump) catchUp(p *port) {
	for range ring.MaxBells / maxBellsAtOnce {
		if !s.catchUpOnce(p) {
			return
		}
	}
}

func (s *pump) catchUpOnce(p *port) (more bool) {
	now, e, out := s.shell.Enter()
	defer s.shell.Leave()
	if slices.Contains(s.ports, p) && p.serve(now, out) {
		s.carry(e)
	}
	return p.ctl.Rung()
}

// carry copies completions and events to the applications. It reports whether the NIC was active
// since the last call; if not, and if no completion waits for room, it does nothing.
func (s *pump) carry(e *engine.Engine) bool {
	active := s.activity != e.Events.Activity()
	if !active && !s.crammed || len(s.ports) == 0 {
		return false
	}
	s.activity, s.crammed = e.Events.Activity(), false
	s.noticeDown(e)
	for _, p := range s.ports {
		for _, q := range p.settled {
			q.settle()
		}
		for _, c := range p.cqs {
			c.move(p)
		}
	}
	s.tell()
	return active
}

// crammedPause is the pause between two looks whether a program has made room for completions that wait. A program
// polls without telling anybody, and the NIC may have nothing else to do.
const crammedPause = time.Millisecond

// cram is called when completions wait for room in the ring of a program.
func (s *pump) cram() {
	if s.crammed {
		return
	}
	s.crammed = true
	if s.again == nil {
		s.again = time.AfterFunc(crammedPause, func() {
			s.with(func(e *engine.Engine) {
				if !s.ended {
					s.carry(e)
				}
			})
		})
		return
	}
	s.again.Reset(crammedPause)
}

// noticeDown tells the applications that their objects no longer exist, if the NIC was down since
// the last call.
func (s *pump) noticeDown(e *engine.Engine) {
	if s.table == e.Tables.Mem() {
		return
	}
	s.tell() // events of targets are for those that have them now
	s.table = e.Tables.Mem()
	clear(s.qps)
	clear(s.cqs)
	clear(s.srqs)
	clear(s.targets)
	for _, p := range s.ports {
		p.ctl.Incarnation.Add(1)
		p.wakeUp()
	}
}

// bury tells the applications, when the device was closed, that their objects no longer exist.
func (s *pump) bury() {
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Incarnation.Add(1)
			p.ctl.Asleep.Store(1) // so that applications do not wait for a pump that does not run any more
			p.wakeUp()
		}
	})
}

// remove removes a port. After that the pump does not access the port's memory.
func (s *pump) remove(p *port) {
	s.tell() // heard.all is valid only until the list of ports changes
	s.ports = slices.DeleteFunc(s.ports, func(o *port) bool { return o == p })
	disownAll(s.qps, p)
	disownAll(s.cqs, p)
	disownAll(s.srqs, p)
	for n := range s.targets {
		s.forgetTarget(n, func(h targetHandle) bool { return h.port == p })
	}
}

// disownAll removes the entries of port p from owners. owners says which application owns a queue
// pair or queue, by the number of the queue pair or queue.
func disownAll[N comparable](owners map[N]*port, p *port) {
	maps.DeleteFunc(owners, func(_ N, owner *port) bool { return owner == p })
}

// scratch is the daemon's memory into which entries of rings are copied before they are checked.
type scratch struct {
	bytes []byte
	sges  []verbs.SGE
	sends []verbs.SendWR
	recvs []verbs.RecvWR
	wcs   [64]verbs.WC
}
