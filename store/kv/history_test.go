package kv

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// op is one line of an invented history.
type op struct {
	client     int
	in         input
	out        output
	call, back clock.Time
}

func put(v uint64) input    { return input{kind: opPut, value: v} }
func insert(v uint64) input { return input{kind: opInsert, value: v} }
func upsert(v uint64) input { return input{kind: opUpsert, value: v} }

var get, del = input{kind: opGet}, input{kind: opDelete}

func is(o outcome) output     { return output{outcome: o} }
func reads(v uint64) output   { return output{value: v} }
func ok() output              { return output{where: Anywhere} }
func history(ops ...op) error { return build(ops, -1).Check(MostStates) }

// build records the calls and answers in the order of their times; at equal times, the calls first.
func build(ops []op, loss clock.Time) *History {
	h := NewHistory()
	type event struct {
		at   clock.Time
		kind int // 0 call, 1 loss, 2 answer
		op   int
	}
	var events []event
	for i, o := range ops {
		events = append(events, event{o.call, 0, i}, event{o.back, 2, i})
	}
	if loss >= 0 {
		events = append(events, event{loss, 1, 0})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), a.kind-b.kind) })
	index := make([]int, len(ops))
	for _, e := range events {
		switch o := &ops[e.op]; e.kind {
		case 0:
			index[e.op] = h.invoke(1, o.client, o.in, o.call)
		case 1:
			h.Loss(loss, 1)
		default:
			h.answer(1, index[e.op], o.out, o.back)
		}
	}
	return h
}

