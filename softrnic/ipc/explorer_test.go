package ipc_test

import (
	"fmt"
	"strings"
	"testing"
)

// This is a small model checker: it explores every order in which a few threads can make their
// atomic steps. A model is a state of a comparable type and threads, which are lists of
// instructions. One instruction is one access to shared state.

// instr is an instruction. It changes the state and returns the place of the next instruction, or
// false if it has to wait.
type instr[S any] struct {
	name string
	// private instructions are executed in one step with the instruction before them, because no
	// other thread can see the difference. They do not wait.
	private bool
	step    func(s *S) (next int, ok bool)
}

// asm builds the instructions of a thread.
type asm[S any] struct {
	code   []instr[S]
	places map[string]int
}

func newAsm[S any]() *asm[S] { return &asm[S]{places: make(map[string]int)} }

// at gives the next instruction a label. A thread ends at the label "end".
func (a *asm[S]) at(label string) { a.places[label] = len(a.code) }

// do is an access; the thread goes on with the next instruction.
func (a *asm[S]) do(name string, f func(s *S)) {
	next := len(a.code) + 1
	a.code = append(a.code, instr[S]{name: name, step: func(s *S) (int, bool) { f(s); return next, true }})
}

// private makes the last instruction private.
func (a *asm[S]) private() { a.code[len(a.code)-1].private = true }

// wait blocks until f returns true; f may also take what it waited for, in the same step.
func (a *asm[S]) wait(name string, f func(s *S) bool) {
	next := len(a.code) + 1
	a.code = append(a.code, instr[S]{name: name, step: func(s *S) (int, bool) { return next, f(s) }})
}

// when goes to a label if f is true; f may be a swap.
func (a *asm[S]) when(name string, f func(s *S) bool, label string) {
	next := len(a.code) + 1
	a.code = append(a.code, instr[S]{name: name, step: func(s *S) (int, bool) {
		if f(s) {
			return a.places[label], true
		}
		return next, true
	}})
}

// jump goes to a label.
func (a *asm[S]) jump(label string) {
	a.code = append(a.code, instr[S]{private: true, step: func(*S) (int, bool) { return a.places[label], true }})
}

// maxThreads, maxPrivate and maxStates bound a model: the threads, the private instructions in a
// row, and the states that are visited.
const (
	maxThreads = 10
	maxPrivate = 64
	maxStates  = 3e6
)

// step makes one step of a thread, with the private instructions after it. It returns false if the
// thread waits or has ended.
func (a *asm[S]) step(pc int, s *S) (int, bool) {
	if pc >= len(a.code) {
		return pc, false
	}
	pc, ok := a.code[pc].step(s)
	for n := 0; ok && pc < len(a.code) && a.code[pc].private && n < maxPrivate; n++ {
		pc, _ = a.code[pc].step(s)
	}
	return pc, ok
}

// world is a state with the places of the threads.
type world[S comparable] struct {
	pc [maxThreads]uint8
	s  S
}

// explore visits all states that can be reached, and returns their number. The text describes how a
// state is reached in which no thread can go on before done is true, or from which done cannot
// become true any more; "" if there is none.
func explore[S comparable](start S, threads []*asm[S], done func(s *S) bool) (states int, stuck string) {
	type edge struct {
		from   int
		thread uint8
	}
	index := map[world[S]]int{{s: start}: 0}
	all, came := []world[S]{{s: start}}, []edge{{from: -1}}
	var back [][]int32
	var ends []int
	for i := 0; i < len(all); i++ {
		back = append(back, nil)
		w := all[i]
		moved := false
		for t, a := range threads {
			n := w
			next, ok := a.step(int(w.pc[t]), &n.s)
			if !ok {
				continue
			}
			moved = true
			n.pc[t] = uint8(next)
			to, known := index[n]
			if !known {
				to = len(all)
				index[n] = to
				all, came = append(all, n), append(came, edge{i, uint8(t)})
			}
			for len(back) <= to {
				back = append(back, nil)
			}
			back[to] = append(back[to], int32(i))
		}
		if done(&w.s) {
			ends = append(ends, i)
		} else if !moved && stuck == "" {
			stuck = "no thread can go on: "
			ends = append(ends, -1-i)
		}
		if stuck != "" {
			break
		}
		if len(all) > maxStates {
			return len(all), "there are too many states"
		}
	}
	story := func(i int) string {
		var steps []string
		for at := i; came[at].from >= 0; at = came[at].from {
			t := came[at].thread
			steps = append(steps, fmt.Sprintf("%d %s", t, threads[t].code[all[came[at].from].pc[t]].name))
		}
		var b strings.Builder
		for k := len(steps) - 1; k >= 0; k-- {
			fmt.Fprintf(&b, "\n  %s", steps[k])
		}
		fmt.Fprintf(&b, "\n  %+v", all[i])
		return b.String()
	}
	if stuck != "" {
		return len(all), stuck + story(-1-ends[len(ends)-1])
	}
	reach := make([]bool, len(all))
	for _, e := range ends {
		reach[e] = true
	}
	for len(ends) > 0 {
		e := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		for _, p := range back[e] {
			if !reach[p] {
				reach[p] = true
				ends = append(ends, int(p))
			}
		}
	}
	for i, r := range reach {
		if !r {
			return len(all), "it cannot end any more: " + story(i)
		}
	}
	return len(all), ""
}

// The explorer finds the one order in which two threads that take two locks block each other, and
// none if both take the locks in the same order.
func TestExplorer(t *testing.T) {
	type locks struct {
		held [2]bool
		done uint8
	}
	thread := func(first, second int) *asm[locks] {
		a := newAsm[locks]()
		for _, i := range []int{first, second} {
			a.wait(fmt.Sprint("lock ", i), func(s *locks) bool {
				free := !s.held[i]
				s.held[i] = true
				return free
			})
		}
		a.do("unlock", func(s *locks) { s.held = [2]bool{}; s.done++ })
		return a
	}
	done := func(s *locks) bool { return s.done == 2 }
	if n, stuck := explore(locks{}, []*asm[locks]{thread(0, 1), thread(0, 1)}, done); stuck != "" || n < 5 {
		t.Errorf("%d states, %s", n, stuck)
	}
	if _, stuck := explore(locks{}, []*asm[locks]{thread(0, 1), thread(1, 0)}, done); stuck == "" {
		t.Error("the deadlock was not found")
	}
	spin := newAsm[locks]()
	spin.at("again")
	spin.jump("again")
	if _, stuck := explore(locks{}, []*asm[locks]{spin}, done); stuck == "" {
		t.Error("a thread that goes round and round was taken for one that ends")
	}
}
