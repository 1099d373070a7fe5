package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// world simulates one page in remote memory, its writer, and a reader, line by line. The copies of
// both are torn as softrnic/mem tears them: each in two parts at a line boundary, in either order,
// with other steps between.
type world struct {
	r      *rand.Rand
	shape  Shape
	memory []byte
	page   Page
	// now counts steps. truth has, for each key, its values and the steps at which they became
	// valid.
	now    int
	truth  map[uint64][]fact
	writes []copyStep
	n      uint64
	sib    []byte
	span   uint64
	// first and last bound the keys that the present chain of WRITEs changes.
	first, last uint64
	// hot is the key of three out of four writes.
	hot uint64
}

// fact: from a step on, a key has a value (0: none). own: the page covers the key.
type fact struct {
	from  int
	value uint64
	own   bool
}

// copyStep is a part of a WRITE that is not executed yet.
type copyStep struct {
	off  int
	data []byte
}

func newWorld(s Shape, seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 3)), shape: s, memory: make([]byte, s.Page), truth: map[uint64][]fact{}, sib: make([]byte, s.Page)}
	w.reset()
	return w
}

func (w *world) reset() {
	w.page.Init(w.shape, make([]byte, w.shape.Page), Header{Highest: MaxKey, Self: 1 << 20})
	copy(w.memory, w.page.Bytes)
	w.span = 64
	for k := range w.span {
		w.truth[k] = append(w.truth[k], fact{w.now, 0, true})
	}
}

// queue splits a WRITE into its parts. Ranges of a chain are executed one after the other.
func (w *world) queue(r Range) {
	data := append([]byte(nil), w.page.Bytes[r.Off:r.Off+r.Len]...)
	if cut := w.cut(r.Off, r.Len); cut > 0 {
		first, second := copyStep{r.Off, data[:cut]}, copyStep{r.Off + cut, data[cut:]}
		if w.r.IntN(2) == 0 {
			first, second = second, first
		}
		w.writes = append(w.writes, first, second)
		return
	}
	w.writes = append(w.writes, copyStep{r.Off, data})
}

// cut returns the line boundary at which a copy is torn; 0: the copy is not torn.
func (w *world) cut(off, n int) int {
	if n < 2 || w.r.IntN(2) == 0 {
		return 0
	}
	cut := 1 + w.r.IntN(n-1)
	return max(0, cut-(off+cut)%Line)
}

// step executes one part of the writer's present operation, or begins another operation.
func (w *world) step() {
	w.now++
	if len(w.writes) > 0 {
		s := w.writes[0]
		copy(w.memory[s.off:], s.data)
		if w.writes = w.writes[1:]; len(w.writes) == 0 {
			w.settle()
		}
		return
	}
	w.n++
	p := &w.page
	key := w.r.Uint64N(w.span)
	if w.r.IntN(4) > 0 {
		key = w.hot
	}
	for !p.Covers(key) {
		key /= 2
	}
	slot, _, there, _ := p.Find(key)
	w.first, w.last = key, key
	switch {
	case there && w.r.IntN(40) == 0:
		w.queue(p.Remove(slot))
	case there:
		w.queue(p.Put(slot, key, w.value(key)))
	default:
		if slot = p.FreeSlot(); slot < 0 {
			w.split()
			return
		}
		w.queue(p.Put(slot, key, w.value(key)))
	}
}

func (w *world) value(key uint64) []byte {
	v := binary.LittleEndian.AppendUint64(nil, key<<40|w.n)
	for len(v) < w.shape.Value {
		v = append(v, byte(w.n))
	}
	return v
}

func (w *world) split() {
	w.first, w.last = 0, w.span-1
	var sib Page
	_, _, ranges := w.page.Split(Fresh{At: 2 << 20}, w.sib, &sib, nil, nil)
	for _, r := range ranges {
		w.queue(r)
	}
}

// settle records the facts of a chain of WRITEs that was executed. A reader may have seen them from
// the chain's first part on.
func (w *world) settle() {
	for k := w.first; k <= w.last; k++ {
		v := uint64(0)
		own := w.page.Covers(k)
		if _, b, ok, _ := w.page.Find(k); ok && own {
			v = binary.LittleEndian.Uint64(b)
		}
		if last := w.truth[k][len(w.truth[k])-1]; last.value != v || last.own != own {
			w.truth[k] = append(w.truth[k], fact{w.now, v, own})
		}
	}
}

