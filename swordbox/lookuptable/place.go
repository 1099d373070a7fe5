package lookuptable

import "errors"

// errNoSlot means that no slot could be made free for an entry.
var errNoSlot = errors.New("all slots that the key may take are in use; give the rule a larger capacity")

// errNoEntry means that there is no entry to remove.
var errNoEntry = errors.New("there is no entry with this key")

// slotWrite is a slot to write: its index behind the home slot, and its bytes.
type slotWrite struct {
	index int
	bytes [SlotLen]byte
}

func (w *slotWrite) set(index int, version uint8, e *Entry, used bool) {
	w.index = index
	AppendSlot(w.bytes[:0], version+1, e, used)
}

// plan appends to list the slots to write, in their order, so that entry e gets into a table or, if
// remove is true, so that the entry of e's key is taken out. span has the slots from the entry's
// home slot on. home returns the home slot of a key, and base is the home slot of the entry's key.
// If all slots that the key may have are in use, entries move to later slots, each within the slots
// that its own key may have (hopscotch hashing). An entry is written to its new slot before its
// former slot is overwritten, so a lookup finds every entry at any time.
//
// If a connection, or the switch, fails between these two WRITEs, both slots have the entry, and
// lookups find the first. The second counts as free, like every slot that no lookup uses. A change
// of the entry clears the second before it writes the first.
func plan(list []slotWrite, span []byte, e *Entry, remove bool, base int, home func(*Key) int) ([]slotWrite, error) {
	n := len(span) / SlotLen
	slot := func(i int) []byte { return span[i*SlotLen:][:SlotLen] }
	var x Entry
	var w slotWrite
	free := -1
	for i := range n {
		switch s := parseSlot(slot(i), &x); {
		case s == slotUsed && i < Probe && x.Key == e.Key:
			for j := i + 1; j < min(n, Probe); j++ {
				if parseSlot(slot(j), &x) == slotUsed && x.Key == e.Key {
					w.set(j, slot(j)[0], e, false)
					list = append(list, w)
				}
			}
			w.set(i, slot(i)[0], e, !remove)
			return append(list, w), nil
		case free < 0 && (s == slotFree || s == slotUsed && unread(span, i, home(&x.Key)-base, &x.Key)):
			free = i
		}
	}
	if remove {
		return nil, errNoEntry
	}
	if free < 0 {
		return nil, errNoSlot
	}
	for free >= Probe {
		moved := false
		for i := free - Probe + 1; i < free && !moved; i++ {
			if parseSlot(slot(i), &x) != slotUsed || base+free-home(&x.Key) >= Probe {
				continue
			}
			w.set(free, slot(free)[0], &x, true)
			list = append(list, w)
			free, moved = i, true
		}
		if !moved {
			return nil, errNoSlot
		}
	}
	w.set(free, slot(free)[0], e, true)
	return append(list, w), nil
}

// unread reports whether no lookup of key k uses slot i of span, although this slot has the key.
// There are two causes: a former table has left the entry in a slot that k cannot have in this
// table, or an earlier slot has the key, too. home is the index of the key's home slot in span.
func unread(span []byte, i, home int, k *Key) bool {
	if home > i || i-home >= Probe {
		return true
	}
	_, found, _ := search(span[max(home, 0)*SlotLen:i*SlotLen], k)
	return found
}
