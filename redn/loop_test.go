package redn_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// Places in the memory of a machine whose program counts the laps of a loop.
const (
	scratchAt = 160
	lapsAt    = 168
	poolAt    = 1024
)

// looped is a machine with a recycled loop.
type looped struct {
	*machine
	loop, on *redn.Queue
	pool     *redn.Pool
	l        *redn.Loop
}

func newLooped(t testing.TB, blocks, onBlocks int) *looped {
	t.Helper()
	m := &looped{machine: newMachine(t, true)}
	var err error
	if m.loop, err = m.Add("loop", blocks); err != nil {
		t.Fatal(err)
	}
	if m.on, err = m.Add("on", onBlocks); err != nil {
		t.Fatal(err)
	}
	m.pool = redn.NewPool(m.Data.At(poolAt, 1024))
	if m.l, err = m.loop.Recycle(m.pool, m.on); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *looped) word(off int) redn.Mem { return m.Data.At(off, 8) }

// start starts the loop, for the first time or again.
func (m *looped) start() {
	m.l.Start(m.enabled)
	m.main.Enable(m.enabled)
}

// A recycled loop that searches a table, is ended by a break and started again and again gives what
// the same loop in Go gives.
func TestRecycledAgreesWithGo(t *testing.T) {
	m := newLooped(t, verbstest.SearchBlocks, verbstest.SearchOnBlocks)
	data := m.Data.At(0, verbstest.LoopData)
	_, exit := m.l.Exit()
	if err := verbstest.Search(m.l, m.loop, m.on, data, exit); err != nil {
		t.Fatal(err)
	}
	m.start()
	if err := redn.Verify(nil, m.main, m.enabled, m.loop, m.on); err != nil {
		t.Fatal(err)
	}
	copy(m.Memory[poolAt:], m.pool.Image())
	rnd := rand.New(rand.NewPCG(1, 9))
	for i := range verbstest.Tries(100_000, 3_000) {
		if i > 0 {
			m.start()
		}
		want := verbstest.SearchInput(rnd, data, m.Memory)
		m.run()
		if got := verbstest.LoopEnd(m.Memory); got != want {
			t.Fatalf("run %d: the loop ends at %d, want %d", i, got, want)
		}
	}
}

// count appends a lap of the loop that counts its laps until the count is limit.
func (m *looped) count(limit redn.Operand) {
	m.loop.Add(sendring.Signalled, m.word(lapsAt), m.word(scratchAt), 1)
	m.l.Break(m.on, m.word(lapsAt), limit)
}

// laps returns how many laps the loop has run.
func (m *looped) laps() uint64 { return binary.LittleEndian.Uint64(m.Memory[lapsAt:]) }

// A recycled loop runs as many laps as it should, over the wrap of the 16 bits of its indexes and
// counts: a million with RDMALAB_LONG.
func TestRecycledLaps(t *testing.T) {
	m := newLooped(t, 16, 1)
	laps := verbstest.Tries(1_000_000, 50_000) // of 16 blocks
	m.count(redn.Operand(laps))
	if err := m.l.End(); err != nil {
		t.Fatal(err)
	}
	m.start()
	if err := redn.Verify(nil, m.main, m.enabled, m.loop, m.on); err != nil {
		t.Fatal(err)
	}
	copy(m.Memory[poolAt:], m.pool.Image())
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	for m.laps() < uint64(laps) {
		before := m.laps()
		if m.Settle(); m.laps() == before {
			break
		}
	}
	state, next := m.State(m.loop)
	if m.laps() != uint64(laps) || state != sendring.Idle || next != uint32(laps*16) {
		t.Errorf("%d laps of %d; the ring is %v at %d", m.laps(), laps, state, next)
	}
}

// Besides what its body does, a lap takes as many requests as in Table 2 of the paper.
func TestCostOfRecycled(t *testing.T) {
	m := newLooped(t, 16, 1)
	m.l.Break(m.on, m.word(lapsAt), 1)
	if err := m.l.End(); err != nil {
		t.Fatal(err)
	}
	if got, want := redn.CostOf(m.loop), (redn.Cost{Copies: 3, Atomics: 2, Controls: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A loop whose counts are not raised stops in its second lap, and Verify says so beforehand.
func TestRecycledWithoutAdd(t *testing.T) {
	m := newLooped(t, 16, 1)
	m.count(1000)
	m.l.EndWithoutAdd()
	if err := m.l.Close(); err != nil {
		t.Fatal(err)
	}
	m.start()
	err := redn.Verify(nil, m.main, m.enabled, m.loop, m.on)
	if err == nil || !strings.Contains(err.Error(), "no ADD has raised the count") {
		t.Errorf("verify: %v", err)
	}
	copy(m.Memory[poolAt:], m.pool.Image())
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	m.Settle()
	if state, next := m.State(m.loop); m.laps() != 2 || state != sendring.Idle || next != 32 {
		t.Errorf("%d laps; the ring is %v at %d", m.laps(), state, next)
	}
}

// Recycle and Close refuse what cannot work.
func TestRecycleRefuses(t *testing.T) {
	m := newLooped(t, 8, 1)
	if _, err := m.loop.Recycle(m.pool); err == nil {
		t.Error("a queue of another loop is accepted")
	}
	if _, err := m.main.Recycle(m.pool); err == nil {
		t.Error("a queue with a doorbell is accepted")
	}
	m.count(3)
	if err := m.l.End(); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("a lap that is too long: %v", err)
	}
}

// A loop that is unrolled ends where the same loop in Go ends, and its queue stops there.
func TestUnrolledAgreesWithGo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for i := range verbstest.Tries(100_000, 1_000) {
		m := newMachine(t, true)
		q, err := m.Add("unrolled", verbstest.UnrolledBlocks)
		if err != nil {
			t.Fatal(err)
		}
		pool := redn.NewPool(m.Data.At(verbstest.LoopPool, verbstest.LoopData-verbstest.LoopPool))
		if err := verbstest.Unrolled(pool, q, m.enabled, m.Data.At(0, verbstest.LoopData)); err != nil {
			t.Fatal(err)
		}
		m.main.Enable(q)
		if i < 10 {
			if err := redn.Verify(nil, m.main, m.enabled, q); err != nil {
				t.Fatal(err)
			}
		}
		copy(m.Memory[verbstest.LoopPool:], pool.Image())
		want, broken := verbstest.UnrolledInput(rnd, m.Memory)
		if err := m.Load(); err != nil {
			t.Fatal(err)
		}
		m.Settle()
		state, _ := m.State(q)
		if got := verbstest.LoopEnd(m.Memory); got != want || (state == sendring.Waiting) != broken {
			t.Fatalf("run %d: %d iterations, want %d; the ring is %v", i, got, want, state)
		}
	}
}

// An iteration takes as many requests as in Table 2, besides its body.
func TestCostOfUnrolled(t *testing.T) {
	m := newMachine(t, true)
	q, err := m.Add("unrolled", 64)
	if err != nil {
		t.Fatal(err)
	}
	const n = 8
	if _, err := q.Unrolled(redn.NewPool(m.Data.At(poolAt, 64)), m.enabled, n, redn.Held, 7, m.Data.At(8, 8), func(int) {}); err != nil {
		t.Fatal(err)
	}
	if got, want := redn.CostOf(q, m.enabled), (redn.Cost{Copies: n + 1, Atomics: n, Controls: 3 * n}); got != want { // 1: the NOP at the end
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := m.main.Unrolled(nil, m.enabled, 1, m.Data, 0, m.Data, nil); err == nil {
		t.Error("a break in a queue that reads ahead is accepted")
	}
}
