package redn

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// Symbols is how many symbols a Turing machine has; 0 is the blank.
const Symbols = 2

// Rule is what a Turing machine does in one state when it reads one symbol: it writes Write, moves
// its head one cell to the right (or left, if Left), and goes to state Next. Halt is true if this
// step is the last one.
type Rule struct {
	Write      int
	Left, Halt bool
	Next       int
}

// State has the rules of a state, by the symbol that is read.
type State [Symbols]Rule

// Lengths in memory, in bytes, and places in a rule.
const (
	cellLen   = wordLen
	ruleLen   = 4 * wordLen
	stateLen  = Symbols * ruleLen
	ruleWrite = 0 * wordLen // the cell that the rule writes
	ruleMove  = 1 * wordLen // what the rule adds to the head
	ruleNext  = 2 * wordLen // the address of the next state, big-endian
	ruleHalt  = 3 * wordLen // 1 if the rule halts

	// Offsets of variables: the addresses of the cell under the head and of the state, copies of
	// this cell and of the rule for it, two words to overwrite, and the number of steps.
	turingHead    = 0
	turingState   = turingHead + wordLen
	turingCell    = turingState + wordLen
	turingRule    = turingCell + wordLen
	turingWord    = turingRule + ruleLen
	turingScratch = turingWord + wordLen
	turingSteps   = turingScratch + wordLen
	// TuringVars is how many bytes of variables a Turing machine has.
	TuringVars = turingSteps + wordLen

	// TuringBlocks and TuringOnBlocks are the sizes of the rings of a Turing machine, in blocks.
	TuringBlocks   = 128
	TuringOnBlocks = 8
)

// Turing is a Turing machine that a NIC executes without a processor. It shows that chains of work
// requests can compute everything (the paper's section 3). It is a recycled loop (see Loop), and
// each lap is one step: it reads the cell and the rule, writes the cell, moves the head, goes to
// the next state and counts the step.
//
// A cell of the tape is a word with the offset, in a state, of the rule for the cell's symbol. So
// the address of a rule is the sum of the state's address and the content of the cell.
type Turing struct {
	// Loop and On are managed queues whose rings compare only the low 16 bits of counts and indexes
	// (Counts16). The ring of Loop has TuringBlocks blocks, that of On TuringOnBlocks.
	Loop, On *Queue
	// Vars is memory of TuringVars bytes. States is memory for the states. Tape is memory for the cells;
	// the machine must not leave it.
	Vars, States, Tape Mem
	// Limit, unless 0, is the number of steps after which the machine ends even if it has not
	// halted.
	Limit Operand

	loop *Loop
}

// Build appends the requests of the loop to the two queues.
func (t *Turing) Build(pool *Pool) (err error) {
	if t.loop, err = t.Loop.Recycle(pool, t.On); err != nil {
		return err
	}
	q, on := t.Loop, t.On
	v := func(at, n int) Mem { return t.Vars.At(at, n) }
	head, cell, rule, scratch := v(turingHead, wordLen), v(turingCell, cellLen), v(turingRule, ruleLen), v(turingScratch, wordLen)
	// do appends requests that copy the word `from`, with its bytes reversed, into `fields` of the
	// newest request of queue `on`, and then execute that request.
	do := func(from, fields Mem) {
		q.Read(sendring.Signalled, from, reversed(fields)...)
		q.decide(on)
	}
	read := on.Read(sendring.Signalled, Mem{RKey: t.Tape.RKey}, cell)
	do(head, read.Remote())
	q.LoadIndexed(on, rule, v(turingState, wordLen), cell, t.States.RKey, v(turingWord, wordLen), scratch)
	write := on.Write(sendring.Signalled, Mem{RKey: t.Tape.RKey}, rule.At(ruleWrite, cellLen))
	do(head, write.Remote())
	move := on.Add(sendring.Signalled, head, scratch, 0)
	do(rule.At(ruleMove, wordLen), move.Value())
	q.Move(v(turingState, wordLen), rule.At(ruleNext, wordLen))
	q.Add(sendring.Signalled, v(turingSteps, wordLen), scratch, 1)
	q.Wait(q.Done)
	t.loop.Break(on, rule.At(ruleHalt, wordLen), 1)
	if t.Limit > 0 {
		t.loop.Break(on, v(turingSteps, wordLen), t.Limit)
	}
	return t.loop.End()
}

