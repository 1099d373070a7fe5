package perf

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// atomicSize is the length of the operand of an atomic in bytes.
const atomicSize = 8

// Offsets of the words that atomics work on, in the peer's memory. Both take atomicBytes together.
const (
	faaWord     = 0
	casWord     = 8
	atomicBytes = 16
)

// atomics is a series of CAS and FETCH_ADD on two words of the peer. No other client accesses these
// words, so each original value can be predicted.
type atomics struct {
	s     *session
	total int
	first int // first local slot for original values
	at    int // offset of the two words in the peer's memory
	// cas reports whether message k of the series is a CAS (true) or a FETCH_ADD (false).
	cas func(k int) bool

	sum    uint64 // sum of the addends of completed FETCH_ADDs
	adds   int    // number of completed FETCH_ADDs
	swaps  int    // number of completed CAS
	posted uint64 // number of posted CAS
}

// addend returns the addend of FETCH_ADD k. It is never 0, so a FETCH_ADD that was lost or executed
// twice changes the sum.
func (a *atomics) addend(k int) uint64 { return a.s.pat.base(uint64(k))&0xffff | 1 }

// token returns the value that the CAS word has after n CAS. Each CAS compares with one token and
// writes the next.
func (a *atomics) token(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	return a.s.pat.base(^n)
}

func (a *atomics) stream(verify bool) stream {
	s := a.s
	depth := min(s.cfg.Depth, len(s.sges)-a.first)
	j := stream{op: "atomic", total: a.total, depth: depth, every: min(s.cfg.SignalEvery, depth)}
	j.wr = func(k int, wr *verbs.SendWR) {
		i := a.first + k%depth
		wr.SGL = s.sges[i : i+1]
		if a.cas(k) {
			wr.Op, wr.CompareAdd, wr.Swap = verbs.OpCmpSwap, a.token(a.posted), a.token(a.posted+1)
			a.posted++
			aim(wr, s.far.memory, a.at+casWord)
			return
		}
		wr.Op, wr.CompareAdd = verbs.OpFetchAdd, a.addend(k)
		aim(wr, s.far.memory, a.at+faaWord)
	}
	j.done = func(k int) error {
		got := nativeWord(s.slot(a.first + k%depth))
		op, want := "FETCH_ADD", a.sum
		if a.cas(k) {
			op, want = "CMP_SWAP", a.token(uint64(a.swaps))
			a.swaps++
		} else {
			a.sum += a.addend(k)
			a.adds++
		}
		if verify && got != want {
			return &DataError{Op: op, Msg: uint64(k), Offset: -1, Got: got, Want: want}
		}
		return nil
	}
	return j
}

// settle READs the two words at the end and compares them with the expected values.
func (a *atomics) settle(res *Result) error {
	s := a.s
	faa, err := s.readWord(a.first, a.at+faaWord)
	if err != nil {
		return err
	}
	cas, err := s.readWord(a.first, a.at+casWord)
	if err != nil {
		return err
	}
	if faa != a.sum {
		return &DataError{Op: "sum of FETCH_ADDs to", Msg: uint64(a.adds), Offset: -1, Got: faa, Want: a.sum}
	}
	if want := a.token(uint64(a.swaps)); cas != want {
		return &DataError{Op: "word after CMP_SWAPs to", Msg: uint64(a.swaps), Offset: -1, Got: cas, Want: want}
	}
	res.VerifiedAtomics += uint64(a.adds + a.swaps)
	return nil
}

func nativeWord(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// readWord READs 8 bytes of the peer at `off` through a local slot.
func (s *session) readWord(slot, off int) (uint64, error) {
	sge := s.sges[slot]
	sge.Length = atomicSize
	err := s.once("read of a word", verbs.OpRead, sge, s.far.memory, off)
	return nativeWord(s.local(sge)), err
}

// writeWord WRITEs v to 8 bytes of the peer at `off` through a local slot.
func (s *session) writeWord(slot, off int, v uint64) error {
	sge := s.sges[slot]
	sge.Length = atomicSize
	binary.NativeEndian.PutUint64(s.local(sge), v)
	return s.once("write of a word", verbs.OpWrite, sge, s.far.memory, off)
}

// planAtomic returns the plan of the bandwidth and latency tests of atomics.
func (c *Config) planAtomic() plan {
	run := func(s *session, res *Result) error {
		a := &atomics{s: s, total: c.Iters, cas: func(int) bool { return c.Type == "cas" }}
		j := a.stream(c.Verify)
		var err error
		if c.Test == AtomicLat {
			err = s.latency(j, res)
		} else {
			m := &meter{s: s, total: c.Iters}
			err = m.timed(j, res)
		}
		if err != nil || !c.Verify {
			return err
		}
		return a.settle(res)
	}
	return plan{local: c.Depth * atomicSize, slot: atomicSize, bytes: atomicBytes, run: run}
}
