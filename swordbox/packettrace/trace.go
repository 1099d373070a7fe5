package packettrace

import (
	"cmp"
	"maps"
	"slices"
)

// Trace has the records of one epoch from one or more copies of a ring. Make one with New.
type Trace struct {
	epoch   uint32
	records map[uint64]Record
	others  int
}

// New makes a Trace without records. epoch names the ring whose records it takes.
func New(epoch uint32) *Trace { return &Trace{epoch: epoch, records: make(map[uint64]Record)} }

// Of reports whether the trace takes records of an epoch.
func (t *Trace) Of(epoch uint32) bool { return t.epoch == epoch }

// Add takes the records of a copy of all cells of a ring, which it keeps. The cells may be in any
// order. A cell whose record is of an earlier lap than the newest records is left out: the record that
// should have replaced it was lost.
func (t *Trace) Add(cells []byte) {
	var list []Record
	var newest uint64
	n := uint64(len(cells) / Size)
	t.others = 0
	for ; len(cells) >= Size; cells = cells[Size:] {
		var r Record
		switch {
		case !r.Parse(cells):
		case r.Epoch != t.epoch:
			t.others++
		default:
			list = append(list, r)
			newest = max(newest, r.Number)
		}
	}
	for i := range list {
		if newest-list[i].Number < n {
			t.records[list[i].Number] = list[i]
		}
	}
}

// Records returns the records in the order of their numbers.
func (t *Trace) Records() []Record {
	return slices.SortedFunc(maps.Values(t.records), func(a, b Record) int { return cmp.Compare(a.Number, b.Number) })
}

// Missing returns how many numbers between the first and the last record have none: the switch has
// dropped the record, it is still on its way, or it was overwritten before the memory was copied.
func (t *Trace) Missing() uint64 {
	if len(t.records) == 0 {
		return 0
	}
	list := t.Records()
	return list[len(list)-1].Number - list[0].Number + 1 - uint64(len(list))
}

// Others returns how many records of other epochs were in the last copy: of former incarnations of the
// switch, or of former rules.
func (t *Trace) Others() int { return t.others }
