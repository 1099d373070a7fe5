package lookuptable

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// memory is a table in memory, with its control plane.
type memory struct {
	Layout
	bytes []byte
}

func (m *memory) home(k *Key) int {
	_, home := m.Place(k.Hash())
	return home
}

func (m *memory) change(e *Entry, remove bool) error {
	home := m.home(&e.Key)
	span := m.bytes[home*SlotLen : min(home+maxSpan, m.Slots())*SlotLen]
	list, err := plan(nil, span, e, remove, home, m.home)
	for _, w := range list {
		copy(m.bytes[(home+w.index)*SlotLen:], w.bytes[:])
	}
	return err
}

func (m *memory) find(k *Key) (Action, bool) {
	a, found, torn := search(m.bytes[m.home(k)*SlotLen:][:Probe*SlotLen], k)
	return a, found && !torn
}

func newMemory(capacity int) *memory {
	m := &memory{Layout: Layout{Servers: make([]netip.Addr, 1), Capacity: capacity}}
	m.bytes = make([]byte, m.Slots()*SlotLen)
	return m
}

func keyOf(i int) Key {
	return Key{Src: [16]byte{10, 0, byte(i >> 16), byte(i >> 24)}, Dst: [16]byte{10, 1}, SrcPort: uint16(i), DstPort: 80, Proto: protoTCP}
}

// Keys without any order fill half of the slots, too: of a million at most 50 find no room.
func TestMillionRandomEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 10))
	m, refused := newMemory(2<<20), 0
	for range 1_000_000 {
		a, b := r.Uint64(), r.Uint64()
		k := Key{Src: [16]byte{10, byte(a), byte(a >> 8), byte(a >> 16)}, Dst: [16]byte{10, byte(b), byte(b >> 8)}, SrcPort: uint16(a >> 24), DstPort: uint16(b >> 16), Proto: protoTCP}
		if m.change(&Entry{k, Action{Ops: OpDSCP}}, false) != nil {
			refused++
		}
	}
	t.Logf("%d of a million entries find no room in %d slots", refused, m.Slots())
	if refused > 50 {
		t.Errorf("%d of a million entries find no room", refused)
	}
}

// A million entries find room in two million slots, and each is found with its own action.
func TestMillionEntries(t *testing.T) {
	const n = 1_000_000
	m := newMemory(2 << 20)
	for i := range n {
		if err := m.change(&Entry{keyOf(i), Action{Ops: OpDSCP, Port: uint16(i * 7)}}, false); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	for i := range n {
		k := keyOf(i)
		if a, ok := m.find(&k); !ok || a.Port != uint16(i*7) {
			t.Fatalf("entry %d: %v, %v", i, a, ok)
		}
	}
	if k := keyOf(n + 1); func() bool { _, ok := m.find(&k); return ok }() {
		t.Error("a key that was not added is found")
	}
}

// At every moment between two WRITEs of a change, all other entries are found. The table behaves like
// a map.
func TestEveryEntryIsFoundDuringChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	m, want, moved := newMemory(100), make(map[Key]Action), 0
	for step := range 3_000 {
		e := Entry{keyOf(r.IntN(90)), Action{Ops: OpDSCP, Port: uint16(step)}}
		remove := r.IntN(3) == 0
		home := m.home(&e.Key)
		list, err := plan(nil, m.bytes[home*SlotLen:min(home+maxSpan, m.Slots())*SlotLen], &e, remove, home, m.home)
		_, had := want[e.Key]
		if (err != nil) && (remove == had || had) {
			t.Fatalf("step %d: %v, remove %v, had %v", step, err, remove, had)
		}
		if err != nil {
			continue
		}
		moved += len(list) - 1
		delete(want, e.Key)
		for _, w := range list {
			copy(m.bytes[(home+w.index)*SlotLen:], w.bytes[:])
			for k, a := range want {
				if got, ok := m.find(&k); !ok || got != a {
					t.Fatalf("step %d: an entry is not found while another one changes", step)
				}
			}
		}
		if !remove {
			want[e.Key] = e.Action
		}
		if got, ok := m.find(&e.Key); ok == remove || ok && got != e.Action {
			t.Fatalf("step %d: found %v after remove %v", step, ok, remove)
		}
	}
	if moved == 0 {
		t.Error("no entry has moved on")
	}
}

