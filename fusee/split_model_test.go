package fusee

import (
	"fmt"
	"testing"
)

// The model of one place of a subtable that is being split, with one or two replicas: all orders in which
// the operations of movers, of which one may die anywhere, and of two clients reach the words. Objects
// are 1 to 5; 1 is there at first. An object that moves leaves it + 8, which is cleaned to it + 16; an
// INSERT that follows to the twin leaves that, too. 30 and more are what DELETEs leave. A PUT into a
// bucket that is moving leaves its own object + 8, plants it, and may die before it has done so.
type modelWords struct {
	head  uint8    // 0 open, 1 moving, 2 settled
	s, t  [2]uint8 // the slot and that of the twin: primary, backup
	valid uint8    // bit for each object
}

type modelKind uint8

const (
	modelMove modelKind = iota
	modelPut
	modelDelete
	modelInsert
)

// modelActor is a mover or a client with one operation on the key, which moves.
type modelActor struct {
	kind     modelKind
	pc       uint8
	value    uint8 // that it writes
	old      uint8
	head     uint8 // as it was read
	seen     uint8 // of the subtable
	twin     bool  // it changes the twin
	beaten   uint8 // what the first replica had that it has tried to change
	tries    uint8
	done, ok bool
}

type modelState struct {
	modelWords
	actors [4]modelActor
}

type modelBug uint8

const (
	noBug         modelBug = iota
	putTrusts              // a PUT that has lost takes any winner for a PUT
	insertStays            // an INSERT does not look at the header again
	movesPending           // pending objects move
	plantFirst             // the twin has the slot before the subtable has left it
	putTrustsMove          // a PUT that has lost to a mover takes it for a PUT
	firstStays             // an INSERT whose object goes to the twin does not empty the first slot
)

type model struct {
	replicas, n int
	bug         modelBug
	seen        map[modelState]bool
	err         error
}

func modelObject(v uint8) bool  { return v > 0 && v < 8 }
func modelLeaving(v uint8) bool { return v >= 8 && v < 16 }

// swap is a CAS of a replica; it returns what it has found.
func (w *modelWords) swap(twin bool, i int, from, to uint8) uint8 {
	p := &w.s[i]
	if twin {
		p = &w.t[i]
	}
	was := *p
	if was == from {
		*p = to
	}
	return was
}

func (m *model) walk(s modelState) {
	if m.err != nil || m.seen[s] {
		return
	}
	m.seen[s] = true
	moved := false
	for i := range m.n {
		if s.actors[i].done {
			continue
		}
		next := s
		a := &next.actors[i]
		if !m.step(&next, a) {
			continue
		}
		if a.done { // nothing depends on the rest
			*a = modelActor{kind: a.kind, value: a.value, done: true, ok: a.ok}
		} else if a.pc != 4 {
			a.beaten = 0
		}
		moved = true
		m.walk(next)
		if a := &s.actors[i]; i == 0 && a.kind == modelMove || a.kind == modelPut && a.pc >= 8 { // the first mover may die, and a PUT
			next = s
			next.actors[i].done = true
			m.walk(next)
		}
	}
	if !moved {
		m.err = m.judge(&s)
	}
}

// change does a CAS of the backup, then of the primary, by the rules for one backup. It returns whether
// the change has ended, and won.
func (m *model) change(s *modelState, a *modelActor, base uint8, twin bool, from, to uint8) (ended, won bool) {
	if a.pc == base && m.replicas == 2 {
		if f := s.swap(twin, 1, from, to); f != from && f != to {
			a.beaten = f
			return true, false
		}
		a.pc++
		return false, false
	}
	a.pc = base
	f := s.swap(twin, 0, from, to)
	if m.replicas == 1 && f != from {
		a.beaten = f
	}
	return true, f == from || f == to
}

