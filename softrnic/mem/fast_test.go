package mem

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// fast allocates a region for fast registration.
func fast(t *testing.T, tab *Table, pd PD, n int) *Region {
	t.Helper()
	r, err := tab.AllocFast(pd, make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// piece names n bytes of r from off on, by its present L_Key.
func piece(r *Region, off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Base() + uint64(off), Length: uint32(n), LKey: r.LKey()}
}

// A fast registration gives access to its piece of memory, with its rights, until it is
// invalidated; the next one has other keys. In between, no key gives access (IBTA
// 10.6.6/fast-register).
func TestFastRegistration(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := fast(t, tab, pd, 1000)
	remote := func(key uint32, off int, need verbs.Access) Fault {
		_, f := tab.Remote(pd, testQP, key, r.Base()+uint64(off), 10, need)
		return f
	}
	local := func(key uint32, off int, write bool) Fault {
		s := piece(r, off, 10)
		s.LKey = key
		_, f := tab.Local(pd, s, write)
		return f
	}
	dead := func(when string, lkey, rkey uint32) {
		t.Helper()
		if f, g := remote(rkey, 100, verbs.RemoteRead), local(lkey, 100, false); f != BadKey || g != BadKey {
			t.Errorf("%s: remote %v, local %v", when, f, g)
		}
	}
	dead("before", r.LKey(), r.RKey())
	if r.Valid() {
		t.Error("valid without a registration")
	}
	first := r.RKey()
	if f := tab.Register(pd, first, piece(r, 100, 50), verbs.LocalWrite|verbs.RemoteRead); f != OK || !r.Valid() {
		t.Fatalf("register: %v", f)
	}
	for name, c := range map[string]struct{ got, want Fault }{
		"whole":          {remote(first, 140, verbs.RemoteRead), OK},
		"before":         {remote(first, 99, verbs.RemoteRead), BadBounds},
		"behind":         {remote(first, 141, verbs.RemoteRead), BadBounds},
		"right":          {remote(first, 100, verbs.RemoteWrite), BadAccess},
		"local write":    {local(r.LKey(), 100, true), OK},
		"local, outside": {local(r.LKey(), 90, false), BadBounds},
		"R_Key locally":  {local(first, 100, false), BadKey},
		"L_Key remotely": {remote(r.LKey(), 100, verbs.RemoteRead), BadKey},
		"twice":          {tab.Register(pd, verbs.NextRKey(first), piece(r, 0, 10), 0), BadKey},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	lkey := r.LKey()
	if f := tab.Invalidate(pd, testQP, first, true); f != OK || r.Valid() {
		t.Fatalf("invalidate: %v", f)
	}
	dead("invalidated", lkey, first)
	next := verbs.NextRKey(first)
	if f := tab.Register(pd, next, piece(r, 0, 1000), verbs.RemoteRead); f != OK || r.RKey() != next || r.LKey() != verbs.LKeyWith(lkey, next) {
		t.Fatalf("register again: %v, keys %#x and %#x", f, r.LKey(), r.RKey())
	}
	dead("the keys before", lkey, first)
	if f := remote(next, 990, verbs.RemoteRead); f != OK {
		t.Errorf("the new key: %v", f)
	}
	if err := tab.Dereg(r); err != nil {
		t.Fatal(err)
	}
	dead("deregistered", r.LKey(), next)
	if f := tab.Register(pd, verbs.NextRKey(next), piece(r, 0, 10), 0); f != BadKey {
		t.Errorf("registering what is gone: %v", f)
	}
}

// A refused fast registration changes nothing.
func TestFastRegistrationRefuses(t *testing.T) {
	tab, pd := newTable(t, 0)
	other, _ := tab.AllocPD()
	r, plain, more := fast(t, tab, pd, 100), reg(t, tab, pd, 100, allAccess), fast(t, tab, pd, 100)
	w := newWindow(t, tab, pd)
	for name, c := range map[string]struct {
		pd     PD
		key    uint32
		piece  verbs.SGE
		access verbs.Access
		want   Fault
	}{
		"plain region":       {pd, plain.RKey(), piece(plain, 0, 10), 0, BadKey},
		"window":             {pd, w.RKey(), piece(r, 0, 10), 0, BadKey},
		"other memory":       {pd, r.RKey(), piece(more, 0, 10), 0, BadKey},
		"L_Key for the key":  {pd, r.LKey(), piece(r, 0, 10), 0, BadKey},
		"key of nothing":     {pd, r.RKey() ^ 1<<30, piece(r, 0, 10), 0, BadKey},
		"other domain":       {other, r.RKey(), piece(r, 0, 10), 0, BadPD},
		"nothing":            {pd, r.RKey(), piece(r, 0, 0), 0, BadBounds},
		"behind":             {pd, r.RKey(), piece(r, 91, 10), 0, BadBounds},
		"before":             {pd, r.RKey(), piece(r, -1, 10), 0, BadBounds},
		"unknown right":      {pd, r.RKey(), piece(r, 0, 10), 1 << 7, BadAccess},
		"remote write alone": {pd, r.RKey(), piece(r, 0, 10), verbs.RemoteWrite, BadAccess},
	} {
		lkey, rkey := r.LKey(), r.RKey()
		if f := tab.Register(c.pd, c.key, c.piece, c.access); f != c.want || r.Valid() || r.LKey() != lkey || r.RKey() != rkey {
			t.Errorf("%s: %v, want %v; valid %v", name, f, c.want, r.Valid())
		}
	}
	if !plain.Valid() {
		t.Error("the plain region is gone")
	}
}

// A local work request or a peer can invalidate a region of a fast registration, and no other; a
// peer only one that it could use (IBTA 10.6.5/invalidate).
func TestInvalidate(t *testing.T) {
	for _, peer := range []bool{false, true} {
		tab, pd := newTable(t, 0)
		other, _ := tab.AllocPD()
		plain, private, shared := reg(t, tab, pd, 8, allAccess), reg(t, tab, pd, 8, 0), fast(t, tab, pd, 8)
		mine := fast(t, tab, pd, 8)
		for _, r := range []*Region{shared, mine} {
			access := verbs.LocalWrite | verbs.RemoteRead
			if r == mine {
				access = verbs.LocalWrite
			}
			if f := tab.Register(pd, r.RKey(), piece(r, 0, 8), access); f != OK {
				t.Fatal(f)
			}
		}
		local := BadAccess
		if !peer {
			local = OK
		}
		for _, c := range []struct {
			name string
			pd   PD
			key  uint32
			of   *Region
			want Fault
		}{
			{"region", pd, plain.RKey(), plain, BadAccess},
			{"region without remote rights", pd, private.RKey(), private, BadAccess},
			{"L_Key of a region", pd, private.LKey(), private, BadKey},
			{"L_Key of a registration", pd, shared.LKey(), shared, BadKey},
			{"other domain", other, shared.RKey(), shared, BadPD},
			{"registration without remote rights", pd, mine.RKey(), mine, local},
			{"registration", pd, shared.RKey(), shared, OK},
			{"registration, again", pd, shared.RKey(), shared, BadKey},
		} {
			before := c.of.Valid()
			f := tab.Invalidate(c.pd, 9, c.key, peer)
			if f != c.want || c.of.Valid() != (before && f != OK) {
				t.Errorf("peer %v: %s: %v, want %v; valid %v", peer, c.name, f, c.want, c.of.Valid())
			}
		}
		if err := shared.WriteAt([]byte{1}, 0); err != nil {
			t.Errorf("the owner's access afterwards: %v", err)
		}
		if err := tab.Dereg(shared); err != nil {
			t.Error(err)
		}
		if err := shared.ReadAt(make([]byte, 1), 0); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("access after dereg: %v", err)
		}
	}
}

// A window that is bound to a fast registration keeps it from being invalidated.
func TestWindowOverFastRegistration(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := fast(t, tab, pd, 100)
	if f := tab.Register(pd, r.RKey(), piece(r, 0, 100), verbs.LocalWrite|verbs.RemoteRead|verbs.MWBind); f != OK {
		t.Fatal(f)
	}
	w := newWindow(t, tab, pd)
	key := verbs.NextRKey(w.RKey())
	if f := tab.Bind(pd, testQP, key, piece(r, 10, 20), verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	if f := tab.Invalidate(pd, testQP, r.RKey(), false); f != BadAccess {
		t.Errorf("invalidated below a window: %v", f)
	}
	if err := tab.Dereg(r); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("deregistered below a window: %v", err)
	}
	tab.UnbindFrom(r)
	if _, f := tab.Remote(pd, testQP, key, r.Base()+10, 1, verbs.RemoteRead); f != BadKey || w.Bound() {
		t.Errorf("after unbind: %v", f)
	}
	if err := tab.Dereg(r); err != nil {
		t.Error(err)
	}
}
