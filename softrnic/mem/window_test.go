package mem

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const testQP wire.QPN = 9

func newWindow(t testing.TB, tab *Table, pd PD) *Window {
	t.Helper()
	w, err := tab.AllocWindow(pd)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A window gives access to its piece of the region, with its rights, to the peer of its queue pair,
// until it is invalidated. It is then bound again with another key.
func TestWindow(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 1000, verbs.LocalWrite|verbs.MWBind)
	w := newWindow(t, tab, pd)
	key := verbs.NextRKey(w.RKey())
	piece := verbs.SGE{Addr: r.Base() + 100, Length: 50, LKey: r.LKey()}
	if f := tab.Bind(pd, testQP, key, piece, verbs.RemoteRead|verbs.RemoteWrite); f != OK || !w.Bound() || w.RKey() != key {
		t.Fatalf("bind: %v", f)
	}
	for name, c := range map[string]struct {
		qp   wire.QPN
		key  uint32
		va   uint64
		n    uint32
		need verbs.Access
		want Fault
	}{
		"whole":            {testQP, key, r.Base() + 100, 50, verbs.RemoteRead, OK},
		"write":            {testQP, key, r.Base() + 149, 1, verbs.RemoteWrite, OK},
		"before":           {testQP, key, r.Base() + 99, 1, verbs.RemoteRead, BadBounds},
		"behind":           {testQP, key, r.Base() + 149, 2, verbs.RemoteRead, BadBounds},
		"atomic":           {testQP, key, r.Base() + 104, 8, verbs.RemoteAtomic, BadAccess},
		"other queue pair": {testQP + 1, key, r.Base() + 100, 1, verbs.RemoteRead, BadKey},
		"no window's":      {0, key, r.Base() + 100, 1, verbs.RemoteRead, BadKey},
		"other tag":        {testQP, key + 1, r.Base() + 100, 1, verbs.RemoteRead, BadKey},
		"region's own key": {testQP, r.RKey(), r.Base() + 100, 1, verbs.RemoteRead, BadAccess},
	} {
		b, f := tab.Remote(pd, c.qp, c.key, c.va, c.n, c.need)
		if f != c.want || (f == OK && &b.near()[0] != &r.buf[c.va-r.Base()]) {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
	}
	if _, f := tab.Local(pd, verbs.SGE{Addr: r.Base() + 100, Length: 1, LKey: key}, false); f != BadKey {
		t.Errorf("a window's key used locally: %v", f)
	}
	if err := tab.Dereg(r); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("deregistered below a window: %v", err)
	}
	if f := tab.Invalidate(pd, testQP, r.RKey(), false); f != BadAccess || !r.Valid() {
		t.Errorf("region below a window invalidated: %v", f)
	}
	if f := tab.Bind(pd, testQP, verbs.NextRKey(key), piece, verbs.RemoteRead); f != BadKey {
		t.Errorf("bound twice: %v", f)
	}
	if f := tab.Invalidate(pd, testQP+1, key, true); f != BadKey {
		t.Errorf("invalidated by another queue pair: %v", f)
	}
	if f := tab.Invalidate(pd, testQP, key, true); f != OK || w.Bound() {
		t.Errorf("invalidate: %v", f)
	}
	if f := tab.Invalidate(pd, testQP, key, true); f != BadKey {
		t.Errorf("invalidated twice: %v", f)
	}
	if _, f := tab.Remote(pd, testQP, key, r.Base()+100, 1, verbs.RemoteRead); f != BadKey {
		t.Errorf("after the invalidate: %v", f)
	}
	if f := tab.Bind(pd, testQP, key, piece, verbs.RemoteRead); f != BadKey {
		t.Errorf("bound with the old key: %v", f)
	}
	if f := tab.Bind(pd, testQP+1, verbs.NextRKey(key), piece, verbs.RemoteRead); f != OK {
		t.Errorf("bound again: %v", f)
	}
	tab.UnbindAll(testQP)
	if !w.Bound() {
		t.Error("unbound by a stranger's end")
	}
	tab.UnbindAll(testQP + 1)
	if w.Bound() || tab.bound != 0 {
		t.Error("bound to a queue pair that is gone")
	}
	if err := tab.Dereg(r); err != nil {
		t.Error(err)
	}
}

