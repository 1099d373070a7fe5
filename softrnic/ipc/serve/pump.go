package serve

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// hogged is how long a look may take, with the pause behind it, before the pump gives up polling: somebody else wants the
// processor.
const hogged = 500 * time.Microsecond

// eager is how many looks the pump makes at full speed, one or two microseconds, after it has brought a completion: that
// often leads to the next post at once. After a post it lets others run at once: one of them may be the peer.
const eager = 8

// pump carries work requests and completions until the server ends.
func (s *Server) pump() {
	for {
		s.spin()
		if !s.sleep() {
			return
		}
	}
}

// spin looks once, and again and again until nothing has happened for the spin time.
func (s *Server) spin() {
	start := s.body.Now()
	last := start
	for hasty := 0; ; hasty-- {
		switch s.look(hasty > 0) {
		case idle:
		case polled:
			last = start
		case posted:
			last, hasty = start, 0
		case carried:
			last, hasty = start, eager+1
		}
		now := s.body.Now()
		if now.Sub(last) >= s.cfg.Spin || now.Sub(start) > hogged {
			return
		}
		start = now
	}
}

// seen is what a look of the pump has found: the last of these that applies.
type seen int

const (
	idle    seen = iota
	polled       // an application looks for completions
	posted       // work requests
	carried      // completions, or something else that the NIC had done
)

// look is one step of the pump.
func (s *Server) look(hasty bool) (found seen) {
	now, e, out := s.body.Enter()
	defer s.body.Leave()
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

// drive lets the NIC make progress; the body then pauses, unless there is haste.
func (s *Server) drive(hasty bool) {
	if hasty && s.driver != nil {
		s.driver.Drive()
		return
	}
	s.body.Progress()
}

// sleep waits until a completion or a doorbell comes; false says that the server has ended. While the pump sleeps,
// whoever makes the NIC progress carries completions, in Ready.
func (s *Server) sleep() bool {
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Asleep.Store(1)
		}
	})
	if err := s.body.Await((*asleep)(s), clock.Never); err != nil {
		s.bury() // the device was closed under us
		<-s.stop
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
type asleep Server

var _ binding.Condition = (*asleep)(nil)

// Ready carries completions, and reports whether the pump has work.
func (a *asleep) Ready(e *engine.Engine) bool {
	s := (*Server)(a)
	s.carry(e)
	if s.stirred {
		return true
	}
	for _, p := range s.ports {
		if p.ctl.Asleep.Load() == 0 { // attached meanwhile
			p.ctl.Asleep.Store(1)
		}
		if p.ctl.Rung() {
			return true
		}
	}
	return false
}

// woken serves an application that found the pump asleep, and lets the pump take over, if that polls or if there is more to
// do than one step may.
func (s *Server) woken(p *port) {
	now, e, out := s.body.Enter()
	defer s.body.Leave()
	p.wakes++
	if slices.Contains(s.ports, p) && p.serve(now, out) {
		s.carry(e)
	}
	if s.cfg.Spin > 0 || p.ctl.Rung() { // the wake-ups of all who rang have been taken: nobody else serves what is left
		s.stirred = true
		e.Notify()
	}
}

// carry takes completions and events to the applications, if there are any. It reports whether the NIC was active.
func (s *Server) carry(e *engine.Engine) bool {
	if s.activity == e.Activity() || len(s.ports) == 0 {
		return false
	}
	s.activity = e.Activity()
	s.noticeDown(e)
	for _, p := range s.ports {
		for _, c := range p.cqs {
			c.move(p)
		}
	}
	for e.HasAsyncEvent() {
		ev, _ := e.NextAsyncEvent()
		s.route(ev)
	}
	return true
}

// noticeDown tells applications that the NIC was down meanwhile: their objects are dead.
func (s *Server) noticeDown(e *engine.Engine) {
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
func (s *Server) bury() {
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			p.ctl.Incarnation.Add(1)
			p.ctl.Asleep.Store(1) // for ever
			p.wakeUp()
		}
	})
}

// route gives an event to the application whose object it is about, or to all if it is about the NIC.
func (s *Server) route(ev verbs.AsyncEvent) {
	switch ev.Kind {
	case verbs.EventCQErr:
		s.cqs[ev.CQ].event(ev)
	case verbs.EventSRQLimit:
		s.srqs[ev.SRQ].event(ev)
	case verbs.EventPortActive, verbs.EventPortErr, verbs.EventDeviceFatal:
		for _, p := range s.ports {
			p.event(ev)
		}
	default:
		s.qps[ev.QPN].event(ev)
	}
}

// remove forgets a port. Its memory is not touched any more.
func (s *Server) remove(p *port) {
	s.ports = slices.DeleteFunc(s.ports, func(o *port) bool { return o == p })
	for n, owner := range s.qps {
		if owner == p {
			delete(s.qps, n)
		}
	}
	for n, owner := range s.cqs {
		if owner == p {
			delete(s.cqs, n)
		}
	}
	for n, owner := range s.srqs {
		if owner == p {
			delete(s.srqs, n)
		}
	}
}

// scratch is memory for the copies of entries.
type scratch struct {
	bytes []byte
	sges  []verbs.SGE
	sends []verbs.SendWR
	recvs []verbs.RecvWR
	wcs   [64]verbs.WC
}
