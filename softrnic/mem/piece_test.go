package mem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pages is far memory of one page at 0x10000, and nothing behind it.
type pages struct {
	at   uint64
	page [4096]byte
}

func (p *pages) span(at, n uint64) []byte {
	if at < p.at || at+n > p.at+uint64(len(p.page)) {
		return nil
	}
	return p.page[at-p.at:][:n]
}

func (p *pages) Read(b []byte, at uint64) bool {
	return copy(b, p.span(at, uint64(len(b)))) == len(b)
}

func (p *pages) Write(b []byte, at uint64) bool {
	return copy(p.span(at, uint64(len(b))), b) == len(b)
}

// Far memory is named by addresses of the caller's choice, and reached at its own. What is not there
// is no memory, for reads, writes and atomics.
func TestFarMemory(t *testing.T) {
	tab, pd := newTable(t, 0)
	far := &pages{at: 0x10000}
	const base = 0x5000_0000
	r, err := tab.RegFar(pd, far, far.at, base, 8192, allAccess)
	if err != nil || r.Base() != base || r.Len() != 8192 {
		t.Fatalf("%+v, %v", r, err)
	}
	p, f := tab.Remote(pd, testQP, r.RKey(), base+100, 8, verbs.RemoteWrite)
	if f != OK || !p.Write([]byte("far away"), 0) || !bytes.Equal(far.page[100:108], []byte("far away")) {
		t.Fatalf("%v, %q", f, far.page[100:108])
	}
	var got [3]byte
	if !p.Read(got[:], 4) || string(got[:]) != "awa" {
		t.Errorf("read %q", got)
	}
	if _, f := tab.Remote(pd, testQP, r.RKey(), base+8185, 8, verbs.RemoteWrite); f != BadBounds {
		t.Errorf("behind the region: %v", f)
	}
	gone, f := tab.Remote(pd, testQP, r.RKey(), base+4096, 8, verbs.RemoteWrite)
	if f != OK || gone.Write(got[:], 0) || gone.Read(got[:], 0) {
		t.Errorf("the page that is not there was used: %v", f)
	}
	if _, ok := gone.FetchAdd(1); ok {
		t.Error("an atomic on the page that is not there")
	}
	word, _ := tab.Remote(pd, testQP, r.RKey(), base+8, 8, verbs.RemoteAtomic)
	if old, ok := word.FetchAdd(5); old != 0 || !ok {
		t.Errorf("fetch-add: %d, %v", old, ok)
	}
	if old, ok := word.CmpSwap(4, 9); old != 5 || !ok {
		t.Errorf("failed compare: %d, %v", old, ok)
	}
	if old, ok := word.CmpSwap(5, 9); old != 5 || !ok {
		t.Errorf("compare: %d, %v", old, ok)
	}
	if v := binary.NativeEndian.Uint64(far.page[8:]); v != 9 {
		t.Errorf("the word is %d", v)
	}
	if b, _ := tab.Locate(r.RKey(), base, 8); b != nil {
		t.Errorf("located %v", b)
	}
	if _, err := r.Load64(0); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("local access: %v", err)
	}
	if err := tab.Dereg(r); err != nil {
		t.Error(err)
	}
}

// A window to far memory opens its part, at the addresses of the region.
func TestWindowToFarMemory(t *testing.T) {
	tab, pd := newTable(t, 0)
	far := &pages{at: 0x10000}
	r, _ := tab.RegFar(pd, far, far.at, 0, 4096, allAccess|verbs.MWBind)
	w, err := tab.AllocWindow(pd)
	if err != nil {
		t.Fatal(err)
	}
	key := verbs.NextRKey(w.RKey())
	if f := tab.Bind(pd, testQP, key, verbs.SGE{Addr: 64, Length: 8, LKey: r.LKey()}, verbs.RemoteWrite); f != OK {
		t.Fatal(f)
	}
	p, f := tab.Remote(pd, testQP, key, 66, 2, verbs.RemoteWrite)
	if f != OK || !p.Write([]byte("xy"), 0) || string(far.page[66:68]) != "xy" {
		t.Errorf("%v, %q", f, far.page[60:70])
	}
	if _, f := tab.Remote(pd, testQP, key, 63, 2, verbs.RemoteWrite); f != BadBounds {
		t.Errorf("before the window: %v", f)
	}
}

