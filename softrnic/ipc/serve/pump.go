package serve

import (
	"maps"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// eager is how many steps the pump makes at full speed, for one or two microseconds, after it has
// copied a completion, which often leads to the next post at once. After a post it yields at once,
// because one of the other threads may be the peer.
const eager = 8

// pump carries work requests and completions between the rings of all applications and the NIC. All
// fields behind driver are guarded by the engine's exclusiveness.
type pump struct {
	spinTime time.Duration // how long it polls after something has happened
	pace     pollpace.Spinner
	shell    verbsengine.Shell
	poller   verbsengine.Poller // shell, or nil
	driver   verbsengine.Driver // likewise

	ports    []*port
	qps      map[wire.QPN]*port
	cqs      map[uint32]*port
	srqs     map[uint32]*port
	table    *mem.Table // of the NIC's latest incarnation that the pump knows
	activity uint64     // of the engine, when completions were last carried
	stirred  bool       // the pump has to look at the doorbells
	ended    bool
	heard    []heard // events that were not told yet
	scratch  scratch
}

func newPump(shell verbsengine.Shell, spinTime time.Duration) *pump {
	p := &pump{
		spinTime: spinTime, shell: shell,
		qps: make(map[wire.QPN]*port), cqs: make(map[uint32]*port), srqs: make(map[uint32]*port),
	}
	p.poller, _ = shell.(verbsengine.Poller)
	p.driver, _ = shell.(verbsengine.Driver)
	p.with(func(e *engine.Engine) {
		p.table = e.Mem()
		e.SetEventSink(p.hear)
	})
	return p
}

// with gives f exclusive use of the engine.
func (s *pump) with(f func(e *engine.Engine)) {
	_, e, _ := s.shell.Enter()
	defer s.shell.Leave()
	f(e)
}

// add makes the pump serve a port. The caller has exclusive use of the engine.
func (s *pump) add(p *port, e *engine.Engine) {
	s.tell() // what happened before concerns those that were there
	s.ports = append(s.ports, p)
	s.stirred = true
	e.Notify()
}

// end makes run return.
func (s *pump) end() {
	s.with(func(e *engine.Engine) {
		s.ended, s.stirred = true, true
		e.SetEventSink(nil)
		e.Notify()
	})
}

// run carries work requests and completions until end. When the device is closed before, it returns
// once stop is closed.
func (s *pump) run(stop <-chan struct{}) {
	for {
		s.spin()
		if !s.sleep(stop) {
			return
		}
	}
}

// spin looks until nothing has happened for the spin time, at least once. While others need the CPU
// it looks only as long as it finds something.
func (s *pump) spin() {
	patient := s.pace.Begin()
	start := s.shell.Now()
	last := start
	polling := false // the last step found nothing to do
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
		case found < posted && (!patient || s.pace.Took(now.Sub(start))): // the step was a pause
			return
		case found >= posted && polling:
			s.pace.Found()
		}
		polling = found < posted
		start = now
	}
}

// seen is the result of a step of the pump: the last of these values that applies.
type seen int

const (
	idle    seen = iota
	polled       // an application polls for completions
	posted       // work requests
	carried      // completions, or other effects of the NIC
)

// look is one step of the pump.
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

// drive lets the NIC make progress; the shell then pauses, unless hasty is set.
func (s *pump) drive(hasty bool) {
	if hasty && s.driver != nil {
		s.driver.Drive()
		return
	}
	s.shell.Progress()
}

// sleep waits for a completion or a doorbell. False: the server has ended. While the pump sleeps,
// the goroutine that makes the NIC progress carries completions, in Ready.
func (s *pump) sleep(stop <-chan struct{}) bool {
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Asleep.Store(1)
		}
	})
	if err := s.shell.Await((*asleep)(s), clock.Never); err != nil {
		s.bury() // the device was closed before the server
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

// asleep is the condition that the pump waits for.
type asleep pump

var _ verbsengine.Condition = (*asleep)(nil)

// Ready carries completions, and reports whether the pump has work.
func (a *asleep) Ready(e *engine.Engine) bool {
	s := (*pump)(a)
	s.carry(e)
	if s.stirred {
		return true
	}
	for _, p := range s.ports {
		if p.ctl.Asleep.Load() == 0 { // attached since sleep began
			p.ctl.Asleep.Store(1)
		}
		if p.ctl.Rung() {
			return true
		}
	}
	return false
}

// woken serves an application that found the pump asleep. The pump takes over if it polls, or if
// there is more to do than one step may.
func (s *pump) woken(p *port) {
	now, e, out := s.shell.Enter()
	defer s.shell.Leave()
	p.wakes++
	if slices.Contains(s.ports, p) && p.serve(now, out) {
		s.carry(e)
	}
	if s.spinTime > 0 || p.ctl.Rung() { // all wake-ups were consumed: only the pump serves the rest
		s.stirred = true
		e.Notify()
	}
}

// carry takes completions and events to the applications, if there are any. It reports whether the
// NIC was active.
func (s *pump) carry(e *engine.Engine) bool {
	if s.activity == e.Activity() || len(s.ports) == 0 {
		return false
	}
	s.activity = e.Activity()
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
	return true
}

// noticeDown reports to the applications that the NIC was down since the last call: their objects
// are dead.
func (s *pump) noticeDown(e *engine.Engine) {
	if s.table == e.Mem() {
		return
	}
	s.table = e.Mem()
	clear(s.qps)
	clear(s.cqs)
	clear(s.srqs)
	for _, p := range s.ports {
		p.ctl.Incarnation.Add(1)
		p.wakeUp()
	}
}

// bury is noticeDown for a device that was closed.
func (s *pump) bury() {
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Incarnation.Add(1)
			p.ctl.Asleep.Store(1) // and it stays asleep
			p.wakeUp()
		}
	})
}

// remove forgets a port. The pump does not touch its memory afterwards.
func (s *pump) remove(p *port) {
	s.unhear(p)
	s.ports = slices.DeleteFunc(s.ports, func(o *port) bool { return o == p })
	disownAll(s.qps, p)
	disownAll(s.cqs, p)
	disownAll(s.srqs, p)
}

// disownAll forgets all numbers of a port.
func disownAll[N comparable](owners map[N]*port, p *port) {
	maps.DeleteFunc(owners, func(_ N, owner *port) bool { return owner == p })
}

// scratch is memory for the copies of entries.
type scratch struct {
	bytes []byte
	sges  []verbs.SGE
	sends []verbs.SendWR
	recvs []verbs.RecvWR
	wcs   [64]verbs.WC
}
