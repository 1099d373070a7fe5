package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// memoryBug is a memory server's NIC that changes a word without a request: some requests after an
// atomic or WRITE of the word, it writes the word again, as a stale or duplicated packet would.
type memoryBug struct {
	simnet.Node
	run *lockRun
	// later returns the value that is written some requests after this request; false: none is.
	later func(f *wire.Frame, word uint64) (uint64, bool)
	wait  int // number of requests before the word is written

	due  []belated
	done int
}

type belated struct {
	word  *lockWord
	value uint64
	in    int
}

func (b *memoryBug) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	b.Node.Frame(now, port, f, out)
	var fr wire.Frame
	if wire.ParseFrame(f.Data, &fr) != nil || !wire.CheckICRC(f.Data) || fr.BTH.DestQP < 2 {
		return
	}
	w := b.run.wordAt(&fr)
	if w == nil {
		return
	}
	kept := b.due[:0]
	for _, d := range b.due {
		if d.in--; d.in > 0 {
			kept = append(kept, d)
			continue
		}
		if v, ok := d.word.load(wordOff); ok && v != d.value {
			b.done++
			_ = d.word.mr.Store64(d.word.base+wordOff, d.value)
		}
	}
	b.due = kept
	now8, ok := w.load(wordOff)
	if !ok {
		return
	}
	if v, ok := b.later(&fr, now8); ok && len(b.due) == 0 {
		b.due = append(b.due, belated{w, v, b.wait})
	}
}

// wordAt returns the word that a request accesses.
func (r *lockRun) wordAt(f *wire.Frame) *lockWord {
	va, key := f.RETH.VA, f.RETH.RKey
	switch f.BTH.Opcode {
	case wire.RCCmpSwap, wire.RCFetchAdd:
		va, key = f.AtomicETH.VA, f.AtomicETH.RKey
	case wire.RCWriteOnly:
	default:
		return nil
	}
	for _, w := range r.words {
		if w.mr != nil && key == w.mr.RKey() && va == w.mr.Addr()+uint64(w.base)+wordOff {
			return w
		}
	}
	return nil
}

// runWithBug runs a seed of locks with a bug in the memory servers. plant gets the run when the
// first node is made.
func runWithBug(t *testing.T, seed uint64, blind bool, plant func(r *lockRun, n simnet.Node) simnet.Node) Report {
	t.Helper()
	s := mustFind(t, "locks-forward")
	var r *lockRun
	s.run = func(e *env) error {
		return new(lockRun).runWith(e, modeForward, func(run *lockRun) { r, run.blind = run, blind })
	}
	return s.Run(seed, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if !strings.HasPrefix(name, "ms") {
			return n
		}
		return plant(r, n)
	}})
}

// lockBug is a bug of a memory server's NIC.
type lockBug struct {
	name  string
	later func(f *wire.Frame, word uint64) (uint64, bool)
	wait  int
	in    func(f *wire.Frame) bool
	out   func(f *wire.Frame) bool
	quiet bool // the histories alone do not show it, because they only have the words
	slow  bool // clients wait long for answers that never come
}

