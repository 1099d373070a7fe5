package layout

import (
	"bytes"
	"errors"
	"testing"
)

// absorbing is a closed leaf with the records of keys 10 to 12, and its sibling with those of keys 20
// to 22. Leaves have 14 slots.
func absorbing(t *testing.T) (left, right *Page) {
	t.Helper()
	s := Shape{Page: 512, Value: 16}
	left, right = new(Page), new(Page)
	left.Init(s, make([]byte, s.Page), Header{Lowest: 10, Highest: 20, Sibling: 1 << 20, Self: 1 << 21})
	right.Init(s, make([]byte, s.Page), Header{Lowest: 20, Highest: MaxKey, Self: 1 << 20})
	for k := range uint64(3) {
		left.Put(left.FreeSlot(), 10+k, []byte{byte(10 + k)})
		right.Put(right.FreeSlot(), 20+k, []byte{byte(20 + k)})
	}
	if left.Sibling != right.Self {
		t.Fatal("no siblings")
	}
	edit(left).Close()
	return left, right
}

func has(t *testing.T, p *Page, keys ...uint64) {
	t.Helper()
	if p.Count() != len(keys) {
		t.Errorf("%d records, want those of keys %d", p.Count(), keys)
	}
	for _, k := range keys {
		if _, v, ok, _ := p.Find(k); !ok || !bytes.Equal(v, []byte{byte(k)}) {
			t.Errorf("key %d: %x, %v", k, v, ok)
		}
	}
}

// A reader that sees a part of the WRITEs, in their order, sees the page without the range of the
// closed one, or the whole.
func TestAbsorbIsSeenAsAWhole(t *testing.T) {
	left, right := absorbing(t)
	seen := bytes.Clone(right.Bytes)
	ranges, ok := absorb(right, left)
	if !ok {
		t.Fatal("no room")
	}
	for _, r := range ranges {
		for at := r.Off; at < r.Off+r.Len; at++ {
			if (at-r.Off)%8 == 0 {
				var p Page
				if err := p.Parse(right.Shape, seen); err == nil && p.Lowest == 10 {
					t.Fatal("the range is the page's before all records are there")
				} else if err == nil {
					has(t, &p, 20, 21, 22)
				}
			}
			if r.Off == 0 && at == 0 {
				copy(seen, right.Bytes[:Line]) // memory writes a line as a whole
			}
			seen[at] = right.Bytes[at]
			if r.Off == 0 {
				break
			}
		}
	}
	var p Page
	if err := p.Parse(right.Shape, seen); err != nil || p.Lowest != 10 || p.Reach != 20 {
		t.Errorf("%+v, %v", p.Header, err)
	}
	has(t, &p, 10, 11, 12, 20, 21, 22)
}

// A client has written copies and died before it wrote the header. Meanwhile other slots became
// free. The next client's copies are the only ones.
func TestAbsorbAgain(t *testing.T) {
	left, right := absorbing(t)
	ranges, _ := absorb(right, left)
	interrupted := bytes.Clone(right.Bytes)
	_, right = absorbing(t)
	for _, r := range ranges[:len(ranges)-1] {
		copy(right.Bytes[r.Off:], interrupted[r.Off:r.Off+r.Len])
	}
	has(t, right, 20, 21, 22)
	slot, _, _, _ := right.Find(20)
	right.Remove(slot)
	right.Put(right.FreeSlot(), 25, []byte{25})
	slot, _, _, _ = right.Find(21)
	right.Remove(slot)
	if !edit(right).Absorb(left) {
		t.Fatal("no room")
	}
	has(t, right, 10, 11, 12, 22, 25)
}

// A page without room for all records takes over nothing.
func TestAbsorbWithoutRoom(t *testing.T) {
	left, right := absorbing(t)
	for k := uint64(30); right.Count() < right.Slots()-2; k++ {
		right.Put(right.FreeSlot(), k, nil)
	}
	if edit(right).Absorb(left) {
		t.Error("two free slots take three records")
	}
	_, right = absorbing(t)
	for k := uint64(30); right.Count() < right.Slots()-3; k++ {
		right.Put(right.FreeSlot(), k, nil)
	}
	if !edit(right).Absorb(left) || right.Count() != right.Slots() {
		t.Error("three free slots do not take three records")
	}
}

