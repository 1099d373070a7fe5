package mem

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A copy is torn at a line boundary of the address inside the copy, or not at all.
func TestTearsAreAtLines(t *testing.T) {
	tab, _ := newTable(t, 0)
	r := rand.New(rand.NewPCG(3, 4))
	if _, ok := tab.PlanTear(0, 1000); ok {
		t.Fatal("torn without a plan")
	}
	tab.SetTear(SeededTear(1, 1, time.Millisecond))
	torn := 0
	for range 10000 {
		va, n := r.Uint64(), r.IntN(5000)
		tr, ok := tab.PlanTear(va, n)
		if !ok {
			continue
		}
		torn++
		if tr.Cut <= 0 || tr.Cut >= n || (va+uint64(tr.Cut))%LineSize != 0 || tr.Pause < 0 || tr.Pause >= time.Millisecond {
			t.Fatalf("tear %+v of %d bytes at %#x", tr, n, va)
		}
	}
	if torn < 9000 {
		t.Errorf("only %d of 10000 copies torn", torn)
	}
	tab.SetTear(nil)
	if _, ok := tab.PlanTear(0, 1000); ok {
		t.Error("torn after the plan was taken away")
	}
}

// The same seed and the same copies give the same tears.
func TestTearsComeFromTheSeed(t *testing.T) {
	plan := func(seed uint64) (out []Tear) {
		f := SeededTear(seed, 0.5, time.Second)
		for n := range 200 {
			out = append(out, f(n))
		}
		return out
	}
	a, b, c := plan(1), plan(1), plan(2)
	same := true
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("copy %d: %+v and %+v", i, a[i], b[i])
		}
		same = same && a[i] == c[i]
	}
	if same {
		t.Error("another seed gives the same tears")
	}
}
