package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/redn"
)

type turingOptions struct {
	machine string
	tape    string
	cells   int
	limit   uint64
}

// turingLimit is the largest --limit: the NIC of a machine runs for a second of virtual time at most.
const turingLimit = 20_000

func rednTuringCmd() *cobra.Command {
	var o turingOptions
	cmd := &cobra.Command{
		Use:   "turing",
		Short: "Let a NIC execute a Turing machine, and print the tape",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			machine, err := redn.ParseStates(o.machine)
			if err != nil {
				return asUse(fmt.Errorf("--machine: %w", err))
			}
			tape, err := o.symbols()
			if err != nil {
				return asUse(err)
			}
			t, err := runTuring(machine, tape, o.cells/2, redn.Operand(o.limit))
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), t)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.machine, "machine", "1RB1LB_1LA0LC_1RH1LD_1RD0RA", "rules of the machine, in the notation above")
	f.StringVar(&o.tape, "tape", "", "first symbols on the tape, like 11111, from the cell of the head to the right; all other cells are 0 (default: all 0)")
	f.IntVar(&o.cells, "cells", 200, "length of the tape in cells, 1 to 1048576; the head begins in its middle")
	f.Uint64Var(&o.limit, "limit", 10_000, "largest number of steps, up to 20000; a machine that has not halted by then is ended, which is no failure")
	return cmd
}

// symbols returns the cells of the tape: the symbols of --tape from the head in the middle on, and
// 0 in all other cells.
func (o *turingOptions) symbols() ([]int, error) {
	switch {
	case o.cells < 1 || o.cells > 1<<20:
		return nil, fmt.Errorf("--cells %d: want 1 to %d", o.cells, 1<<20)
	case o.limit < 1 || o.limit > turingLimit:
		return nil, fmt.Errorf("--limit %d: want 1 to %d", o.limit, turingLimit)
	case len(o.tape) > o.cells-o.cells/2:
		return nil, fmt.Errorf("--tape has %d symbols; %d fit between the head and the end of a tape of %d cells, see --cells", len(o.tape), o.cells-o.cells/2, o.cells)
	}
	tape := make([]int, o.cells)
	for i, c := range []byte(o.tape) {
		if c != '0' && c != '1' {
			return nil, fmt.Errorf("--tape %q: want 0 and 1 alone", o.tape)
		}
		tape[o.cells/2+i] = int(c - '0')
	}
	return tape, nil
}

// turingResult is the result of a Turing machine, and the virtual time that the NIC took for it.
type turingResult struct {
	redn.Result
	took time.Duration
}

// runTuring lets a NIC in virtual time execute a Turing machine. head is the number of the cell
// where the head begins, limit the largest number of steps.
func runTuring(machine []redn.State, tape []int, head int, limit redn.Operand) (*turingResult, error) {
	const statesAt, poolAt = 256, 2048
	m, err := redn.NewMachine(true)
	if err != nil {
		return nil, err
	}
	cells := make([]byte, 8*len(tape))
	at, err := m.Register(cells)
	if err != nil {
		return nil, err
	}
	t := redn.Turing{Vars: m.Data.At(0, redn.TuringVars), States: m.Data.At(statesAt, poolAt-statesAt), Tape: at, Limit: limit}
	if t.Loop, err = m.Add("loop", redn.TuringBlocks); err != nil {
		return nil, err
	}
	if t.On, err = m.Add("on", redn.TuringOnBlocks); err != nil {
		return nil, err
	}
	pool := redn.NewPool(m.Data.At(poolAt, m.Data.Len-poolAt))
	if err := t.Build(pool); err != nil {
		return nil, err
	}
	copy(m.Memory[poolAt:], pool.Image())
	if err := t.Place(m.Memory, m.Memory[statesAt:], cells, machine, tape, head); err != nil {
		return nil, err
	}
	t.Start(m.Second)
	m.Main.Enable(m.Second)
	err = m.Run()
	r := &turingResult{t.Result(m.Memory, cells, len(tape)), time.Duration(m.Now)}
	if r.Head < 0 || r.Head >= len(tape) {
		return nil, fmt.Errorf("the machine has left the tape of %d cells after %d steps; give it more with --cells", len(tape), r.Steps)
	}
	return r, err
}

// String prints the tape, from the first to the last cell that is 1 or under the head.
func (r *turingResult) String() string {
	first, last := r.Head, r.Head
	for i, symbol := range r.Tape {
		if symbol != 0 {
			first, last = min(first, i), max(last, i)
		}
	}
	var b strings.Builder
	for _, symbol := range r.Tape[first : last+1] {
		fmt.Fprintf(&b, "%d", symbol)
	}
	how := either(r.Halted, "halts", "was ended")
	return fmt.Sprintf("the machine %s after %d steps and %v\n%s\n%s^\n", how, r.Steps, r.took, b.String(), strings.Repeat(" ", r.Head-first))
}
