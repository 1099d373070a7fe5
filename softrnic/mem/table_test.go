package mem

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const allAccess = verbs.LocalWrite | verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic

func newTable(t testing.TB, maxRegions int) (*Table, PD) {
	t.Helper()
	tab := NewDistinct(rand.New(rand.NewPCG(1, 2)), maxRegions)
	pd, err := tab.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return tab, pd
}

func reg(t testing.TB, tab *Table, pd PD, n int, access verbs.Access) *Region {
	t.Helper()
	r, err := tab.Reg(pd, make([]byte, n), access)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A remote access is checked in this order: key, protection domain, right, bounds. An access of
// length 0 is not checked (C9-88) (IBTA 10.6.3/order).
func TestRemoteChecks(t *testing.T) {
	tab, pd := newTable(t, 0)
	other, _ := tab.AllocPD()
	r := reg(t, tab, pd, 100, verbs.RemoteRead)
	base := r.Base()
	for name, c := range map[string]struct {
		pd     PD
		key    uint32
		va     uint64
		n      uint32
		access verbs.Access
		want   Fault
	}{
		"whole":                   {pd, r.RKey(), base, 100, verbs.RemoteRead, OK},
		"last byte":               {pd, r.RKey(), base + 99, 1, verbs.RemoteRead, OK},
		"one too many":            {pd, r.RKey(), base, 101, verbs.RemoteRead, BadBounds},
		"before":                  {pd, r.RKey(), base - 1, 1, verbs.RemoteRead, BadBounds},
		"behind":                  {pd, r.RKey(), base + 100, 1, verbs.RemoteRead, BadBounds},
		"address wraps":           {pd, r.RKey(), ^uint64(0), 100, verbs.RemoteRead, BadBounds},
		"end wraps":               {pd, r.RKey(), base + 50, 0xffffffff, verbs.RemoteRead, BadBounds},
		"no right":                {pd, r.RKey(), base, 1, verbs.RemoteWrite, BadAccess},
		"right before bounds":     {pd, r.RKey(), base, 101, verbs.RemoteWrite, BadAccess},
		"other domain":            {other, r.RKey(), base, 1, verbs.RemoteRead, BadPD},
		"domain before right":     {other, r.RKey(), base, 1, verbs.RemoteWrite, BadPD},
		"tag of the key":          {pd, r.RKey() ^ 1, base, 1, verbs.RemoteRead, BadKey},
		"index of the key":        {pd, r.RKey() ^ 1<<20, base, 1, verbs.RemoteRead, BadKey},
		"key 0":                   {pd, 0, base, 1, verbs.RemoteRead, BadKey},
		"nothing, key and all 0":  {pd, 0, 0, 0, verbs.RemoteRead, OK},
		"nothing out of anything": {other, ^uint32(0), ^uint64(0), 0, verbs.RemoteWrite, OK},
	} {
		b, f := tab.Remote(c.pd, 9, c.key, c.va, c.n, c.access)
		if f != c.want || (f == OK && b.Len() != int(c.n)) || (f != OK && b != Piece{}) {
			t.Errorf("%s: %d bytes, %v; want %v", name, b.Len(), f, c.want)
		}
	}
}

func TestLocalChecks(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 100, 0)
	sge := verbs.SGE{Addr: r.Base(), Length: 100, LKey: r.LKey()}
	if _, f := tab.Local(pd, sge, false); f != OK {
		t.Errorf("local read is always allowed: %v", f)
	}
	if _, f := tab.Local(pd, sge, true); f != BadAccess {
		t.Errorf("local write without the right: %v", f)
	}
}

// Invalid registrations are refused, among them remote rights to write without the local one (IBTA
// 10.6.3/local-write).
func TestRegRefuses(t *testing.T) {
	tab, pd := newTable(t, 2)
	for name, c := range map[string]struct {
		pd     PD
		n      int
		access verbs.Access
		want   error
	}{
		"no such domain":              {pd + 1, 10, 0, verbs.ErrInvalid},
		"no bytes":                    {pd, 0, 0, verbs.ErrInvalid},
		"unknown right":               {pd, 10, 1 << 7, verbs.ErrInvalid},
		"remote write without local":  {pd, 10, verbs.RemoteWrite, verbs.ErrInvalid},
		"remote atomic without local": {pd, 10, verbs.RemoteAtomic, verbs.ErrInvalid},
	} {
		if _, err := tab.Reg(c.pd, make([]byte, c.n), c.access); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	a := reg(t, tab, pd, 1, 0)
	reg(t, tab, pd, 1, 0)
	if _, err := tab.Reg(pd, make([]byte, 1), 0); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("third of two: %v, want ErrLimit", err)
	}
	if err := tab.Dereg(a); err != nil {
		t.Fatal(err)
	}
	reg(t, tab, pd, 1, 0)
}

// A key is invalid after its region is gone, also when another region has its place, and for long.
func TestOldKeysStayDead(t *testing.T) {
	tab, pd := newTable(t, 4)
	old := map[uint32]bool{}
	for i := range 500 {
		r := reg(t, tab, pd, 8, allAccess)
		if i < 255 && old[r.RKey()] {
			t.Fatalf("registration %d has the key of an earlier one", i)
		}
		for key := range old {
			if _, f := tab.Remote(pd, 9, key, r.Base(), 1, verbs.RemoteRead); key != r.RKey() && f == OK {
				t.Fatalf("key %#x still opens something", key)
			}
		}
		old[r.RKey()] = true
		if err := tab.Dereg(r); err != nil {
			t.Fatal(err)
		}
		if err := tab.Dereg(r); !errors.Is(err, verbs.ErrInvalid) {
			t.Fatalf("deregistered twice: %v", err)
		}
	}
}

