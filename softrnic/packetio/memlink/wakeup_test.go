package memlink

import "testing"

// modelState is a sender, a receiver that sleeps when it finds nothing, and a new link that replaces
// the first one while they run. Links are 0 and 1.
type modelState struct {
	tail, head [2]uint8
	asleep     [2]bool
	at         uint8 // the receiver's link
	bell       bool  // an edge that the waiter has not seen
	// Threads: program counters and registers.
	sender, receiver, attacher uint8
	sent                       uint8
	saw                        bool  // the sender's view of asleep
	on                         uint8 // the link whose asleep the receiver is to write
	buffered                   bool  // a store of asleep that the processor has not made yet
}

// modelPlan is what the sender does, and the rules of the protocol that are broken.
type modelPlan struct {
	frames uint8
	// replace: a new link is attached meanwhile, and the sender's frames are on it.
	replace bool

	sayLate    bool // the receiver looks before it says that it sleeps
	askFirst   bool // the sender reads whether the receiver sleeps before it publishes
	quiet      bool // attaching a link does not ring the bell
	plainStore bool // the store of asleep may take effect after the look
}

// Points of the receiver.
const (
	look = iota
	begin
	say
	again
	sleep
	wake
)

// successors appends every state that one step of one thread leads to.
func (p modelPlan) successors(list []modelState, s modelState) []modelState {
	step := func(f func(s *modelState)) {
		next := s
		f(&next)
		list = append(list, next)
	}
	link := uint8(0)
	if p.replace {
		link = 1
	}
	publish := func(s *modelState) { s.tail[link]++ }
	ask := func(s *modelState) { s.saw = s.asleep[link] }
	if s.sent < p.frames {
		first, second := publish, ask
		if p.askFirst {
			first, second = ask, publish
		}
		switch s.sender {
		case 0:
			step(func(s *modelState) { first(s); s.sender = 1 })
		case 1:
			step(func(s *modelState) { second(s); s.sender = 2 })
		case 2:
			step(func(s *modelState) {
				if s.saw && s.asleep[link] { // the exchange
					s.bell = true
				}
				if s.saw {
					s.asleep[link] = false
				}
				s.saw, s.sender, s.sent = false, 0, s.sent+1
			})
		}
	}
	if p.replace {
		switch s.attacher {
		case 0:
			step(func(s *modelState) { s.at = 1; s.attacher = 1 })
		case 1:
			step(func(s *modelState) { s.bell = s.bell || !p.quiet; s.attacher = 2 })
		}
	}
	if s.buffered {
		step(func(s *modelState) { s.asleep[s.on], s.buffered = true, false })
	}
	empty := s.tail[s.at] == s.head[s.at]
	switch s.receiver {
	case look:
		step(func(s *modelState) {
			s.head[s.at] = s.tail[s.at]
			if empty {
				s.receiver = begin
			}
		})
	case begin:
		step(func(s *modelState) { s.on, s.receiver = s.at, say })
	case say, again: // in this order, or with sayLate in the other
		step(func(s *modelState) {
			saying := (s.receiver == say) != p.sayLate
			s.receiver++
			switch {
			case !saying && !empty:
				s.receiver = wake
			case saying && p.plainStore:
				s.buffered = true
			case saying:
				s.asleep[s.on] = true
			}
		})
	case sleep:
		if s.bell {
			step(func(s *modelState) { s.bell, s.receiver = false, wake })
		}
	case wake:
		if !s.buffered {
			step(func(s *modelState) { s.asleep[s.at], s.receiver = false, look })
		}
	}
	return list
}

// run explores all orders and reports how many states there are, and whether one of them is stuck
// with frames that the receiver has not taken.
func (p modelPlan) run() (states int, stuck *modelState) {
	seen := map[modelState]bool{{}: true}
	for todo := []modelState{{}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := p.successors(nil, s)
		if len(next) == 0 && s.tail != s.head {
			return len(seen), &s
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), nil
}

// In no order of the steps of sender, receiver and a new link does the receiver sleep over frames.
// Each rule of the protocol is needed: without it there is an order in which it does.
func TestNoWakeUpIsLost(t *testing.T) {
	for name, p := range map[string]modelPlan{
		"three frames":                 {frames: 3},
		"a new link with three frames": {frames: 3, replace: true},
	} {
		n, stuck := p.run()
		if stuck != nil {
			t.Errorf("%s: %+v", name, *stuck)
		}
		t.Logf("%s: %d states", name, n)
	}
	for name, p := range map[string]modelPlan{
		"the receiver looks before it says":    {frames: 1, sayLate: true},
		"the sender asks before it publishes":  {frames: 1, askFirst: true},
		"a new link does not ring":             {frames: 1, replace: true, quiet: true},
		"a store that is made behind the look": {frames: 1, plainStore: true},
	} {
		if n, stuck := p.run(); stuck == nil {
			t.Errorf("%s: not found in %d states", name, n)
		}
	}
}
