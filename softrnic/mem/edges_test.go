package mem

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A seeded tear of a copy can be at each byte inside it, begins with either part, and pauses for less than the
// longest time. One byte, and no chance, give none.
func TestPlacesOfSeededTears(t *testing.T) {
	f := SeededTear(1, 1, 3)
	if tr := f(1); tr != (Tear{}) {
		t.Errorf("a byte is torn: %+v", tr)
	}
	for _, n := range []int{2, 3, 5} {
		cuts, tails, pauses := map[int]int{}, map[bool]int{}, map[time.Duration]int{}
		for range 1000 {
			tr := f(n)
			cuts[tr.Cut]++
			tails[tr.TailFirst]++
			pauses[tr.Pause]++
		}
		for i := range n - 1 {
			if cuts[i+1] == 0 || len(cuts) != n-1 {
				t.Errorf("copies of %d bytes are cut at %v", n, cuts)
			}
		}
		if tails[true] < 400 || tails[false] < 400 || len(pauses) != 3 || pauses[0] == 0 || pauses[2] == 0 {
			t.Errorf("the tail comes first %v, pauses %v", tails, pauses)
		}
	}
	if none := SeededTear(1, 0, 3); none(9) != (Tear{}) {
		t.Error("a copy is torn with probability 0")
	}
	for range 100 {
		if tr := SeededTear(1, 1, 0)(9); tr.Pause != 0 || tr.Cut == 0 {
			t.Errorf("without a pause: %+v", tr)
		}
	}
}

// Far memory may be all that a program can address, and may be known up to the last address.
func TestLargestFarRegions(t *testing.T) {
	for _, c := range []struct {
		start, base, length uint64
		ok                  bool
	}{
		{0, 0, maxFar, true},
		{0, 0, maxFar + 1, false},
		{1, 0, maxFar, false},
		{maxFar - 8, 0, 8, true},
		{maxFar - 7, 0, 8, false},
		{0, math.MaxUint64 - 8, 8, true},
		{0, math.MaxUint64 - 7, 8, false},
	} {
		tab := New(rand.New(rand.NewPCG(1, 2)), 0)
		pd, err := tab.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.RegFar(pd, &pages{}, c.start, c.base, c.length, 0); (err == nil) != c.ok || err != nil && !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A request without a range names a region by its key: that must exist, be of the peer's domain, and have the
// right. One that belongs to a queue pair is for that alone.
func TestWholeRegions(t *testing.T) {
	tab := New(rand.New(rand.NewPCG(1, 2)), 0)
	pd, _ := tab.AllocPD()
	other, _ := tab.AllocPD()
	r, err := tab.Reg(pd, make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []bool{false, true} {
		if owner {
			r.owner = 7
		}
		for what, c := range map[string]struct {
			pd   PD
			key  uint32
			need verbs.Access
			want [2]Fault // by queue pairs 7 and 8
		}{
			"the region":     {pd, r.RKey(), verbs.RemoteWrite, [2]Fault{OK, OK}},
			"another domain": {other, r.RKey(), verbs.RemoteWrite, [2]Fault{BadPD, BadPD}},
			"another right":  {pd, r.RKey(), verbs.RemoteRead, [2]Fault{BadAccess, BadAccess}},
			"another key":    {pd, r.RKey() + 1, verbs.RemoteWrite, [2]Fault{BadKey, BadKey}},
			"no key":         {pd, 0, verbs.RemoteWrite, [2]Fault{BadKey, BadKey}},
		} {
			if owner {
				c.want[1] = BadKey
			}
			if a, b := tab.Whole(c.pd, 7, c.key, c.need), tab.Whole(c.pd, 8, c.key, c.need); a != c.want[0] || b != c.want[1] {
				t.Errorf("%s, of a queue pair %v: %v and %v, want %v", what, owner, a, b, c.want)
			}
		}
	}
}

// A word is written at once, near and far; far memory may be gone.
func TestStoredWords(t *testing.T) {
	tab := New(rand.New(rand.NewPCG(1, 2)), 0)
	pd, _ := tab.AllocPD()
	far := &pages{at: 0x10000}
	buf := make([]byte, 24)
	near, err := tab.Reg(pd, buf, verbs.LocalWrite|verbs.RemoteRights)
	if err != nil {
		t.Fatal(err)
	}
	away, err := tab.RegFar(pd, far, 0x10000, 0x5000, 1<<20, verbs.LocalWrite|verbs.RemoteRights)
	if err != nil {
		t.Fatal(err)
	}
	const word = 0x0102030405060708
	for _, c := range []struct {
		r    *Region
		at   uint64
		ok   bool
		read func() uint64
	}{
		{near, 8, true, func() uint64 { v, _ := near.Load64(8); return v }},
		{away, 8, true, func() uint64 { return binary.NativeEndian.Uint64(far.page[0x10008-far.at:]) }},
		{away, 1 << 19, false, func() uint64 { return word }},
	} {
		p, fault := tab.Remote(pd, 5, c.r.RKey(), c.r.Base()+c.at, 8, verbs.RemoteWrite)
		if fault != OK {
			t.Fatal(fault)
		}
		if ok := p.Store64(word); ok != c.ok || c.read() != word {
			t.Errorf("at %d: %v, %#x", c.at, ok, c.read())
		}
	}
	if buf[7] != 0 || buf[16] != 0 {
		t.Errorf("bytes beside the word have changed: %v", buf)
	}
}

// A region for fast registration that is deregistered takes its present registration with it.
func TestDeregisteredFastRegion(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := fast(t, tab, pd, 64)
	key := r.RKey()
	if f := tab.Register(pd, key, piece(r, 0, 64), verbs.LocalWrite|verbs.RemoteRead); f != OK || !r.Valid() {
		t.Fatal(f)
	}
	if err := tab.Dereg(r); err != nil {
		t.Fatal(err)
	}
	if _, f := tab.Remote(pd, testQP, key, r.Base(), 8, verbs.RemoteRead); f != BadKey || r.Valid() {
		t.Errorf("%v, valid %v", f, r.Valid())
	}
}