// step does the next operation of an actor; false: it waits.
func (m *model) step(s *modelState, a *modelActor) bool {
	if a.kind == modelMove {
		return m.move(s, a)
	}
	again := func() {
		if a.pc, a.tries = 0, a.tries+1; a.tries > 3 {
			a.done = true
		}
	}
	switch a.pc {
	case 0: // read the subtable
		a.head, a.seen, a.pc = s.head, s.s[0], 1
	case 1: // read the twin
		t := s.t[0]
		switch {
		case t != 0:
			a.twin, a.old = true, t
		case modelLeaving(a.seen) && a.kind == modelInsert: // the key is there
			a.done = true
			return true
		case modelLeaving(a.seen):
			a.old, a.pc = a.seen-8, 10
			return true
		case a.head == 0, modelObject(a.seen) && a.head == 1:
			a.twin, a.old = false, a.seen
		default:
			a.twin, a.old = true, 0
		}
		there := modelObject(a.old) && s.valid>>a.old&1 != 0
		if a.pc = 2; there == (a.kind == modelInsert) || modelObject(a.old) && !there {
			a.done = true
		}
	case 2, 3:
		to := a.value
		moves := a.kind == modelPut && !a.twin && a.head == 1
		if moves {
			to += 8
		}
		ended, won := m.change(s, a, 2, a.twin, a.old, to)
		switch {
		case !ended:
		case won && moves:
			a.pc, a.ok = 8, true
		case won && a.kind == modelInsert:
			a.pc = 5
		case won:
			a.done, a.ok = true, true
		default:
			a.pc = 4
		}
	case 4: // it has lost, and waits for the winner
		words := &s.s
		if a.twin {
			words = &s.t
		}
		if words[0] == a.old && m.replicas == 2 {
			if words[1] != a.old+8 {
				return false
			}
			words[0] = words[1] // any client may go on with a move
		}
		if !a.twin && (a.beaten == a.old+8 || a.beaten == a.old+16) && a.kind != modelInsert && m.bug != putTrustsMove && (m.bug != putTrusts || a.kind != modelPut) {
			if a.pc = 10; a.beaten == a.old+16 {
				a.pc = 16
			}
			return true
		}
		put := modelLeaving(a.beaten) && (a.beaten != a.old+8 || m.bug == putTrustsMove)
		if a.kind == modelPut && (m.bug == putTrusts || s.head == a.head && (a.twin || s.head == 0 || put)) {
			a.done, a.ok = true, true
			return true
		}
		again()
	case 5: // read the header again
		if !a.twin && s.head != 0 && m.bug != insertStays { // its object follows the others to the twin
			if a.pc = 14; m.replicas == 2 {
				a.pc = 12
			}
			return true
		}
		s.valid |= 1 << a.value
		a.done, a.ok = true, true
	case 8:
		s.swap(true, 1, 0, a.value)
		a.pc = 9
	case 9:
		s.swap(true, 0, 0, a.value)
		a.done = true
	case 10: // it takes the key to the twin
		s.swap(true, 1, 0, a.old)
		a.pc = 11
	case 11:
		if f := s.swap(true, 0, 0, a.old); f == 0 || f == a.old {
			a.twin, a.pc = true, 2
			break
		}
		again()
	case 12: // the first slot becomes empty, and the twin gets the object
		s.swap(false, 1, a.value, 16+a.value)
		a.pc = 13
	case 13:
		if f := s.swap(true, 1, 0, a.value); f == 0 {
			a.pc = 14
			break
		}
		a.pc, a.old = 15, 1 // it has lost
	case 14:
		a.old, a.pc = s.swap(true, 0, 0, a.value), 15
	case 15:
		if m.bug != firstStays {
			s.swap(false, 0, a.value, 16+a.value)
		}
		if a.twin, a.pc = true, 5; a.old != 0 {
			again()
		}
	case 16: // the slot is empty already: it looks into the twin
		if a.twin, a.pc = true, 2; s.t[0] != a.old {
			again()
		}
	}
	return true
}