// Regions never overlap or touch, start on a page, and have addresses that depend only on the seed.
func TestAddresses(t *testing.T) {
	make2 := func() []*Region {
		tab, pd := newTable(t, 0)
		var rs []*Region
		for i := range 100 {
			rs = append(rs, reg(t, tab, pd, 1+i*977, allAccess))
		}
		return rs
	}
	a, b := make2(), make2()
	end := uint64(0)
	for i := range a {
		if a[i].Base() != b[i].Base() || a[i].RKey() != b[i].RKey() {
			t.Fatal("the same seed gives other addresses or keys")
		}
		if a[i].Base()%pageSize != 0 || a[i].Base() < end+pageSize {
			t.Fatalf("region %d at %#x, the one before ends at %#x", i, a[i].Base(), end)
		}
		end = a[i].Base() + uint64(a[i].Len())
	}
}

func TestPDs(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 8, 0)
	if err := tab.DeallocPD(pd); !errors.Is(err, verbs.ErrBusy) || tab.pds[pd] != 1 {
		t.Errorf("with a region: %v", err)
	}
	if err := tab.Dereg(r); err != nil {
		t.Fatal(err)
	}
	if err := tab.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	if err := tab.DeallocPD(pd); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("twice: %v", err)
	}
}

// Accesses of the owner are bounds-checked, also against overflow.
func TestRegionAccessors(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 16, allAccess)
	const huge = int(^uint(0) >> 1)
	for name, err := range map[string]error{
		"read behind":      r.ReadAt(make([]byte, 1), 16),
		"read before":      r.ReadAt(make([]byte, 1), -1),
		"write too much":   r.WriteAt(make([]byte, 17), 0),
		"offset overflows": r.WriteAt(make([]byte, 2), huge),
		"store misaligned": r.Store64(4, 1),
		"store behind":     r.Store64(16, 1),
	} {
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if err := r.Store64(8, 42); err != nil {
		t.Fatal(err)
	}
	word, _ := tab.Remote(pd, 9, r.RKey(), r.Base()+8, 8, verbs.RemoteAtomic)
	if old, _ := word.FetchAdd(1); old != 42 {
		t.Errorf("fetch-add answers %d", old)
	}
	if old, _ := word.CmpSwap(42, 7); old != 43 {
		t.Errorf("failed compare answers %d", old)
	}
	if old, _ := word.CmpSwap(43, 7); old != 43 {
		t.Errorf("compare answers %d", old)
	}
	if v, err := r.Load64(8); v != 7 || err != nil {
		t.Errorf("loaded %d, %v", v, err)
	}
	var b [8]byte
	if err := r.ReadAt(b[:], 8); err != nil || b == [8]byte{} {
		t.Errorf("read %v, %v", b, err)
	}
}

// A lookup on the hot path allocates no memory.
func TestLookupAllocatesNothing(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 4096, allAccess)
	if n := testing.AllocsPerRun(100, func() {
		tab.Remote(pd, 9, r.RKey(), r.Base(), 4096, verbs.RemoteWrite)
		tab.Remote(pd, 9, r.RKey()^1, r.Base(), 4096, verbs.RemoteWrite)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFaultNames(t *testing.T) {
	seen := map[string]bool{}
	for f := OK; f <= BadPage+1; f++ { // the last one is unknown
		if s := f.String(); s == "" || seen[s] {
			t.Errorf("%d: %q is empty or there twice", f, s)
		} else {
			seen[s] = true
		}
	}
}

// Locate names the same bytes for all ways to reach them, and distinguishes memory of the NIC from
// that of the host.
func TestLocate(t *testing.T) {
	tab, pd := newTable(t, 0)
	host := reg(t, tab, pd, 100, verbs.LocalWrite|verbs.RemoteWrite|verbs.MWBind)
	zero, err := tab.RegZero(pd, make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite|verbs.MWBind)
	if err != nil {
		t.Fatal(err)
	}
	bind := func(r *Region, off uint64) uint32 {
		w := newWindow(t, tab, pd)
		key := verbs.NextRKey(w.RKey())
		if f := tab.Bind(pd, testQP, key, verbs.SGE{Addr: r.Base() + off, Length: 16, LKey: r.LKey()}, verbs.RemoteWrite); f != OK {
			t.Fatal(f)
		}
		return key
	}
	hostWindow, zeroWindow := bind(host, 16), bind(zero, 32)
	for _, c := range []struct {
		name   string
		key    uint32
		va     uint64
		n      int
		off    int // offset of the first byte in its region, -1: not found
		len    int
		device bool
	}{
		{"a word", host.RKey(), host.Base() + 8, 8, 8, 8, false},
		{"inside a word", host.RKey(), host.Base() + 13, 1, 8, 6, false},
		{"cut at the end", host.RKey(), host.Base() + 96, 50, 96, 4, false},
		{"none", host.RKey(), host.Base() + 8, -1, 8, 0, false},
		{"through a window", hostWindow, host.Base() + 24, 8, 24, 8, false},
		{"on the NIC", zero.RKey(), 32, 8, 32, 8, true},
		{"on the NIC through a window", zeroWindow, 32, 8, 32, 8, true},
		{"behind the end", host.RKey(), host.Base() + 100, 1, -1, 0, false},
		{"before the beginning", host.RKey(), host.Base() - 1, 1, -1, 0, false},
		{"no key", host.RKey() + 1, host.Base(), 1, -1, 0, false},
	} {
		b, device := tab.Locate(c.key, c.va, c.n)
		buf := host.buf
		if c.device {
			buf = zero.buf
		}
		if len(b) != c.len || device != c.device || (b == nil) != (c.off < 0) || c.len > 0 && &b[0] != &buf[c.off] {
			t.Errorf("%s: %d bytes, device %v", c.name, len(b), device)
		}
	}
}
