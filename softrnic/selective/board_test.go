package selective

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/board.golden")

// The transition table of a PSN is its picture in testdata/board.golden.
func TestBoardTable(t *testing.T) {
	var b strings.Builder
	for s := range moves {
		for e, to := range moves[s] {
			if to != State(s) {
				fmt.Fprintf(&b, "%-8s %-20s → %s\n", State(s), Event(e), to)
			}
		}
	}
	const file = "testdata/board.golden"
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the table is\n%s", b.String())
	}
}

// naive is a scoreboard without a ring: the state of each PSN since the first.
type naive struct {
	states []State
	first  int
}

// A scoreboard does what a list of states does, for any order of events and any number of PSNs.
func TestBoardIsAListOfStates(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, n := NewBoard(1+r.IntN(20)), naive{}
		for step := range 400 {
			switch used := len(n.states) - n.first; {
			case r.IntN(3) == 0 && used < b.Size():
				k := 1 + r.IntN(b.Size()-used)
				b.Send(clock.Time(step), used, k, r.IntN(2) == 0)
				for range k {
					n.states = append(n.states, Flying)
				}
			case used > 0 && r.IntN(4) > 0:
				off, e := r.IntN(used), Event(r.IntN(len(eventNames)))
				b.On(off, e)
				n.states[n.first+off] = moves[n.states[n.first+off]][e]
			default:
				settled := used > 0 && n.states[n.first] == Settled
				if b.Pop() != settled {
					t.Fatalf("seed %d step %d: Pop, want %v", seed, step, settled)
				}
				if settled {
					n.first++
				}
			}
			var count [len(stateNames)]int
			for i, s := range n.states[n.first:] {
				count[s]++
				if b.At(i).State != s {
					t.Fatalf("seed %d step %d: offset %d is %v, want %v", seed, step, i, b.At(i).State, s)
				}
			}
			if count != b.count || b.Used() != len(n.states)-n.first {
				t.Fatalf("seed %d step %d: counts %v of %d, want %v", seed, step, b.count, b.Used(), count)
			}
		}
	}
}

// A bitmap does what a set does: marks, runs and moves, beyond both ends of the ring.
func TestArrivalsAreASet(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		a, set, first := NewArrivals(1+r.IntN(200)), map[int]int{}, 0
		place := 0
		for step := range 300 {
			off := r.IntN(a.Size())
			switch r.IntN(4) {
			case 0:
				n := []int{1, r.IntN(10), r.IntN(2 * a.Size())}[r.IntN(3)]
				a.Advance(n)
				for k := range set {
					if k < first+n {
						delete(set, k)
					}
				}
				first += n
			default:
				_, has := set[first+off]
				if a.Mark(off) == has {
					t.Fatalf("seed %d step %d: Mark(%d), had %v", seed, step, off, has)
				}
				place = a.Place(off)
				if !has {
					set[first+off] = place
				}
			}
			run, most := 0, r.IntN(40)
			for i := off - 1; i >= 0 && run < most; i-- {
				if _, has := set[first+i]; !has {
					break
				}
				run++
			}
			if got := a.Run(off, most); got != run || a.Count() != len(set) || a.counted() != len(set) {
				t.Fatalf("seed %d step %d: run %d of %d marks (%d bits), want %d of %d", seed, step, got, a.Count(), a.counted(), run, len(set))
			}
			for k, at := range set {
				if !a.Has(k-first) || a.Place(k-first) != at {
					t.Fatalf("seed %d step %d: %d is missing, or has moved", seed, step, k-first)
				}
			}
			if a.Has(-1) || a.Has(a.Size()) {
				t.Fatal("a packet out of reach has arrived")
			}
		}
	}
}
