package mem

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// What the owner writes is what it and its peers read, and nothing beside it changes.
func TestWrittenBytes(t *testing.T) {
	tab, pd := newTable(t, 0)
	r := reg(t, tab, pd, 16, allAccess)
	if err := r.WriteAt([]byte("abcd"), 6); err != nil {
		t.Fatal(err)
	}
	got, want := make([]byte, 16), append(append(make([]byte, 6), "abcd"...), make([]byte, 6)...)
	if err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %q, %v", got, err)
	}
	peer := make([]byte, 4)
	if p, f := tab.Remote(pd, testQP, r.RKey(), r.Base()+6, 4, verbs.RemoteRead); f != OK || !p.Read(peer, 0) || string(peer) != "abcd" {
		t.Errorf("a peer reads %q, %v", peer, f)
	}
}

// A table of one region has one. The place of a deregistered region is used again when the table is full: the
// one that has been free for the longest time first.
func TestPlacesThatAreFree(t *testing.T) {
	tab, pd := newTable(t, 1)
	reg(t, tab, pd, 8, allAccess)
	if _, err := tab.Reg(pd, make([]byte, 8), allAccess); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("the second of one: %v", err)
	}
	tab, pd = newTable(t, 3)
	var rs []*Region
	for range 3 {
		rs = append(rs, reg(t, tab, pd, 8, allAccess))
	}
	n := len(tab.slots)
	for _, free := range [][]int{{1}, {2, 0}} {
		var want []uint32
		for _, i := range free {
			want = append(want, rs[i].index)
			if err := tab.Dereg(rs[i]); err != nil {
				t.Fatal(err)
			}
		}
		for k, i := range free {
			if rs[i] = reg(t, tab, pd, 8, allAccess); rs[i].index != want[k] || len(tab.slots) != n {
				t.Errorf("place %d of %d, want %d of %d", rs[i].index, len(tab.slots), want[k], n)
			}
		}
	}
}

// A region takes whole pages of the address space, and none behind its end.
func TestPagesOfARegion(t *testing.T) {
	tab, pd := newTable(t, 0)
	for size, pages := range map[int]uint64{1: 1, pageSize - 1: 1, pageSize: 1, pageSize + 1: 2, 2 * pageSize: 2} {
		if r := reg(t, tab, pd, size, allAccess); tab.next != r.Base()+pages*pageSize {
			t.Errorf("%d bytes take %d bytes of addresses", size, tab.next-r.Base())
		}
	}
	tab.next = lastBase - (maxGap+10)*pageSize
	if _, err := tab.Reg(pd, make([]byte, 100*pageSize), allAccess); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("behind the last address: %v", err)
	}
	if r, err := tab.Reg(pd, make([]byte, 10*pageSize), allAccess); err != nil || r.Base()+10*pageSize > lastBase {
		t.Errorf("before the last address: %v", err)
	}
}