// Lengths and addresses that would wrap are refused.
func TestFarMemoryBounds(t *testing.T) {
	tab, pd := newTable(t, 0)
	for _, c := range []struct{ start, base, length uint64 }{
		{0, 0, 0}, {1 << 47, 0, 1}, {0, 0, 1<<47 + 1}, {^uint64(0), 0, 2}, {0, ^uint64(0), 1}, {1, ^uint64(0) - 4, 5},
	} {
		if _, err := tab.RegFar(pd, &pages{}, c.start, c.base, c.length, 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%#x: %v", c, err)
		}
	}
}

// A masked CMP_SWAP compares and swaps only bits of its masks; a masked FETCH_ADD adds field by
// field, as a loop over the bits with a carry that no boundary lets through does. Near and far
// memory do the same, and a page that is not there does nothing.
func TestMaskedAtomics(t *testing.T) {
	tab, pd := newTable(t, 0)
	far := &pages{at: 0x10000}
	fr, err := tab.RegFar(pd, far, far.at, far.at, 8192, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	nr, err := tab.Reg(pd, make([]byte, 4096), allAccess)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, compare, compareMask, swap, swapMask, want uint64
	}{
		{0x1234, 0x1234, ^uint64(0), 0xffff, ^uint64(0), 0xffff},
		{0x1234, 0x0034, 0xff, 0xabcd, 0xff00, 0xab34},
		{0x1234, 0x0035, 0xff, 0xabcd, 0xff00, 0x1234},
		{0x1234, 0xdead, 0, 0xabcd, 0xf, 0x123d},
		{0x1234, 0x1234, ^uint64(0), 0xabcd, 0, 0x1234},
		{1 << 63, 0, 1, 1, 1, 1<<63 | 1},
	} {
		for _, r := range []*Region{nr, fr} {
			word, _ := tab.Remote(pd, testQP, r.RKey(), r.Base()+16, 8, verbs.RemoteAtomic)
			if _, ok := word.CmpSwap(readWord(t, word), c.old); !ok {
				t.Fatal("the word was not set")
			}
			old, ok := word.MaskedCmpSwap(c.compare, c.compareMask, c.swap, c.swapMask)
			if got := readWord(t, word); old != c.old || got != c.want || !ok {
				t.Errorf("%+v: %#x after %#x, %t", c, got, old, ok)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		old, add, boundary := r.Uint64(), r.Uint64(), r.Uint64()&r.Uint64()
		want, carry := uint64(0), uint64(0)
		for bit := uint64(1); bit != 0; bit <<= 1 {
			sum := carry + min(1, old&bit) + min(1, add&bit)
			want |= bit * (sum & 1)
			if carry = sum >> 1; boundary&bit != 0 {
				carry = 0
			}
		}
		for _, r := range []*Region{nr, fr} {
			word, _ := tab.Remote(pd, testQP, r.RKey(), r.Base()+16, 8, verbs.RemoteAtomic)
			_, _ = word.CmpSwap(readWord(t, word), old)
			was, ok := word.MaskedFetchAdd(add, boundary)
			if got := readWord(t, word); was != old || got != want || !ok {
				t.Fatalf("%#x + %#x with boundary %#x: %#x after %#x, %t; want %#x", old, add, boundary, got, was, ok, want)
			}
		}
	}
	gone, _ := tab.Remote(pd, testQP, fr.RKey(), fr.Base()+4096, 8, verbs.RemoteAtomic)
	if _, ok := gone.MaskedFetchAdd(1, 0); ok {
		t.Error("a masked FETCH_ADD on the page that is not there")
	}
	if _, ok := gone.MaskedCmpSwap(0, 0, 1, 1); ok {
		t.Error("a masked CMP_SWAP on the page that is not there")
	}
}

func readWord(t *testing.T, p Piece) uint64 {
	t.Helper()
	var b [8]byte
	if !p.Read(b[:], 0) {
		t.Fatal("the word is not there")
	}
	return binary.NativeEndian.Uint64(b[:])
}