// read reads the page in two parts while the writer goes on for up to pause steps, and returns the
// first and last step of the READ.
func (w *world) read(pause int) (b []byte, from, to int) {
	b, from = make([]byte, w.shape.Page), w.now
	cut := w.cut(0, len(b))
	parts := [][2]int{{0, cut}, {cut, len(b)}}
	if w.r.IntN(2) == 0 {
		parts[0], parts[1] = parts[1], parts[0]
	}
	copy(b[parts[0][0]:parts[0][1]], w.memory[parts[0][0]:parts[0][1]])
	for range w.r.IntN(pause + 1) {
		w.step()
	}
	copy(b[parts[1][0]:parts[1][1]], w.memory[parts[1][0]:parts[1][1]])
	return b, from, w.now
}

// judge returns an error if Parse accepts the page b and the page shows a value that its key did
// not have at any moment of the READ.
func (w *world) judge(b []byte, from, to int) error {
	var p Page
	if err := p.Parse(w.shape, b); err != nil {
		return nil // a reader would read the page again
	}
	for len(w.writes) > 0 {
		w.step() // the current operation may be visible or not
	}
	for k := range w.span {
		if !p.Covers(k) {
			continue
		}
		got := uint64(0)
		_, v, ok, err := p.Find(k)
		if err != nil {
			continue // a reader would read the page again
		}
		if ok {
			got = binary.LittleEndian.Uint64(v)
			for i, c := range v[8:] {
				if c != byte(got) {
					return fmt.Errorf("key %d: byte %d of a value of two writes", k, i+8)
				}
			}
		}
		if !w.wasTrue(k, got, from, to) {
			return fmt.Errorf("key %d: %x, read from step %d to %d; facts %v", k, got, from, to, w.truth[k][max(0, len(w.truth[k])-20):])
		}
	}
	return nil
}

// wasTrue reports whether a key had a value at a moment between two steps, or at the end of the
// current operation.
func (w *world) wasTrue(k, v uint64, from, to int) bool {
	list := w.truth[k]
	for i, f := range list {
		end := 1 << 60
		if i+1 < len(list) {
			end = list[i+1].from
		}
		if f.own && f.value == v && f.from <= max(to, w.now) && end >= from {
			return true
		}
	}
	return false
}

// hunt looks for a page with a wrong value that Parse accepts.
func hunt(s Shape, seed uint64, reads, pause int) error {
	w := newWorld(s, seed)
	for range reads {
		for range w.r.IntN(4) {
			w.step()
		}
		w.hot = w.r.Uint64N(min(w.span, w.page.Highest))
		b, from, to := w.read(pause)
		if err := w.judge(b, from, to); err != nil {
			return err
		}
		if w.page.Highest < 8 {
			for len(w.writes) > 0 {
				w.step()
			}
			w.reset() // begin with another page
		}
		for k, f := range w.truth {
			w.truth[k] = f[max(0, len(f)-100):]
		}
	}
	return nil
}

// The hardened and the checksummed layout never accept a page with a value that the key had at no
// moment of the READ, however copies are torn. The published layout does so for some seeds.
func TestTornCopies(t *testing.T) {
	const reads = 300
	for _, shape := range []Shape{{}, {Page: 256}, {Page: 256, Value: 20}, {Page: 512, Value: 54}} {
		shape = shape.WithDefaults()
		for seed := range uint64(20) {
			if err := hunt(shape, seed, reads, 80); err != nil {
				t.Fatalf("%v, seed %d: %v", shape, seed, err)
			}
		}
		summed := shape
		summed.Kind, summed.Value = Checksummed, min(shape.Value, 40)
		for seed := range uint64(4) {
			if err := hunt(summed, seed, reads, 80); err != nil {
				t.Fatalf("%v, seed %d: %v", summed, seed, err)
			}
		}
		if shape == (Shape{}).WithDefaults() {
			continue // random runs need many more seeds to show it: see TestSixteenUpdatesDuringARead
		}
		shape.Kind = Published
		var found error
		seed := uint64(0)
		for ; seed < 60 && found == nil; seed++ {
			found = hunt(shape, seed, 10*reads, 80)
		}
		t.Logf("%v: seed %d accepts what was never true: %.300v", shape, seed-1, found)
		if found == nil {
			t.Errorf("%v: the flaw of the published layout does not show: these copies are not torn enough", shape)
		}
	}
}