// Operations at the same time are ordered by their calls and answers: a client that reads after its
// own write sees the write.
func TestHistoryOrdersOneInstant(t *testing.T) {
	for name, tc := range map[string]struct {
		value uint64
		good  bool
	}{"the own write": {2, true}, "what was before": {1, false}} {
		h := NewHistory()
		for _, o := range []op{{0, insert(1), ok(), 5, 5}, {0, put(2), ok(), 5, 5}, {0, get, reads(tc.value), 5, 5}} {
			h.answer(1, h.invoke(1, o.client, o.in, o.call), o.out, o.back)
		}
		if err := h.Check(MostStates); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHistories(t *testing.T) {
	for name, tc := range map[string]struct {
		ops  []op
		good bool
	}{
		"a read sees the last write":        {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), ok(), 2, 3}, {1, get, reads(2), 4, 5}}, true},
		"a stale read":                      {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), ok(), 2, 3}, {1, get, reads(1), 4, 5}}, false},
		"a read beside a write":             {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), ok(), 2, 6}, {1, get, reads(1), 4, 5}}, true},
		"reads that go back":                {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), ok(), 2, 9}, {1, get, reads(2), 3, 4}, {1, get, reads(1), 5, 6}}, false},
		"an unknown write shows later":      {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), is(unknown), 2, 3}, {1, get, reads(1), 4, 5}, {1, get, reads(2), 6, 7}}, true},
		"an unknown write is undone":        {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), is(unknown), 2, 3}, {1, get, reads(2), 4, 5}, {1, get, reads(1), 6, 7}}, false},
		"a lost write":                      {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), ok(), 2, 3}, {0, put(3), ok(), 4, 5}, {1, get, reads(2), 6, 7}}, false},
		"deleted":                           {[]op{{0, insert(1), ok(), 0, 1}, {0, del, ok(), 2, 3}, {1, get, is(notFound), 4, 5}, {1, insert(2), ok(), 6, 7}}, true},
		"a deleted value comes back":        {[]op{{0, insert(1), ok(), 0, 1}, {0, del, ok(), 2, 3}, {1, get, reads(1), 4, 5}}, false},
		"two inserts succeed":               {[]op{{0, insert(1), ok(), 0, 1}, {1, insert(2), ok(), 2, 3}}, false},
		"lost without a loss":               {[]op{{0, insert(1), ok(), 0, 1}, {1, get, is(lost), 2, 3}}, false},
		"a read of a value never written":   {[]op{{0, insert(1), ok(), 0, 1}, {1, get, reads(9), 2, 3}}, false},
		"no effect":                         {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), is(noEffect), 2, 3}, {0, del, is(noEffect), 2, 3}, {1, get, reads(1), 4, 5}}, true},
		"a write without effect shows":      {[]op{{0, insert(1), ok(), 0, 1}, {0, put(2), is(noEffect), 2, 3}, {1, get, reads(2), 4, 5}}, false},
		"an insert without effect shows":    {[]op{{0, insert(1), is(noEffect), 0, 1}, {1, insert(2), is(exists), 2, 3}}, false},
		"a delete without effect shows":     {[]op{{0, insert(1), ok(), 0, 1}, {0, del, is(noEffect), 2, 3}, {1, get, is(notFound), 4, 5}}, false},
		"upserts of a new and an old key":   {[]op{{0, upsert(1), ok(), 0, 1}, {1, upsert(2), ok(), 2, 3}, {1, get, reads(2), 4, 5}}, true},
		"an upsert that is not there":       {[]op{{0, insert(1), ok(), 0, 1}, {1, upsert(2), ok(), 2, 3}, {1, get, reads(1), 4, 5}}, false},
		"an unknown upsert makes the key":   {[]op{{0, upsert(1), is(unknown), 0, 1}, {1, insert(2), is(exists), 2, 3}}, true},
		"an upsert finds no key":            {[]op{{0, upsert(1), is(notFound), 0, 1}}, false},
		"insert of a key that is not there": {[]op{{0, insert(1), is(exists), 0, 1}}, false},
	} {
		if err := history(tc.ops...); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoss(t *testing.T) {
	before := op{0, insert(1), ok(), 0, 1}
	for name, tc := range map[string]struct {
		ops  []op
		good bool
	}{
		"lost":                      {[]op{before, {1, get, is(lost), 6, 7}}, true},
		"not lost":                  {[]op{before, {1, get, reads(1), 6, 7}}, true},
		"lost, then the old value":  {[]op{before, {1, get, is(lost), 6, 7}, {1, get, reads(1), 8, 9}}, false},
		"lost, then inserted again": {[]op{before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {1, get, reads(2), 10, 11}}, true},
		"an older value served":     {[]op{before, {0, put(2), ok(), 2, 3}, {1, get, reads(1), 6, 7}}, false},
		"lost twice": {[]op{
			before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {1, get, is(lost), 10, 11},
		}, false},
		// The node of a PUT or a DELETE that was written before the loss may be appended after it,
		// to the chain of a key that was inserted again.
		"lost twice, by a PUT in progress": {[]op{
			before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {0, put(3), ok(), 4, 10}, {1, get, is(lost), 11, 12},
		}, true},
		"lost twice, by a PUT without an answer": {[]op{
			before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {0, put(3), is(unknown), 4, 5}, {1, get, is(lost), 11, 12},
		}, true},
		"lost twice, by a DELETE in progress": {[]op{
			before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {0, del, ok(), 4, 10}, {1, get, is(lost), 11, 12},
		}, true},
		"lost twice, by a PUT that came later": {[]op{
			before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {0, put(3), ok(), 6, 10}, {1, get, is(lost), 11, 12},
		}, false},
		"lost twice, by an INSERT in progress": {[]op{
			before, {1, get, is(lost), 6, 7}, {0, insert(2), ok(), 4, 9}, {1, get, is(lost), 11, 12},
		}, false},
		"lost twice, by a PUT in progress, then the value before it": {[]op{
			before, {1, get, is(lost), 6, 7}, {1, insert(2), ok(), 8, 9}, {0, put(3), ok(), 4, 10}, {1, get, reads(2), 11, 12},
		}, true}, // the PUT may have been executed before the loss
		"lost three times, by one PUT": {[]op{
			before,
			{1, get, is(lost), 6, 7},
			{1, insert(2), ok(), 8, 9},
			{0, put(3), ok(), 4, 20},
			{1, get, is(lost), 11, 12},
			{1, insert(4), ok(), 13, 14},
			{1, get, is(lost), 15, 16},
		}, false},
		"an older value served after a PUT in progress": {[]op{
			before,
			{1, get, is(lost), 6, 7},
			{1, insert(2), ok(), 8, 9},
			{0, put(3), ok(), 4, 10},
			{1, get, is(lost), 11, 12},
			{1, get, reads(2), 13, 14},
		}, false},
	} {
		if err := build(tc.ops, 5).Check(MostStates); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A key that has nothing in the lost memory is not lost. Only the writes since it was inserted
// decide what it has there.
func TestLossOfMemoryElsewhere(t *testing.T) {
	at := func(p Places) output { return output{where: p} }
	for name, tc := range map[string]struct {
		ops  []op
		good bool
	}{
		"there":                               {[]op{{0, insert(1), at(1), 0, 1}, {1, get, is(lost), 6, 7}}, true},
		"elsewhere":                           {[]op{{0, insert(1), at(2), 0, 1}, {1, get, is(lost), 6, 7}}, false},
		"never inserted":                      {[]op{{1, get, is(lost), 6, 7}}, false},
		"one of its values there":             {[]op{{0, insert(1), at(1), 0, 1}, {0, put(2), at(2), 2, 3}, {1, get, is(lost), 6, 7}}, true},
		"its last value there":                {[]op{{0, insert(1), at(2), 0, 1}, {0, put(2), at(1), 2, 3}, {1, put(3), is(lost), 6, 7}}, true},
		"its tombstone there":                 {[]op{{0, insert(1), at(2), 0, 1}, {0, del, at(1), 2, 3}, {1, get, is(lost), 6, 7}}, true},
		"inserted again elsewhere":            {[]op{{0, insert(1), at(1), 0, 1}, {0, del, at(1), 1, 2}, {0, insert(2), at(2), 3, 4}, {1, get, is(lost), 6, 7}}, false},
		"upserted again elsewhere":            {[]op{{0, insert(1), at(2), 0, 1}, {0, del, at(1), 1, 2}, {0, upsert(2), at(2), 3, 4}, {1, get, is(lost), 6, 7}}, false},
		"written there after the loss":        {[]op{{0, insert(1), at(2), 0, 1}, {0, put(2), at(1), 6, 7}, {1, get, is(lost), 8, 9}}, false},
		"a write without an answer":           {[]op{{0, insert(1), at(2), 0, 1}, {0, put(2), is(unknown), 2, 3}, {1, get, is(lost), 6, 7}}, true},
		"a write without effect":              {[]op{{0, insert(1), at(2), 0, 1}, {0, put(2), is(noEffect), 2, 3}, {1, get, is(lost), 6, 7}}, false},
		"lost twice, by a PUT there":          {[]op{{0, insert(1), at(1), 0, 1}, {1, get, is(lost), 6, 7}, {1, insert(2), at(2), 8, 9}, {0, put(3), at(1), 4, 10}, {1, get, is(lost), 11, 12}}, true},
		"lost twice, by a PUT elsewhere":      {[]op{{0, insert(1), at(1), 0, 1}, {1, get, is(lost), 6, 7}, {1, insert(2), at(2), 8, 9}, {0, put(3), at(2), 4, 10}, {1, get, is(lost), 11, 12}}, false},
		"a value elsewhere that is not there": {[]op{{0, insert(1), at(2), 0, 1}, {1, get, is(notFound), 6, 7}}, false},
	} {
		if err := build(tc.ops, 5).Check(MostStates); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many writes without an answer, whose values no client has read, do not make the check too slow.
func TestManyUnknownWrites(t *testing.T) {
	ops := []op{{0, insert(1), ok(), 0, 1}}
	for i := range 60 {
		ops = append(ops, op{2 + i, put(uint64(100 + i)), is(unknown), 2, 3}, op{2 + i, get, is(unknown), 4, 5})
	}
	seen := append(slices.Clone(ops), op{1, get, reads(130), 6, 7})
	if err := history(append(slices.Clone(seen), op{1, get, reads(130), 8, 9})...); err != nil {
		t.Errorf("one of them is seen: %v", err)
	}
	if err := history(append(seen, op{1, get, reads(1), 8, 9})...); err == nil || !strings.Contains(err.Error(), "not linearizable") {
		t.Errorf("one of them is seen and undone: %v", err)
	}
}

func TestValues(t *testing.T) {
	for _, n := range []int{0, 16, 17, 1000} {
		v := MakeValue(5, 77, n)
		if got, err := CheckValue(5, v); err != nil || got != 77 || len(v) != max(n, MinValue) {
			t.Errorf("%d bytes: %d %v", n, got, err)
		}
		if _, err := CheckValue(6, v); err == nil {
			t.Error("another key's value")
		}
		v[len(v)-1] ^= 1
		if got, err := CheckValue(5, v); err == nil && got == 77 {
			t.Errorf("%d bytes: a changed bit is not seen", n)
		}
	}
}

// LossExplains accepts answers that a key is lost although nothing recorded a loss, but no other
// wrong answer.
func TestLossExplains(t *testing.T) {
	lostThere := []op{{0, insert(1), ok(), 1, 2}, {0, get, is(lost), 3, 4}, {1, insert(2), ok(), 5, 6}, {1, get, reads(2), 7, 8}}
	for name, tc := range map[string]struct {
		ops  []op
		want bool
	}{
		"lost":                     {lostThere, true},
		"lost, and an older value": {append(slices.Clone(lostThere), op{0, get, reads(1), 9, 10}), false},
		"an older value":           {[]op{{0, insert(1), ok(), 1, 2}, {0, put(2), ok(), 3, 4}, {0, get, reads(1), 5, 6}}, false},
	} {
		h := build(tc.ops, -1)
		if h.Check(MostStates) == nil {
			t.Errorf("%s: linearizable without a loss", name)
		}
		if got := h.LossExplains(MostStates); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// After End nothing is recorded. What was recorded before is judged: a PUT in progress may have
// happened, and a wrong answer before the end is noticed.
func TestEnd(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		h := NewHistory()
		h.answer(1, h.invoke(1, 0, insert(1), 1), ok(), 2)
		open := h.invoke(1, 0, put(2), 3)
		seen := uint64(2)
		if wrong {
			seen = 3
		}
		h.answer(1, h.invoke(1, 1, get, 4), reads(seen), 5)
		before := h.Len()
		h.End()
		h.answer(1, open, is(noEffect), 6)
		h.answer(1, h.invoke(1, 1, get, 7), reads(9), 8)
		h.Loss(9, Anywhere)
		if err := h.Check(MostStates); (err != nil) != wrong || h.Len() != before {
			t.Errorf("a wrong answer before the end: %v; %v, %d operations of %d", wrong, err, h.Len(), before)
		}
	}
}
