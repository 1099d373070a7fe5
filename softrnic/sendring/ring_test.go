package sendring

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The transition table is as in the golden file.
func TestStates(t *testing.T) {
	var b strings.Builder
	for s, row := range moves {
		for e, to := range row {
			if to != State(s) {
				fmt.Fprintf(&b, "%-8s %-16s %s\n", State(s), eventNames[e], to)
			}
		}
	}
	golden.Check(t, "testdata/states.golden", b.String())
}

// fake is a NIC for one ring.
type fake struct {
	mem    []byte
	count  uint32
	posted []uint64
	reads  int
}

func (f *fake) Fetch(dst []byte, s verbs.SGE) bool {
	f.reads++
	return s.Addr+uint64(s.Length) <= uint64(len(f.mem)) && copy(dst, f.mem[s.Addr:]) == len(dst)
}
func (f *fake) Completions(uint32) (uint32, bool) { return f.count, true }
func (f *fake) Enable(wire.QPN, uint32) bool      { return false }

func (f *fake) EnableReceives(wire.QPN, uint32, bool) bool { return false }

func (f *fake) Executed(*Event) {}
func (f *fake) Post(wr *verbs.SendWR) error {
	f.posted = append(f.posted, wr.ID)
	return nil
}

// A ring executes no more than its budget and keeps no more entries in flight than it may; a NOP
// completes behind the request in front of it.
func TestBudgetAndOrder(t *testing.T) {
	f := &fake{mem: make([]byte, 8*BlockSize)}
	for i := range 8 {
		e := Entry{Op: Read, Flags: Signalled, NSGE: 1}
		if i%2 == 1 {
			e = Entry{Op: NOP, Flags: Signalled}
		}
		copy(f.mem[i*BlockSize:], e.AppendTo(nil))
	}
	r, err := New(5, Config{Blocks: 8, Prefetch: 4}, Costs{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	r.Enable(8)
	if ran, took := r.Run(f, 2); ran != 2 || took != 2*entryCost || f.reads != 4 {
		t.Errorf("%d entries in %v, %d blocks read", ran, took, f.reads)
	}
	if ran, _ := r.Run(f, 9); ran != 1 || r.State() != Full {
		t.Errorf("%d more, then %v", ran, r.State())
	}
	if _, _, ok := r.NextControl(); ok {
		t.Error("the NOP completes in front of the READ")
	}
	if !r.Completed(&verbs.WC{}) || r.State() != Ready {
		t.Errorf("READ completed: %v", r.State())
	}
	if wc, deliver, ok := r.NextControl(); !ok || !deliver || wc.ID != 1 || wc.Opcode != verbs.WCNop {
		t.Errorf("NOP %+v", wc)
	}
	if fmt.Sprint(f.posted) != "[0 2]" {
		t.Errorf("posted %v", f.posted)
	}
}

// A WAIT compares counts over the wrap of 32 bits, or of 16.
func TestCountsWrap(t *testing.T) {
	for _, c := range []struct {
		narrow    bool
		now, want uint32
		reached   bool
	}{
		{false, 5, 5, true},
		{false, 4, 5, false},
		{false, 2, 0xffff_ffff, true},
		{false, 0xffff_ffff, 2, false},
		{false, 1, 0x1_0001 & 0xffff, true},
		{false, 1, 0x10001, false},
		{true, 0x10001, 1, true},
		{true, 0x2fffe, 1, false},
		{true, 0x30001, 0xffff, true},
	} {
		r, err := New(5, Config{Blocks: 1, Counts16: c.narrow}, Costs{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.reached(c.now, c.want); got != c.reached {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// A WAIT holds what is behind it until the count is reached.
func TestWaitHolds(t *testing.T) {
	f := &fake{mem: make([]byte, 8*BlockSize)}
	copy(f.mem, (&Entry{Op: Wait, Count: 2}).AppendTo(nil))
	copy(f.mem[BlockSize:], (&Entry{Op: NOP}).AppendTo(nil))
	r, err := New(5, Config{Blocks: 8, Managed: true}, Costs{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	r.Enable(2)
	for count := range uint32(3) {
		f.count = count
		r.Counted(f)
		r.Run(f, 9)
		if want := []State{Waiting, Waiting, Idle}[count]; r.State() != want {
			t.Errorf("count %d: %v, want %v", count, r.State(), want)
		}
		// A managed ring reads an entry when it executes it.
		if want := []int{1, 1, 2}[count]; f.reads != want {
			t.Errorf("count %d: %d blocks were read, want %d", count, f.reads, want)
		}
	}
}