// Sixteen updates of one record happen between the two halves of a READ, and the record's versions
// of 4 bits agree: half of the value is old, half is new. The hardened layout has each record in
// one line and shows the old or the new one.
func TestSixteenUpdatesDuringARead(t *testing.T) {
	const slot, cut = 4, 2 * Line // the published record 4 is at bytes 116 to 133
	for _, kind := range []Kind{Hardened, Published} {
		var p Page
		s := Shape{Kind: kind}.WithDefaults()
		p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
		values := map[string]bool{}
		put := func(n uint64) {
			v := binary.LittleEndian.AppendUint64(nil, n*0x0101010101010101)
			values[string(v)] = true
			p.Put(slot, 7, v)
		}
		put(1)
		read := append([]byte(nil), p.Bytes[:cut]...)
		for n := range uint64(16) {
			put(2 + n)
		}
		read = append(read, p.Bytes[cut:]...)
		var got Page
		if err := got.Parse(s, read); err != nil {
			t.Fatal(kind, err)
		}
		_, v, ok, err := got.Find(7)
		if !ok || err != nil {
			t.Fatal(kind, ok, err)
		}
		if values[string(v)] != (kind == Hardened) {
			t.Errorf("%v: value %x; written as a whole: %v", kind, v, values[string(v)])
		}
	}
}

// A reader that finds a record younger than its header has read during a split: the key that it
// looks for may have moved.
func TestARecordYoungerThanTheHeaderIsTorn(t *testing.T) {
	s := Shape{Page: MinPage}.WithDefaults()
	var p, sib, got Page
	p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
	for k := range uint64(s.Slots(0)) {
		p.Put(int(k), 10*k, []byte("old"))
	}
	before := append([]byte(nil), p.Bytes...)
	sep, _, _ := p.Split(Fresh{At: 1 << 20}, make([]byte, s.Page), &sib, nil, nil)
	if err := got.Parse(s, append(append([]byte(nil), before[:Line]...), p.Bytes[Line:]...)); err != nil {
		t.Fatal("a page of which no record has been overwritten yet:", err)
	}
	if _, v, ok, _ := got.Find(sep); !ok || string(v) != "old" {
		t.Error("the old page does not have its records of before the split")
	}
	p.Put(p.FreeSlot(), 1, []byte("new"))
	if err := got.Parse(s, append(append([]byte(nil), before[:Line]...), p.Bytes[Line:]...)); !errors.Is(err, ErrTorn) {
		t.Error("a page with lines of before and after a split:", err)
	}
	if err := got.Parse(s, p.Bytes); err != nil {
		t.Error(err)
	}
}

// A page can split any number of times: the epochs of records that are not written are updated
// before they look young.
func TestEpochsWrap(t *testing.T) {
	s := Shape{Page: MinPage}.WithDefaults()
	var p, sib Page
	p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
	p.Put(p.FreeSlot(), 0, []byte("first")) // it stays in this page
	key := MaxKey - 1
	var ranges []Range
	for n := range 5000 {
		for p.FreeSlot() >= 0 {
			p.Put(p.FreeSlot(), key, []byte{1})
			key -= 1 << 40
		}
		image := append([]byte(nil), p.Bytes...)
		_, _, ranges = p.Split(Fresh{At: 1 << 20}, make([]byte, s.Page), &sib, nil, ranges[:0])
		for _, r := range ranges { // the page is valid after each range
			copy(image[r.Off:r.Off+r.Len], p.Bytes[r.Off:])
			var got Page
			if err := got.Parse(s, image); err != nil {
				t.Fatalf("split %d: %v", n, err)
			}
			if _, v, ok, _ := got.Find(0); !ok || string(v) != "first" {
				t.Fatalf("split %d: the first record is %q", n, v)
			}
		}
	}
}

// The first and the last line of a page are those of a WRITE, and a line between them is older: the
// versions at both ends agree, so only the checksum shows it.
func TestAnOldLineBetweenNewOnesIsTorn(t *testing.T) {
	s := Shape{Kind: Checksummed}.WithDefaults()
	var p, got Page
	p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
	for k := range uint64(s.Slots(0)) {
		p.Put(p.FreeSlot(), k, []byte("old"))
	}
	before := append([]byte(nil), p.Bytes...)
	slot, _, _, _ := p.Find(20)
	p.Put(slot, 20, []byte("new"))
	mixed := append([]byte(nil), p.Bytes...)
	line := s.slotAt(0, slot) / Line * Line
	copy(mixed[line:line+Line], before[line:])
	if err := got.Parse(s, mixed); !errors.Is(err, ErrTorn) {
		t.Errorf("an old line in a new page: %v", err)
	}
	if err := got.Parse(s, p.Bytes); err != nil {
		t.Error(err)
	}
}
