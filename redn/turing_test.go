package redn_test

import (
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/redn"
)

// busyBeaver is the busy beaver of four states: of all machines with four states and two symbols that halt on an
// empty tape it makes the most steps, 107, and leaves 13 symbols.
const busyBeaver = "1RB1LB_1LA0LC_1RH1LD_1RD0RA"

// Places in the memory of a Turing machine.
const (
	turingVarsAt   = 0
	turingStatesAt = 512
	turingTapeAt   = 2048
	turingCells    = 64
	turingPoolAt   = 2560
)

// turing is a NIC with a Turing machine.
type turing struct {
	*redn.Machine
	redn.Turing
}

func newTuring(limit redn.Operand) (*turing, error) {
	m, err := redn.NewMachine(true)
	if err != nil {
		return nil, err
	}
	loop, err := m.Add("loop", redn.TuringBlocks)
	if err != nil {
		return nil, err
	}
	on, err := m.Add("on", redn.TuringOnBlocks)
	if err != nil {
		return nil, err
	}
	u := &turing{m, redn.Turing{
		Loop: loop, On: on, Vars: m.Data.At(turingVarsAt, redn.TuringVars),
		States: m.Data.At(turingStatesAt, turingTapeAt-turingStatesAt), Tape: m.Data.At(turingTapeAt, 8*turingCells),
		Limit: limit,
	}}
	pool := redn.NewPool(m.Data.At(turingPoolAt, 1024))
	if err := u.Build(pool); err != nil {
		return nil, err
	}
	copy(m.Memory[turingPoolAt:], pool.Image())
	return u, nil
}

// place puts a machine with a tape into memory, and starts it.
func (u *turing) place(machine []redn.State, tape []int, head int) error {
	if err := u.Place(u.Memory[turingVarsAt:], u.Memory[turingStatesAt:], u.Memory[turingTapeAt:], machine, tape, head); err != nil {
		return err
	}
	u.Start(u.Second)
	u.Main.Enable(u.Second)
	return nil
}

func (u *turing) result() redn.Result {
	return u.Result(u.Memory[turingVarsAt:], u.Memory[turingTapeAt:], turingCells)
}

// A NIC executes the busy beaver of four states.
func ExampleTuring() {
	u, err := newTuring(0)
	if err != nil {
		log.Fatal(err)
	}
	machine, err := redn.ParseStates(busyBeaver)
	if err != nil {
		log.Fatal(err)
	}
	if err := u.place(machine, make([]int, turingCells), turingCells/2); err != nil {
		log.Fatal(err)
	}
	if err := u.Run(); err != nil {
		log.Fatal(err)
	}
	r := u.result()
	fmt.Println(r.Steps, "steps")
	fmt.Println(strings.Trim(strings.Trim(fmt.Sprint(r.Tape), "[]"), "0 "))
	// Output:
	// 107 steps
	// 1 0 1 1 1 1 1 1 1 1 1 1 1 1
}

// inGo executes a machine in Go. It returns false if the machine leaves the tape or does not halt within
// most steps.
func inGo(machine []redn.State, tape []int, head, most int) (int, int, bool) {
	for state, steps := 0, 1; steps <= most; steps++ {
		r := machine[state][tape[head]]
		tape[head] = r.Write
		if head++; r.Left {
			head -= 2
		}
		if r.Halt {
			return head, steps, true
		}
		if state = r.Next; head < 0 || head >= len(tape) {
			break
		}
	}
	return 0, 0, false
}

