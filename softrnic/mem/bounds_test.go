package mem

import (
	"errors"
	"math"
	"math/rand/v2"
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

// The table is full at its bound and not before, also when some places are never used.
func TestTheTableIsFull(t *testing.T) {
	tab, pd := newTable(t, 3)
	unusable := -1 // a place whose keys would be the same
	for seed := uint64(0); unusable < 0; seed++ {
		k := newKeySpace(rand.New(rand.NewPCG(seed, 2)))
		o := k.other()
		for i := range uint32(1 << 14) {
			if o.toKey(i) == k.toKey(i) {
				tab.local, tab.remote, unusable = o, k, int(i)
				break
			}
		}
	}
	tab.max, tab.count = unusable+1, unusable // all places before it are in use
	tab.slots = make([]slot, unusable)
	for i := range tab.slots {
		tab.slots[i].region = &Region{}
	}
	last := reg(t, tab, pd, 1, allAccess)
	if int(last.index) != unusable+1 {
		t.Errorf("place %d, want the one behind %d", last.index, unusable)
	}
	if _, err := tab.Reg(pd, []byte{1}, 0); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := tab.AllocWindow(pd); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("a window too many: %v", err)
	}
	if err := tab.Dereg(last); err != nil {
		t.Fatal(err)
	}
	if w := newWindow(t, tab, pd); w.index != last.index || w.RKey() == last.RKey() {
		t.Errorf("window at %d with the key %#x, the region had %d and %#x", w.index, w.RKey(), last.index, last.RKey())
	}
}

// Protection domains end at their bound; number 0 is none, and numbers are reused after all
// others.
func TestTheLastDomain(t *testing.T) {
	tab := New(rand.New(rand.NewPCG(1, 2)), 0)
	tab.nextPD = math.MaxUint32 - 1
	for i := range maxPDs {
		pd, err := tab.AllocPD()
		if want := []PD{math.MaxUint32, 1, 2}[min(i, 2)]; err != nil || pd == 0 || i < 3 && pd != want {
			t.Fatalf("domain %d is %d, %v", i, pd, err)
		}
	}
	if _, err := tab.AllocPD(); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("one too many: %v", err)
	}
	if err := tab.DeallocPD(7); err != nil {
		t.Fatal(err)
	}
	tab.nextPD = 3
	if pd, err := tab.AllocPD(); pd != 7 || err != nil {
		t.Errorf("domain %d, %v; want the one that is free", pd, err)
	}
}

// A window that is not bound, and a region that is gone, keep no memory alive and open nothing, also
// if their key was looked up before.
func TestNothingIsKept(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 64, allAccess|verbs.MWBind)
	w := newWindow(t, tab, pd)
	key := verbs.NextRKey(w.RKey())
	if f := tab.Bind(pd, testQP, key, verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	if _, f := tab.Remote(pd, testQP, key, r.Base(), 8, verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	tab.UnbindFrom(r)
	if _, f := tab.Remote(pd, testQP, key, r.Base(), 8, verbs.RemoteRead); f != BadKey {
		t.Errorf("the key opens memory: %v", f)
	}
	if tab.slots[w.index].region != nil {
		t.Error("the window still has the memory")
	}
	if err := tab.Dereg(r); err != nil {
		t.Fatal(err)
	}
	if tab.slots[r.index].region != nil || tab.lastLocal == r || tab.lastRemote == r {
		t.Error("the table still has the region")
	}
}

// No bytes are read and written wherever they are.
func TestNoBytes(t *testing.T) {
	var p Piece
	if !p.Read(nil, 0) || !p.Write(nil, 0) || p.Len() != 0 {
		t.Error("no bytes are not there")
	}
	p.r = &Region{far: &pages{}}
	if !p.Read(nil, 0) || !p.Write(nil, 0) {
		t.Error("no bytes of far memory are not there")
	}
}

// New rights count at once, also for keys that were looked up before; what is refused changes
// nothing.
func TestRereg(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 64, verbs.LocalWrite|verbs.MWBind)
	open := func() bool {
		_, f := tab.Remote(pd, testQP, r.RKey(), r.Base(), 8, verbs.RemoteRead)
		return f == OK
	}
	if open() {
		t.Fatal("open before")
	}
	if err := tab.Rereg(r, verbs.LocalWrite|verbs.RemoteRead|verbs.MWBind); err != nil || !open() {
		t.Errorf("%v, open %v", err, open())
	}
	if err := tab.Rereg(r, verbs.RemoteWrite); !errors.Is(err, verbs.ErrInvalid) || !open() {
		t.Errorf("%v, open %v", err, open())
	}
	w := newWindow(t, tab, pd)
	if f := tab.Bind(pd, testQP, verbs.NextRKey(w.RKey()), verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	if err := tab.Rereg(r, 0); !errors.Is(err, verbs.ErrBusy) || !open() {
		t.Errorf("below a window: %v", err)
	}
	tab.UnbindFrom(r)
	other, _ := newTable(t, 0)
	if err := other.Rereg(r, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("in another table: %v", err)
	}
	if err := tab.Dereg(r); err != nil {
		t.Fatal(err)
	}
	if err := tab.Rereg(r, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("deregistered: %v", err)
	}
}

// A piece of a region of this process is the region's bytes, from its offset on.
func TestNearBytes(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 64, allAccess)
	p, f := tab.Remote(pd, testQP, r.RKey(), r.Base()+8, 16, verbs.RemoteWrite)
	if f != OK || !p.Write([]byte("near"), 3) || string(r.buf[11:15]) != "near" {
		t.Errorf("%v, %q", f, r.buf[8:24])
	}
	var got [4]byte
	if !p.Read(got[:], 3) || string(got[:]) != "near" {
		t.Errorf("read %q", got)
	}
}
