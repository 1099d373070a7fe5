package layout

import (
	"bytes"
	"testing"
)

// ceding is a full leaf with the keys 10 to 140 in steps of 10 that gives its sibling the range from
// cut on, and that sibling with three free slots.
func ceding(t *testing.T, cut uint64) (left, right *Page) {
	t.Helper()
	left, right = full(Hardened, 0, 5, 200, 1<<21), new(Page)
	left.Leftmost = 0
	right.Init(left.Shape, make([]byte, left.Shape.Page), Header{Lowest: 200, Highest: MaxKey, Self: 1 << 21})
	for k := uint64(200); right.Count() < right.Slots()-3; k++ {
		right.Put(right.FreeSlot(), k, []byte{byte(k)})
	}
	left.Refuses = true // the range of the page to its left, which does not concern the sibling
	edit(left).Cede(cut)
	var p Page
	if err := p.Parse(left.Shape, left.Bytes); err != nil || p.Stage != Closed || p.Cut != cut || p.Leftmost != 0 {
		t.Fatalf("%+v, %v", p.Header, err)
	}
	return left, right
}

// The sibling takes over the records from the cut on, also if an earlier client has died before it
// wrote the header, and no others. Then the leaf ends there, and readers take it for split.
func TestCede(t *testing.T) {
	left, right := ceding(t, 120)
	right.putHardenedRecord(right.FreeSlot(), 130, []byte{1}) // a copy that an earlier client has left
	if left.Absorbed(right.Lowest) || !left.Absorbed(120) || left.Absorbed(121) {
		t.Error("the range is taken over from the cut on, and not before")
	}
	ok := edit(right).Absorb(left)
	if !ok || right.Lowest != 120 || right.Reach != 200 || right.Refuses || right.Count() != right.Slots() {
		t.Errorf("%v, %+v, %d records", ok, right.Header, right.Count())
	}
	for k := uint64(120); k <= 140; k += 10 {
		if _, v, ok, _ := right.Find(k); !ok || !bytes.HasPrefix(v, []byte{byte(k)}) {
			t.Errorf("key %d: %x, %v", k, v, ok)
		}
	}
	epoch := left.Epoch
	e := edit(left)
	e.Shrink()
	ranges := e.Ranges
	if left.Stage != Live || left.Highest != 120 || left.Cut != 0 || left.Count() != left.Slots()-3 || !left.Refuses || left.Opened {
		t.Errorf("%+v, %d records", left.Header, left.Count())
	}
	if last := ranges[len(ranges)-1]; left.Epoch != epoch+1 || last.Off != 0 || last.Len != Line {
		t.Errorf("epoch %d after %d, ranges %v", left.Epoch, epoch, ranges)
	}
	left, right = ceding(t, 110)
	if edit(right).Absorb(left) {
		t.Error("three free slots take four records")
	}
	edit(right).Refuse(left)
	if edit(left).Open(); left.Stage != Live || left.Cut != 0 || left.Highest != 200 {
		t.Errorf("%+v", left.Header)
	}
}

// The cuts leave a free slot in the page that then covers the new key.
func TestCuts(t *testing.T) {
	for free := 1; free <= 14; free++ {
		for key := uint64(6); key < 200; key += 7 {
			if key%10 == 0 {
				continue
			}
			p := full(Hardened, 0, 5, 200, 1<<21)
			cut := edit(p).HighCut(key, free)
			stay := order{p, p.Order(nil)}.before(cut)
			if moved := p.Count() - stay; moved > free || cut <= p.Lowest || key < cut && moved == 0 || key >= cut && moved == free {
				t.Errorf("key %d, %d free slots: cut at %d moves %d records to the right", key, free, cut, moved)
			}
			cut = edit(p).LowCut(key, free)
			moved := order{p, p.Order(nil)}.before(cut)
			if moved > free || cut <= p.Lowest || key >= cut && moved == 0 || key < cut && moved == free {
				t.Errorf("key %d, %d free slots: cut at %d moves %d records to the left", key, free, cut, moved)
			}
		}
	}
}

// The record for a child gets the child's new lowest key. No other record changes.
func TestLower(t *testing.T) {
	p := full(Hardened, 1, 0, MaxKey, 0)
	slot, _, _, _ := p.Find(30)
	r, _ := p.Slot(slot)
	child := r.Child()
	if edit(p).Lower(15, child) {
		t.Error("another child's record lies between")
	}
	if edit(p).Lower(1000, child) {
		t.Error("no record is above the key")
	}
	n := p.Count()
	e := edit(p)
	ok := e.Lower(25, child)
	ranges := e.Ranges
	if !ok || len(ranges) != 1 || ranges[0].Off != p.Shape.slotAt(1, slot) || p.Count() != n || p.Child(25) != child || p.Child(24) == child {
		t.Errorf("%v, %v", ranges, ok)
	}
}