func lockBugs() []lockBug {
	swapped := func(f *wire.Frame, word uint64) (uint64, bool) {
		return f.AtomicETH.SwapOrAdd, f.BTH.Opcode == wire.RCCmpSwap && word == f.AtomicETH.SwapOrAdd
	}
	return []lockBug{
		{name: "a CAS is done again later", later: swapped, wait: 3},
		{name: "a stale WRITE comes back", wait: 4, later: func(f *wire.Frame, _ uint64) (uint64, bool) {
			return padded(f.Payload), f.BTH.Opcode == wire.RCWriteOnly && len(f.Payload) == 8
		}},
		{name: "a FETCH_ADD is done twice", wait: 1, later: func(f *wire.Frame, word uint64) (uint64, bool) {
			return word + f.AtomicETH.SwapOrAdd, f.BTH.Opcode == wire.RCFetchAdd
		}},
		{name: "a word is mirrored", in: func(f *wire.Frame) bool {
			v := bits.ReverseBytes64(f.AtomicETH.SwapOrAdd)
			changed := f.BTH.Opcode == wire.RCCmpSwap && v != f.AtomicETH.SwapOrAdd
			f.AtomicETH.SwapOrAdd = v
			return changed
		}},
		{name: "a release is answered and not done", slow: true, in: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCCmpSwap || f.AtomicETH.SwapOrAdd != 0 {
				return false
			}
			f.AtomicETH.SwapOrAdd = f.AtomicETH.Compare
			return true
		}},
		{name: "a failing CAS is answered as if it had worked", out: func(f *wire.Frame) bool {
			changed := f.BTH.Opcode == wire.RCAtomicAck && f.AtomicAck != 0
			f.AtomicAck = 0
			return changed
		}},
		{name: "a CAS is done whatever the word is", in: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCCmpSwap || f.AtomicETH.SwapOrAdd == 0 {
				return false
			}
			f.BTH.Opcode = wire.RCFetchAdd // the answer is correct, the word in memory is not
			return true
		}},
		{name: "a node is not what was written", quiet: true, in: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCWriteOnly || len(f.Payload) <= 8 || f.RETH.VA%areaBytes != nodeOff {
				return false
			}
			f.Payload[len(f.Payload)-1] ^= 1
			return true
		}},
	}
}

// Each of these bugs is found by the check of the memory or of the histories, and by the histories
// alone if the memory is not checked. A run that succeeds therefore proves something.
func TestPlantedLockBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, bug := range lockBugs() {
		for _, blind := range []bool{false, true} {
			if blind && bug.quiet {
				continue
			}
			t.Run(fmt.Sprintf("%s, blind=%v", bug.name, blind), func(t *testing.T) {
				testLockBug(t, bug, blind)
			})
		}
	}
}

func testLockBug(t *testing.T, bug lockBug, blind bool) {
	planted, caught := 0, 0
	how := make(map[string]int)
	const least = 3
	enough := verbstest.Tries(8, least)
	if bug.slow {
		enough = least
	}
	for seed := uint64(1); seed <= 8 && planted < enough; seed++ {
		done := 0
		r := runWithBug(t, seed, blind, func(run *lockRun, n simnet.Node) simnet.Node {
			if bug.later != nil {
				return &counted{&memoryBug{Node: n, run: run, later: bug.later, wait: bug.wait}, &done}
			}
			return &counted{&tamper{Node: n, in: bug.in, out: bug.out}, &done}
		})
		if done == 0 {
			continue
		}
		planted++
		if r.Err == nil {
			t.Logf("seed %d: %d changes, not caught (%s)", seed, done, r.Plan)
			continue
		}
		caught++
		how[kindOf(r.Err)]++
	}
	t.Logf("%d planted, %d caught: %v", planted, caught, how)
	if planted < least || caught != planted {
		t.Errorf("caught %d of %d", caught, planted)
	}
}

// counted counts how often the bugs of both servers changed something.
type counted struct {
	simnet.Node
	done *int
}

func (c *counted) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	c.Node.Frame(now, port, f, out)
	switch n := c.Node.(type) {
	case *memoryBug:
		*c.done += n.done
		n.done = 0
	case *tamper:
		*c.done += n.done
		n.done = 0
	}
}

func kindOf(err error) string {
	var broken *history.BrokenError
	var changed *history.ChangedError
	switch {
	case errors.As(err, &broken):
		return "history"
	case errors.As(err, &changed):
		return "memory"
	case strings.Contains(err.Error(), "mutual exclusion"):
		return "mutual exclusion"
	}
	return "client"
}

// padded returns the word that the payload of a WRITE sets.
func padded(b []byte) uint64 {
	var w [8]byte
	copy(w[:], b)
	return binary.NativeEndian.Uint64(w[:])
}