func (m *model) move(s *modelState, a *modelActor) bool {
	switch a.pc {
	case 0:
		if s.head == 0 {
			s.head = 1
		}
		a.pc = 1
	case 1:
		switch v := s.s[0]; {
		case s.head == 2:
			a.done = true
		case modelLeaving(v):
			a.old, a.pc = v-8, 4
		case !modelObject(v):
			a.pc = 8
		case s.valid>>v&1 == 0 && m.bug != movesPending:
			return false // until its client shows or withdraws it
		default:
			if a.old, a.pc = v, 2; m.bug == plantFirst {
				s.swap(true, 1, 0, v)
				s.swap(true, 0, 0, v)
			}
		}
	case 2, 3:
		if ended, won := m.change(s, a, 2, false, a.old, a.old+8); ended {
			if a.pc = 1; won {
				a.pc = 4
			}
		}
	case 4:
		s.swap(true, 1, 0, a.old)
		a.pc = 5
	case 5:
		s.swap(true, 0, 0, a.old)
		a.pc = 6
	case 6, 7:
		if ended, won := m.change(s, a, 6, false, a.old+8, a.old+16); ended {
			if a.pc = 1; won {
				a.pc = 8
			}
		}
	case 8:
		s.head, a.done = 2, true
	}
	return true
}

// judge checks a state in which no actor goes on: the key has at most one object, and some order of the
// operations explains the answers and that object.
func (m *model) judge(s *modelState) error {
	for i := range m.n {
		if !s.actors[i].done {
			return fmt.Errorf("an actor waits for ever: %+v", *s)
		}
	}
	if m.replicas == 2 && (s.s[0] != s.s[1] || s.t[0] != s.t[1]) {
		return fmt.Errorf("the replicas differ: %+v", *s)
	}
	var has uint8
	for _, v := range []uint8{s.s[0], s.t[0]} {
		if modelObject(v) && s.valid>>v&1 != 0 {
			if has != 0 {
				return fmt.Errorf("the key is there twice: %+v", *s)
			}
			has = v
		}
	}
	if s.head == 2 && modelObject(s.s[0]) {
		return fmt.Errorf("the split has left the key behind: %+v", *s)
	}
	one, two := s.actors[m.n-2], s.actors[m.n-1]
	for _, order := range [][]modelActor{{one, two}, {two, one}} {
		value := uint8(1)
		for _, a := range order {
			switch {
			case !a.ok:
			case a.kind == modelInsert && value != 0, a.kind != modelInsert && value == 0:
				value = 99
			case a.kind == modelDelete:
				value = 0
			default:
				value = a.value
			}
		}
		if value == has {
			return nil
		}
	}
	return fmt.Errorf("no order of the operations explains object %d: %+v", has, *s)
}

func runModel(replicas int, one, two modelKind, bug modelBug) (int, error) {
	m := &model{replicas: replicas, n: 4, bug: bug, seen: map[modelState]bool{}}
	s := modelState{modelWords: modelWords{s: [2]uint8{1, 1}, valid: 1 << 1}}
	for i, k := range []modelKind{modelMove, modelMove, one, two} {
		s.actors[i] = modelActor{kind: k, value: uint8(i)}
		switch k {
		case modelDelete:
			s.actors[i].value = 40 + uint8(i)
		case modelPut: // its object is not pending
			s.valid |= 1 << i
		}
	}
	if replicas == 1 {
		s.s[1] = 0
	}
	m.walk(s)
	return len(m.seen), m.err
}

// No order of the steps of two movers, of which one may die, and two clients, whose PUTs may move the key and die, loses or doubles a key.
func TestAllInterleavingsOfAMove(t *testing.T) {
	kinds := []modelKind{modelPut, modelDelete, modelInsert}
	for replicas := 1; replicas <= 2; replicas++ {
		for _, one := range kinds {
			for _, two := range kinds[one-modelPut:] {
				n, err := runModel(replicas, one, two, noBug)
				if err != nil {
					t.Errorf("%d replicas, operations %d and %d: %v", replicas, one, two, err)
				}
				t.Logf("%d replicas, operations %d and %d: %d states", replicas, one, two, n)
			}
		}
	}
}

// The model notices each protection that is left out.
func TestTheModelNoticesBugs(t *testing.T) {
	for bug := putTrusts; bug <= firstStays; bug++ {
		noticed := false
		for _, ops := range [][2]modelKind{{modelPut, modelPut}, {modelPut, modelInsert}, {modelDelete, modelInsert}} {
			for replicas := 1; replicas <= 2 && !noticed; replicas++ {
				_, err := runModel(replicas, ops[0], ops[1], bug)
				noticed = err != nil
			}
		}
		if !noticed {
			t.Errorf("bug %d is not noticed", bug)
		}
	}
}