// Start appends requests that start the machine to queue `from`, which is managed.
func (t *Turing) Start(from *Queue) { t.loop.Start(from) }

// Place writes a machine to memory, before it is started. states is the memory of t.States, tape
// the memory of t.Tape, and vars the memory of t.Vars, at least TuringVars bytes. symbols are the
// contents of the cells from the first one on. The head is on cell `head`, and the first state is
// machine[0]. If states or symbols do not fit, `head` is no index of symbols, or a rule names a
// symbol or a state that does not exist, Place returns an error and writes nothing.
func (t *Turing) Place(vars, states, tape []byte, machine []State, symbols []int, head int) error {
	if err := t.check(len(vars), len(states), len(tape), machine, symbols, head); err != nil {
		return err
	}
	le := binary.LittleEndian
	for i, s := range machine {
		for symbol, r := range s {
			b := states[i*stateLen+symbol*ruleLen:][:ruleLen]
			clear(b)
			step := int64(cellLen)
			if r.Left {
				step = -step
			}
			le.PutUint64(b[ruleWrite:], uint64(r.Write*ruleLen))
			le.PutUint64(b[ruleMove:], uint64(step))
			binary.BigEndian.PutUint64(b[ruleNext:], t.States.Addr+uint64(r.Next*stateLen))
			if r.Halt {
				b[ruleHalt] = 1
			}
		}
	}
	for i, symbol := range symbols {
		le.PutUint64(tape[i*cellLen:], uint64(symbol*ruleLen))
	}
	clear(vars[:TuringVars])
	le.PutUint64(vars[turingHead:], t.Tape.Addr+uint64(head*cellLen))
	binary.BigEndian.PutUint64(vars[turingState:], t.States.Addr)
	return nil
}

// check returns an error for a machine that Place cannot place. vars, states and tape are the
// lengths in bytes of the slices with these names that Place is to fill; the other parameters are
// those of Place.
func (t *Turing) check(vars, states, tape int, machine []State, symbols []int, head int) error {
	switch {
	case vars < TuringVars:
		return fmt.Errorf("redn: %d bytes for the variables: want %d", vars, TuringVars)
	case len(machine)*stateLen > min(states, t.States.Len):
		return fmt.Errorf("redn: %d states need %d bytes", len(machine), len(machine)*stateLen)
	case len(symbols)*cellLen > min(tape, t.Tape.Len), head < 0 || head >= len(symbols):
		return fmt.Errorf("redn: a tape of %d cells needs %d bytes, and has no cell %d", len(symbols), len(symbols)*cellLen, head)
	}
	for i, s := range machine {
		for symbol, r := range s {
			if r.Write < 0 || r.Write >= Symbols || r.Next < 0 || r.Next >= len(machine) {
				return fmt.Errorf("redn: state %d, symbol %d: %+v; want symbols below %d and states below %d", i, symbol, r, Symbols, len(machine))
			}
		}
	}
	for i, symbol := range symbols {
		if symbol < 0 || symbol >= Symbols {
			return fmt.Errorf("redn: cell %d has symbol %d; want one below %d", i, symbol, Symbols)
		}
	}
	return nil
}

// Result is what a Turing machine has done.
type Result struct {
	Tape []int // the symbols of the tape's first cells, as many as the caller has asked for
	// Head is the number of the cell under the head. If the machine has left the tape, the tape has
	// no such cell.
	Head  int
	Steps int
	// Halted is false if the machine was ended by Limit, or has left the tape.
	Halted bool
}

// Result returns what a machine has done, from the bytes of its variables (vars) and of n cells of
// its tape.
func (t *Turing) Result(vars, tape []byte, n int) Result {
	le := binary.LittleEndian
	r := Result{
		Head: int(int64(le.Uint64(vars[turingHead:])-t.Tape.Addr)) / cellLen, Steps: int(le.Uint64(vars[turingSteps:])), Halted: vars[turingRule+ruleHalt] == 1,
	}
	for i := range n {
		r.Tape = append(r.Tape, int(le.Uint64(tape[i*cellLen:])/ruleLen))
	}
	return r
}