// Invalid binds are refused (IBTA 10.6.7.2.1).
func TestBindRefuses(t *testing.T) {
	tab, pd := newTable(t, 0)
	other, _ := tab.AllocPD()
	good := reg(t, tab, pd, 100, verbs.LocalWrite|verbs.MWBind)
	readOnly := reg(t, tab, pd, 100, verbs.MWBind)
	closed := reg(t, tab, pd, 100, allAccess)
	foreign := reg(t, tab, other, 100, verbs.LocalWrite|verbs.MWBind)
	w := newWindow(t, tab, pd)
	bound := newWindow(t, tab, pd)
	piece := func(r *Region) verbs.SGE { return verbs.SGE{Addr: r.Base(), Length: 100, LKey: r.LKey()} }
	if f := tab.Bind(pd, testQP, verbs.NextRKey(bound.RKey()), piece(good), verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	long, none, onWindow := piece(good), piece(good), piece(good)
	long.Length, none.Length, onWindow.LKey = 101, 0, bound.RKey()
	key := verbs.NextRKey(w.RKey())
	for name, c := range map[string]struct {
		pd     PD
		key    uint32
		piece  verbs.SGE
		access verbs.Access
		want   Fault
	}{
		"the present key":          {pd, w.RKey(), piece(good), verbs.RemoteRead, BadKey},
		"a region's key":           {pd, closed.RKey(), piece(good), verbs.RemoteRead, BadKey},
		"no region's key":          {pd, key ^ 1<<20, piece(good), verbs.RemoteRead, BadKey},
		"other domain":             {other, key, piece(good), verbs.RemoteRead, BadPD},
		"region of another domain": {pd, key, piece(foreign), verbs.RemoteRead, BadPD},
		"region without MWBind":    {pd, key, piece(closed), verbs.RemoteRead, BadAccess},
		"no local write":           {pd, key, piece(readOnly), verbs.RemoteWrite, BadAccess},
		"local right":              {pd, key, piece(good), verbs.LocalWrite, BadAccess},
		"too long":                 {pd, key, long, verbs.RemoteRead, BadBounds},
		"empty":                    {pd, key, none, verbs.RemoteRead, BadBounds},
		"window on a window":       {pd, key, onWindow, verbs.RemoteRead, BadKey},
	} {
		if f := tab.Bind(c.pd, testQP, c.key, c.piece, c.access); f != c.want || w.Bound() {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
	}
	if f := tab.Bind(pd, testQP, key, piece(readOnly), verbs.RemoteRead); f != OK {
		t.Errorf("reading needs no local write: %v", f)
	}
}

// Windows count against the limit of regions. A window that is freed has no valid key any more.
func TestWindowLife(t *testing.T) {
	tab, pd := newTable(t, 2)
	if _, err := tab.AllocWindow(pd + 1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("no such domain: %v", err)
	}
	r, w := reg(t, tab, pd, 8, verbs.MWBind), newWindow(t, tab, pd)
	if _, err := tab.AllocWindow(pd); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("third of two: %v", err)
	}
	key := verbs.NextRKey(w.RKey())
	if f := tab.Bind(pd, testQP, key, verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	if err := tab.DeallocWindow(w); err != nil {
		t.Fatal(err)
	}
	if err := tab.DeallocWindow(w); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("twice: %v", err)
	}
	if _, f := tab.Remote(pd, testQP, key, r.Base(), 1, verbs.RemoteRead); f != BadKey {
		t.Errorf("after dealloc: %v", f)
	}
	if f := tab.Bind(pd, testQP, verbs.NextRKey(key), verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, verbs.RemoteRead); f != BadKey {
		t.Errorf("bind after dealloc: %v", f)
	}
	if err := tab.Dereg(r); err != nil || tab.pds[pd] != 0 {
		t.Errorf("%v, %d regions", err, tab.pds[pd])
	}
}

// A deregistered region unbinds its windows of all owners, and no other windows.
func TestUnbindFrom(t *testing.T) {
	tab, pd := newTable(t, 0)
	r, other := reg(t, tab, pd, 100, verbs.LocalWrite|verbs.MWBind), reg(t, tab, pd, 100, verbs.LocalWrite|verbs.MWBind)
	var windows []*Window
	for i, of := range []*Region{r, r, other} {
		w := newWindow(t, tab, pd)
		if f := tab.Bind(pd, testQP+wire.QPN(i), verbs.NextRKey(w.RKey()), verbs.SGE{Addr: of.Base(), Length: 8, LKey: of.LKey()}, verbs.RemoteRead); f != OK {
			t.Fatal(f)
		}
		windows = append(windows, w)
	}
	tab.UnbindFrom(r)
	if windows[0].Bound() || windows[1].Bound() || !windows[2].Bound() {
		t.Errorf("bound: %v, %v and %v", windows[0].Bound(), windows[1].Bound(), windows[2].Bound())
	}
	if _, f := tab.Remote(pd, testQP, windows[0].RKey(), r.Base(), 1, verbs.RemoteRead); f != BadKey {
		t.Errorf("the window's key: %v", f)
	}
	if err := tab.Dereg(r); err != nil {
		t.Error(err)
	}
	tab.UnbindFrom(r) // freed again, after its region is gone
}

// A zero-based region begins at address 0; two of them differ by their keys.
func TestZeroBased(t *testing.T) {
	tab, pd := newTable(t, 0)
	a, err := tab.RegZero(pd, make([]byte, 64), allAccess)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tab.RegZero(pd, make([]byte, 64), allAccess)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Region{a, b} {
		got, f := tab.Remote(pd, testQP, r.RKey(), 8, 56, verbs.RemoteWrite)
		if f != OK || &got.near()[0] != &r.buf[8] || r.Base() != 0 {
			t.Errorf("%v", f)
		}
		if _, f := tab.Remote(pd, testQP, r.RKey(), 8, 57, verbs.RemoteWrite); f != BadBounds {
			t.Errorf("behind: %v", f)
		}
	}
}

// The keys of a table are a permutation that its seed chooses: no two are equal, and neighbours are
// far apart.
func TestKeySpace(t *testing.T) {
	for seed := range uint64(20) {
		k := newKeySpace(rand.New(rand.NewPCG(seed, 1)))
		near := 0
		last := k.toKey(0)
		seen := map[uint32]bool{last: true}
		for i := uint32(1); i < 1<<13; i++ {
			key := k.toKey(i)
			if seen[key] || key >= 1<<24 || k.fromKey(key) != i {
				t.Fatalf("seed %d: place %d has key %#x, which leads to %d", seed, i, key, k.fromKey(key))
			}
			seen[key] = true
			if d := int(key) - int(last); d > -1<<12 && d < 1<<12 {
				near++
			}
			last = key
		}
		if near > 40 { // by chance 2^13/2^11 = 4
			t.Errorf("seed %d: %d of 8191 neighbours are near each other", seed, near)
		}
		for _, i := range []uint32{1<<24 - 1, 1 << 23, 1 << 12, 1<<12 - 1} {
			if k.fromKey(k.toKey(i)) != i {
				t.Errorf("seed %d: place %#x is lost", seed, i)
			}
		}
	}
}

// Key 0 belongs to no region, and no place has an L_Key that equals its R_Key, for any permutation.
func TestPlacesNeverUsed(t *testing.T) {
	zeros, same := 0, 0
	for seed := uint64(0); zeros == 0 || same == 0; seed++ {
		k := newKeySpace(rand.New(rand.NewPCG(seed, 2)))
		o := k.other()
		for i := range uint32(1 << 14) {
			l, r := o.toKey(i), k.toKey(i)
			switch {
			case l == r:
				same++
			case l == 0 || r == 0:
				zeros++
			default:
				continue
			}
			tab, pd := newTable(t, 0)
			tab.local, tab.remote, tab.slots = o, k, make([]slot, i) // i is the next place
			m := reg(t, tab, pd, 1, allAccess)
			for key := range uint32(256) {
				if tab.lookupLocal(key) != nil || tab.lookupRemote(key) != nil {
					t.Fatalf("seed %d: key %d opens something", seed, key)
				}
			}
			if m.LKey() == m.RKey() || tab.lookupLocal(m.LKey()) != m || tab.lookupRemote(m.RKey()) != m {
				t.Fatalf("seed %d: keys %#x and %#x", seed, m.LKey(), m.RKey())
			}
		}
	}
}

// A key that leads to a place behind the last one gives no access and has no effect.
func TestKeysBehindTheTable(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 64, allAccess|verbs.MWBind)
	for i := range uint32(3) {
		key := tab.remote.toKey(uint32(len(tab.slots))+i) << 8
		if _, f := tab.Remote(pd, 9, key, r.Base(), 1, verbs.RemoteRead); f != BadKey {
			t.Errorf("place %d behind the table: %v", i, f)
		}
		if f := tab.Bind(pd, 9, key, verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, verbs.RemoteRead); f != BadKey {
			t.Errorf("binding a window at place %d behind the table: %v", i, f)
		}
	}
}