// Random machines of one to five states with random tapes give what they give in Go. One program executes
// all of them, one after the other: over the wraps of the rings and of the 16 bits of counts.
func TestTuringAgreesWithGo(t *testing.T) {
	u, err := newTuring(0)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 5))
	halted, all, longest := 0, 0, 0
	for halted < verbstest.Tries(100_000, 2_000) {
		machine := make([]redn.State, 1+rnd.IntN(5))
		for i := range machine {
			for j := range machine[i] {
				machine[i][j] = redn.Rule{Write: rnd.IntN(2), Left: rnd.IntN(2) == 0, Halt: rnd.IntN(8) == 0, Next: rnd.IntN(len(machine))}
			}
		}
		tape := make([]int, turingCells)
		for i := range tape {
			tape[i] = rnd.IntN(2)
		}
		head := turingCells/4 + rnd.IntN(turingCells/2)
		want := slices.Clone(tape)
		end, steps, ok := inGo(machine, want, head, 500)
		if !ok {
			continue
		}
		if err := u.place(machine, tape, head); err != nil {
			t.Fatal(err)
		}
		if halted == 0 {
			if err := redn.Verify(nil, u.Main, u.Second, u.Loop, u.On); err != nil {
				t.Fatal(err)
			}
		}
		if err := u.Run(); err != nil {
			t.Fatal(err)
		}
		if r := u.result(); !slices.Equal(r.Tape, want) || r.Head != end || r.Steps != steps || !r.Halted {
			t.Fatalf("machine %d, %+v from cell %d: %+v; want %d steps to %d, %v", halted, machine, head, r, steps, end, want)
		}
		halted, all, longest = halted+1, all+steps, max(longest, steps)
	}
	t.Logf("%d machines, %d steps, at most %d", halted, all, longest)
}

// A machine that does not fit, or names what does not exist, is refused before anything is written.
func TestTuringRefuses(t *testing.T) {
	u, err := newTuring(0)
	if err != nil {
		t.Fatal(err)
	}
	beaver, err := redn.ParseStates(busyBeaver)
	if err != nil {
		t.Fatal(err)
	}
	empty := make([]int, turingCells)
	before := slices.Clone(u.Memory)
	for _, c := range []struct {
		machine []redn.State
		tape    []int
		head    int
		want    string
	}{
		{make([]redn.State, 25), empty, 0, "25 states need 1600 bytes"},
		{beaver, make([]int, turingCells+1), 0, "needs 520 bytes"},
		{beaver, empty, turingCells, "no cell 64"},
		{beaver, empty, -1, "no cell -1"},
		{beaver[:1], empty, 0, "state 0, symbol 0"},
		{[]redn.State{{{Write: 2}, {}}}, empty, 0, "state 0, symbol 0"},
		{beaver, []int{0, 3}, 0, "cell 1 has symbol 3"},
	} {
		if err := u.place(c.machine, c.tape, c.head); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	short := make([]byte, redn.TuringVars-1)
	if err := u.Place(short, u.Memory[turingStatesAt:], u.Memory[turingTapeAt:], beaver, empty, 0); err == nil || !strings.Contains(err.Error(), "bytes for the variables: want") {
		t.Errorf("variables without room: %v", err)
	}
	if !slices.Equal(u.Memory, before) {
		t.Error("a machine that was refused has changed the memory")
	}
	for text, want := range map[string]string{
		"":                                       `state A is ""`,
		"1RB":                                    `state A is "1RB"`,
		"1RB1LB_1LA0LC1":                         `state B is "1LA0LC1"`,
		"1RB2LB":                                 `rule "2LB"`,
		"1RB1UB":                                 `rule "1UB"`,
		"1RB1Lb":                                 `rule "1Lb"`,
		strings.Repeat("1RA1LB_", 25) + "1RA1LB": "26 states",
	} {
		if _, err := redn.ParseStates(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A machine that does not halt ends after as many steps as the limit says, and goes on when it is started
// again.
func TestTuringLimit(t *testing.T) {
	const limit = 20
	u, err := newTuring(limit)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := redn.ParseStates("1RB0RB_1LA0LA") // it goes to the right and to the left for ever
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := u.place(machine, make([]int, turingCells), turingCells/2); err != nil {
			t.Fatal(err)
		}
		if err := u.Run(); err != nil {
			t.Fatal(err)
		}
		if r := u.result(); r.Steps != limit || r.Halted {
			t.Errorf("%+v, want %d steps", r, limit)
		}
	}
}