// A page refuses the closed one to its left until that one is opened, and no other page. What it
// says follows the page to its left through splits and merges.
func TestRefusal(t *testing.T) {
	written := func(p *Page) *Page { // as the memory has it
		q := new(Page)
		if err := q.Parse(p.Shape, bytes.Clone(p.Bytes)); err != nil || q.Epoch != p.Epoch {
			t.Fatalf("%+v, %v", q.Header, err)
		}
		return q
	}
	refused := func(left, right *Page, want bool) {
		t.Helper()
		if written(left).RefusedBy(&written(right).Header) != want {
			t.Errorf("%+v by %+v: want %v", left.Header, right.Header, want)
		}
	}
	left, right := absorbing(t)
	for range 3 {
		refused(left, right, false)
		edit(right).Refuse(left)
		refused(left, right, true)
		edit(left).Open()
		if written(left).Stage != Live {
			t.Error(left.Stage)
		}
		edit(left).Close()
	}
	refused(left, right, false)
	left.Stage = Live
	first := &Page{}
	first.Init(left.Shape, make([]byte, left.Shape.Page), Header{Highest: 10, Sibling: left.Self, Self: 1 << 23, Opened: true})
	mid := &Page{}
	left.Split(Fresh{At: 1 << 22}, make([]byte, left.Shape.Page), mid, nil, nil)
	refused(left, mid, false)
	refused(mid, right, false)
	// the left one refuses the first one, and then the others take over its range
	edit(left).Refuse(first)
	edit(left).Close()
	if !edit(mid).Absorb(left) {
		t.Fatal("no room")
	}
	refused(left, mid, false)
	refused(first, mid, true)
}

func TestMayMerge(t *testing.T) {
	for _, tc := range []struct {
		left, right int
		change      func(left, right *Page)
		want        bool
	}{
		{left: 3, right: 4, want: true},
		{left: 3, right: 5},
		{left: 4, right: 0},
		{left: 0, right: 7, want: true},
		{left: 1, right: 1, change: func(left, _ *Page) { left.Lowest = 0 }},
		{left: 1, right: 1, change: func(left, _ *Page) { left.Sibling = 0 }},
		{left: 1, right: 1, change: func(_, right *Page) { right.Stage = Closed }},
		{left: 1, right: 1, change: func(left, _ *Page) { left.Stage = Closed }},
		{left: 1, right: 1, change: func(left, _ *Page) { left.Highest = 19 }},
		{left: 1, right: 1, change: func(left, right *Page) { left.Level, right.Level = 1, 1 }},
	} {
		s := Shape{Page: 512, Value: 16}
		var left, right Page
		left.Init(s, make([]byte, s.Page), Header{Lowest: 10, Highest: 20, Sibling: 1 << 20, Self: 1 << 21})
		right.Init(s, make([]byte, s.Page), Header{Lowest: 20, Highest: MaxKey, Self: 1 << 20})
		for k := range uint64(tc.left) {
			left.Put(left.FreeSlot(), 10+k, nil)
		}
		for k := range uint64(tc.right) {
			right.Put(right.FreeSlot(), 20+k, nil)
		}
		if tc.change != nil {
			tc.change(&left, &right)
		}
		if got := left.MayMerge(&right); got != tc.want {
			t.Errorf("%d records and %d beside them: %v", tc.left, tc.right, got)
		}
	}
}

// A READ that sees the header of a closed page, and the slots of its next incarnation, does not
// take the records for absent.
func TestAReusedPageIsNotTakenForAnEmptyOne(t *testing.T) {
	left, _ := absorbing(t)
	header := bytes.Clone(left.Bytes[:Line])
	edit(left).Retire(0)
	f, ok := left.Renewed()
	if !ok {
		t.Fatal("no next incarnation")
	}
	var p Page
	p.Init(left.Shape, make([]byte, left.Shape.Page), Header{Lowest: 500, Highest: 600, Self: f.At, Epoch: f.Epoch})
	p.Put(p.FreeSlot(), 501, nil)
	copy(p.Bytes, header)
	if err := p.Parse(p.Shape, bytes.Clone(p.Bytes)); !errors.Is(err, ErrTorn) {
		t.Errorf("%v", err)
	}
	for i := 1; i < p.Slots(); i++ { // without the one that is used
		at := p.Shape.slotAt(0, i)
		b := append(bytes.Clone(header), make([]byte, p.Shape.Page-Line)...)
		copy(b[at:], p.Bytes[at:at+p.Shape.RecordLen(0)])
		if err := new(Page).Parse(p.Shape, b); !errors.Is(err, ErrTorn) {
			t.Errorf("slot %d: %v", i, err)
		}
	}
}