// A window without rights opens nothing. One of type 1 is for all queue pairs of the domain; each
// bind ends the one before, and no work request invalidates it.
func TestWindowTypes(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 1000, verbs.LocalWrite|verbs.MWBind)
	piece := verbs.SGE{Addr: r.Base(), Length: 50, LKey: r.LKey()}
	closed := newWindow(t, tab, pd)
	key := verbs.NextRKey(closed.RKey())
	if f := tab.Bind(pd, testQP, key, piece, 0); f != OK {
		t.Fatalf("bind without rights: %v", f)
	}
	for _, need := range []verbs.Access{verbs.RemoteRead, verbs.RemoteWrite, verbs.RemoteAtomic} {
		if _, f := tab.Remote(pd, testQP, key, r.Base(), 8, need); f != BadAccess {
			t.Errorf("right %v: %v", need, f)
		}
	}
	w := newWindow(t, tab, pd)
	w.MakeType1()
	open := func(qp wire.QPN, key uint32) Fault {
		_, f := tab.Remote(pd, qp, key, r.Base(), 8, verbs.RemoteRead)
		return f
	}
	first := verbs.NextRKey(w.RKey())
	second, third := verbs.NextRKey(first), verbs.NextRKey(verbs.NextRKey(first))
	if f := tab.Bind(pd, testQP, first, piece, verbs.RemoteRead); f != OK || open(testQP, first) != OK || open(testQP+1, first) != OK {
		t.Errorf("bind: %v; the peers of queue pairs %v, %v", f, open(testQP, first), open(testQP+1, first))
	}
	if f := tab.Invalidate(pd, testQP, first, false); f != BadAccess {
		t.Errorf("invalidate: %v", f)
	}
	tab.UnbindAll(testQP)
	if f := tab.Bind(pd, testQP+1, second, piece, verbs.RemoteRead); f != OK || open(testQP, second) != OK || open(testQP, first) != BadKey {
		t.Errorf("second bind: %v; its key %v, the first %v", f, open(testQP, second), open(testQP, first))
	}
	bad := piece
	bad.Length = 1001
	if f := tab.Bind(pd, testQP, third, bad, verbs.RemoteRead); f != BadBounds || open(testQP, second) != OK {
		t.Errorf("a bind that fails: %v; the one before %v", f, open(testQP, second))
	}
	bad.Length = 0
	if f := tab.Bind(pd, testQP, third, bad, 0); f != OK || w.Bound() || open(testQP, second) != BadKey || open(testQP, third) != BadKey {
		t.Errorf("a bind of nothing: %v, bound %v", f, w.Bound())
	}
	if err := tab.Dereg(r); err != nil {
		t.Error(err)
	}
}
