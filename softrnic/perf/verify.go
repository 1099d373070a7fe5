package perf

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// planVerify returns the plan of the test verify, which checks each one-sided operation in a step
// of its own.
func planVerify(c *Config) plan {
	run := func(s *session, res *Result) error {
		for _, step := range verifySteps {
			start := s.rt.Now()
			err := step.f(s, c, res)
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

var verifySteps = []struct {
	name string
	f    func(s *session, c *Config, res *Result) error
}{
	{"WRITE", verifyWrite},
	{"READ", verifyRead},
	{"CAS", verifyCAS},
	{"FAA", verifyFAA},
}

// verifyWrite WRITEs two messages to the same memory. The next step, verifyRead, checks that the
// second one is there.
func verifyWrite(s *session, c *Config, _ *Result) error {
	zero := func(int) int { return 0 }
	for msg := range 2 {
		s.pat.Fill(s.slot(0), uint64(msg))
		j := s.transfer("write", verbs.OpWrite, 1, msg, zero, zero)
		j.every = 1
		if err := s.run(j); err != nil {
			return err
		}
	}
	return nil
}

func verifyRead(s *session, c *Config, res *Result) error {
	clear(s.slot(1))
	j := s.transfer("read", verbs.OpRead, 1, 0, func(int) int { return 1 }, func(int) int { return 0 })
	j.every = 1
	if err := s.run(j); err != nil {
		return err
	}
	res.Verified += uint64(c.Size)
	return s.check("read back of write", s.slot(1), 1)
}

// verifyCAS does one CAS with the right compare value and one with a wrong value.
func verifyCAS(s *session, c *Config, res *Result) error {
	const first, second = 0x1122334455667788, 0x99aabbccddeeff00
	if err := s.writeWord(0, c.Size+casWord, first); err != nil {
		return err
	}
	for i, want := range []uint64{first, second} {
		got, err := s.atomic(verbs.OpCmpSwap, c.Size+casWord, first, second)
		if err != nil {
			return err
		}
		if got != want {
			return &DataError{Op: "CMP_SWAP", Msg: uint64(i), Offset: -1, Got: got, Want: want}
		}
	}
	res.VerifiedAtomics += 2
	return s.expectWord(c.Size+casWord, second)
}

func verifyFAA(s *session, c *Config, res *Result) error {
	const start, add = 1 << 40, 12345
	if err := s.writeWord(0, c.Size+faaWord, start); err != nil {
		return err
	}
	got, err := s.atomic(verbs.OpFetchAdd, c.Size+faaWord, add, 0)
	if err != nil {
		return err
	}
	if got != start {
		return &DataError{Op: "FETCH_ADD", Offset: -1, Got: got, Want: start}
	}
	res.VerifiedAtomics++
	return s.expectWord(c.Size+faaWord, start+add)
}

// atomic executes one atomic and returns the original value.
func (s *session) atomic(op verbs.WROpcode, off int, compareAdd, swap uint64) (uint64, error) {
	sge := s.sges[0]
	sge.Length = atomicSize
	list := []verbs.SGE{sge}
	err := s.run(stream{op: "atomic", total: 1, depth: 1, every: 1, wr: func(_ int, wr *verbs.SendWR) {
		wr.Op, wr.SGL, wr.CompareAdd, wr.Swap = op, list, compareAdd, swap
		aim(wr, s.far.memory, off)
	}})
	return nativeWord(s.local(sge)), err
}

func (s *session) expectWord(off int, want uint64) error {
	got, err := s.readWord(1, off)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the word that the atomic left is wrong: %w", &DataError{Op: "read of word", Offset: -1, Got: got, Want: want})
	}
	return nil
}