// A change may end after some of its WRITEs, because a connection or the switch has failed, and is
// made again or is not. Then the other entries are still found, each can be changed and removed, and
// if the change was made again, no entry takes two slots.
func TestChangesThatEndHalfway(t *testing.T) {
	for _, again := range []bool{true, false} {
		r := rand.New(rand.NewPCG(3, 9))
		m, want, halfway := newMemory(100), make(map[Key]Action), 0
		for step := range 5_000 {
			e := Entry{keyOf(r.IntN(90)), Action{Ops: OpDSCP, Port: uint16(step)}}
			remove := r.IntN(3) == 0
			home := m.home(&e.Key)
			list, err := plan(nil, m.bytes[home*SlotLen:min(home+maxSpan, m.Slots())*SlotLen], &e, remove, home, m.home)
			if err != nil {
				continue
			}
			if n := len(list); n > 1 {
				halfway++
				for _, w := range list[:1+r.IntN(n-1)] {
					copy(m.bytes[(home+w.index)*SlotLen:], w.bytes[:])
				}
			}
			if again || len(list) == 1 {
				if err := m.change(&e, remove); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				if want[e.Key] = e.Action; remove {
					delete(want, e.Key)
				}
			}
			for i := range 90 {
				k := keyOf(i)
				a, had := want[k]
				if got, ok := m.find(&k); ok != had || got != a {
					t.Fatalf("step %d, again %v: key %d has %v, %v; want %v, %v", step, again, i, got, ok, a, had)
				}
			}
			used := 0
			for i := range m.Slots() {
				if parseSlot(m.bytes[i*SlotLen:][:SlotLen], new(Entry)) == slotUsed {
					used++
				}
			}
			if again && used != len(want) {
				t.Fatalf("step %d: %d entries take %d slots", step, len(want), used)
			}
		}
		if halfway == 0 {
			t.Error("no change has ended halfway")
		}
	}
}

// A slot with two versions is torn, and a key that is found elsewhere is found.
func TestTornSlots(t *testing.T) {
	m := newMemory(16)
	e := Entry{keyOf(3), Action{Ops: OpDrop}}
	if err := m.change(&e, false); err != nil {
		t.Fatal(err)
	}
	home := m.home(&e.Key)
	m.bytes[(home+1)*SlotLen]++
	if _, ok := m.find(&e.Key); !ok {
		t.Error("another slot that is torn hides an entry")
	}
	m.bytes[home*SlotLen]++
	if _, found, torn := search(m.bytes[home*SlotLen:], &e.Key); found || !torn {
		t.Errorf("a torn entry: found %v, torn %v", found, torn)
	}
	if err := m.change(&e, false); err != nil { // it must not take the place of what it cannot read
		t.Fatal(err)
	}
	if m.bytes[home*SlotLen] == m.bytes[home*SlotLen+SlotLen-1] {
		t.Error("a torn slot was written over")
	}
}

// No bytes in a server's memory make a slot an action that does not exist.
func FuzzSlot(f *testing.F) {
	f.Add(AppendSlot(nil, 1, &Entry{keyOf(1), Action{Ops: OpDSCP, DSCP: 9}}, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Entry
		if len(b) < SlotLen {
			return
		}
		if s := parseSlot(b, &e); s == slotUsed && (e.Action.Ops&^opsKnown != 0 || e.Action.DSCP > 63) {
			t.Errorf("%+v", e)
		}
		search(b, &e.Key)
	})
}

// A slot that is left from a former table lies before the home slot of its key, which has a live entry
// behind it. An entry that is added takes that slot, and does not move it in front of the live one.
func TestASlotOfAFormerTableHidesNoEntry(t *testing.T) {
	const n, stray, live, home = 16, 5, 10, 7
	key := func(i int) (k Key) { k.SrcPort = uint16(i); return k }
	homes := map[Key]int{key(99): home, key(50): 0}
	var mem []byte
	for i := range n {
		e := Entry{Key: key(i)}
		switch i {
		case stray:
			e = Entry{Key: key(99), Action: Action{DSCP: 1}}
		case live:
			e = Entry{Key: key(99), Action: Action{DSCP: 2}}
		default:
			homes[e.Key] = max(i-Probe+1, 0)
		}
		mem = AppendSlot(mem, 1, &e, i != 8)
	}
	list, err := plan(nil, mem, &Entry{Key: key(50)}, false, 0, func(k *Key) int { return homes[*k] })
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		copy(mem[w.index*SlotLen:], w.bytes[:])
	}
	for i, from := range map[int]int{99: home, 50: 0} {
		k := key(i)
		if a, found, _ := search(mem[from*SlotLen:][:Probe*SlotLen], &k); !found || i == 99 && a.DSCP != 2 {
			t.Errorf("key %d: found %v, %+v", i, found, a)
		}
	}
}
