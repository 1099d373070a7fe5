package mem

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A place that was freed is used by one region again, however often the table is full.
func TestPlacesAreUsedOnce(t *testing.T) {
	tab, pd := newTable(t, 4)
	var live []*Region
	for range 4 {
		live = append(live, reg(t, tab, pd, 64, verbs.RemoteRead))
	}
	for round := range 20 {
		for range 2 {
			if err := tab.Dereg(live[0]); err != nil {
				t.Fatal(err)
			}
			live = live[1:]
		}
		for range 2 {
			live = append(live, reg(t, tab, pd, 64, verbs.RemoteRead))
		}
		for i, r := range live {
			b, fault := tab.Remote(pd, 1, r.RKey(), r.Base(), 64, verbs.RemoteRead)
			if fault != OK || &b.near()[0] != &r.buf[0] {
				t.Fatalf("round %d: the key of region %d leads to other memory (%v)", round, i, fault)
			}
		}
		if _, err := tab.Reg(pd, make([]byte, 64), 0); err == nil {
			t.Fatal("a fifth region")
		}
	}
}

// Nothing behind the last byte is inside; an empty piece may begin there.
func TestTheEndOfARegion(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 64, verbs.RemoteRead)
	for _, c := range []struct {
		off, n uint64
		want   Fault
	}{
		{0, 64, OK}, {63, 1, OK}, {64, 0, OK}, {0, 65, BadBounds}, {63, 2, BadBounds}, {64, 1, BadBounds}, {65, 0, BadBounds},
	} {
		b, fault := r.check(pd, r.Base()+c.off, c.n, verbs.RemoteRead)
		if fault != c.want || uint64(b.Len()) != c.n && fault == OK {
			t.Errorf("%d bytes at %d: %v, %d bytes", c.n, c.off, fault, b.Len())
		}
	}
	if _, fault := r.check(pd, r.Base()-1, 1, verbs.RemoteRead); fault != BadBounds {
		t.Errorf("a byte before: %v", fault)
	}
}

// A cut may be behind the first byte and before the last one; an empty copy has no plan.
func TestTheFirstAndTheLastCut(t *testing.T) {
	tab, _ := newTable(t, 0)
	calls, cut := 0, 0
	tab.SetTear(func(int) Tear { calls++; return Tear{Cut: cut} })
	for _, c := range []struct {
		cut  int
		va   uint64
		n    int
		want int // 0: not torn
	}{
		{1, 63, 65, 1}, {64, 64, 65, 64}, {65, 64, 65, 0}, {0, 64, 65, 0}, {63, 64, 65, 0}, {1, 64, 65, 0},
	} {
		cut = c.cut
		if tr, ok := tab.PlanTear(c.va, c.n); ok != (c.want > 0) || ok && tr.Cut != c.want {
			t.Errorf("cut at %d of %d bytes at %d: %+v, %v", c.cut, c.n, c.va, tr, ok)
		}
	}
	calls = 0
	if _, ok := tab.PlanTear(0, 0); ok || calls != 0 {
		t.Error("an empty copy was planned")
	}
}
