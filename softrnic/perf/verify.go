package perf

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// planVerify returns the plan of the test verify, which checks each one-sided operation in a step
// of its own.
func (c *Config) planVerify() plan {
	run := func(s *session, res *Result) error {
		v := &verification{s: s, c: c, res: res}
		for _, step := range verifySteps {
			start := s.rt.Now()
			err := step.f(v)
			check := Check{Name: step.name, OK: err == nil, Took: s.rt.Now().Sub(start)}
			if err != nil {
				check.Err = err.Error()
			}
			res.Checks = append(res.Checks, check)
			res.Elapsed += check.Took
			if err != nil {
				return err
			}
		}
		return nil
	}
	// Slot 0 of the peer is for data. The words of the atomics follow it.
	c.Size = (c.Size + atomicSize - 1) &^ (atomicSize - 1)
	return plan{local: 2 * c.Size, slot: c.Size, bytes: c.Size + atomicBytes, run: run}
}

// verification is a run of the test verify.
type verification struct {
	s   *session
	c   *Config
	res *Result
}

var verifySteps = []struct {
	name string
	f    func(v *verification) error
}{
	{"WRITE", (*verification).write},
	{"READ", (*verification).read},
	{"CAS", (*verification).cas},
	{"FAA", (*verification).faa},
}

// write WRITEs two messages to the same memory. The next step, read, checks that the
// second one is there.
func (v *verification) write() error {
	zero := func(int) int { return 0 }
	for msg := range 2 {
		v.s.pat.Fill(v.s.slot(0), uint64(msg))
		j := v.s.transfer("write", verbs.OpWrite, 1, msg, zero, zero)
		j.every = 1
		if err := v.s.run(j); err != nil {
			return err
		}
	}
	return nil
}

func (v *verification) read() error {
	clear(v.s.slot(1))
	j := v.s.transfer("read", verbs.OpRead, 1, 0, func(int) int { return 1 }, func(int) int { return 0 })
	j.every = 1
	if err := v.s.run(j); err != nil {
		return err
	}
	v.res.Verified += uint64(v.c.Size)
	return v.s.check("read back of write", v.s.slot(1), 1)
}

// cas does one CAS with the right compare value and one with a wrong value.
func (v *verification) cas() error {
	const first, second = 0x1122334455667788, 0x99aabbccddeeff00
	if err := v.s.writeWord(0, v.c.Size+casWord, first); err != nil {
		return err
	}
	for i, want := range []uint64{first, second} {
		got, err := v.atomic(verbs.OpCmpSwap, v.c.Size+casWord, first, second)
		if err != nil {
			return err
		}
		if got != want {
			return &DataError{Op: "CMP_SWAP", Msg: uint64(i), Offset: -1, Got: got, Want: want}
		}
	}
	v.res.VerifiedAtomics += 2
	return v.expectWord(v.c.Size+casWord, second)
}

func (v *verification) faa() error {
	const start, add = 1 << 40, 12345
	if err := v.s.writeWord(0, v.c.Size+faaWord, start); err != nil {
		return err
	}
	got, err := v.atomic(verbs.OpFetchAdd, v.c.Size+faaWord, add, 0)
	if err != nil {
		return err
	}
	if got != start {
		return &DataError{Op: "FETCH_ADD", Offset: -1, Got: got, Want: start}
	}
	v.res.VerifiedAtomics++
	return v.expectWord(v.c.Size+faaWord, start+add)
}

// atomic executes one atomic and returns the original value.
func (v *verification) atomic(op verbs.WROpcode, off int, compareAdd, swap uint64) (uint64, error) {
	sge := v.s.sges[0]
	sge.Length = atomicSize
	list := []verbs.SGE{sge}
	err := v.s.run(stream{op: "atomic", total: 1, depth: 1, every: 1, wr: func(_ int, wr *verbs.SendWR) {
		wr.Op, wr.SGL, wr.CompareAdd, wr.Swap = op, list, compareAdd, swap
		aim(wr, v.s.far.memory, off)
	}})
	return nativeWord(v.s.local(sge)), err
}

func (v *verification) expectWord(off int, want uint64) error {
	got, err := v.s.readWord(1, off)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the word that the atomic left is wrong: %w", &DataError{Op: "read of word", Offset: -1, Got: got, Want: want})
	}
	return nil
}
