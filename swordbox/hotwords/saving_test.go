package hotwords

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// counting is a Space-Saving table, or one with a bug.
type counting interface {
	add(key uint64, kind int) bool
	entries() []entry
}

func (s *saving) entries() []entry { return slices.Clone(s.heap) }

// judge adds a stream of keys to a table, and returns an error that describes the difference from
// exact counts. skew is the exponent of the Zipf distribution of the keys.
func judge(table counting, n int, seed uint64, skew float64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(r, skew, 1, 1<<12)
	exact := make(map[uint64]uint64)
	const stream = 20_000
	for range stream {
		key := pipeline.Hash(zipf.Uint64()) // so that equal ranks have different places
		exact[key]++
		table.add(key, int(key%kinds))
	}
	var sum uint64
	seen := make(map[uint64]bool)
	for _, e := range table.entries() {
		sum += e.count
		switch came := exact[e.key]; {
		case seen[e.key]:
			return fmt.Errorf("key %#x is in the table twice", e.key)
		case e.count < came:
			return fmt.Errorf("key %#x: count %d, but it came %d times", e.key, e.count, came)
		case e.count-e.over > came:
			return fmt.Errorf("key %#x: count %d, over %d, but it came %d times", e.key, e.count, e.over, came)
		case e.over > stream/uint64(n):
			return fmt.Errorf("key %#x: over %d of %d requests with %d counters", e.key, e.over, stream, n)
		case e.kinds[e.key%kinds] != e.count-e.over:
			return fmt.Errorf("key %#x: %v of %d", e.key, e.kinds, e.count-e.over)
		}
		seen[e.key] = true
	}
	if sum != stream {
		return fmt.Errorf("the counts are %d in all, not %d", sum, stream)
	}
	for key, count := range exact {
		if count > stream/uint64(n) && !seen[key] {
			return fmt.Errorf("key %#x came %d times and is not in a table of %d", key, count, n)
		}
	}
	return nil
}

// The bounds of Space-Saving hold against exact counting.
func TestSavingAgainstExactCounting(t *testing.T) {
	if err := judgeAll(func(s *saving) counting { return s }); err != nil {
		t.Error(err)
	}
}

// judgeAll judges tables of several sizes with several streams, and returns the first error.
func judgeAll(wrap func(*saving) counting) error {
	for _, n := range []int{1, 2, 3, 8, 64, 1000, 5000} {
		for seed := range uint64(5) {
			for _, skew := range []float64{1.01, 1.5, 3} {
				if err := judge(wrap(newSaving(n)), n, seed, skew); err != nil {
					return fmt.Errorf("%d counters, seed %d, skew %v: %w", n, seed, skew, err)
				}
			}
		}
	}
	return nil
}

// forgetful is a table with a bug: the count of a new key begins at 0.
type forgetful struct{ *saving }

func (f forgetful) add(key uint64, kind int) bool {
	taken := f.saving.add(key, kind)
	if _, at := f.find(key); taken {
		f.heap[at].count, f.heap[at].over = 1, 0
	}
	return taken
}

// sure is a table with a bug: a new key takes over the count of the evicted one, but does not
// report it as the possible error.
type sure struct{ *saving }

func (s sure) add(key uint64, kind int) bool {
	taken := s.saving.add(key, kind)
	if _, at := s.find(key); taken {
		s.heap[at].over = 0
	}
	return taken
}

// full is a table with a bug: it has no room for new keys once it is full.
type full struct{ *saving }

func (f full) add(key uint64, kind int) bool {
	if _, at := f.find(key); at < 0 && len(f.heap) == cap(f.heap) {
		return false
	}
	return f.saving.add(key, kind)
}

// loose is a table with a bug: it does not restore the order of the heap, so a key may take over a
// large count.
type loose struct{ *saving }

func (l loose) add(key uint64, kind int) bool {
	if _, at := l.find(key); at >= 0 {
		l.heap[at].count++
		l.heap[at].kinds[kind]++
		return false
	}
	return l.saving.add(key, kind)
}

// The judge finds each of these bugs.
func TestJudgeFindsBugs(t *testing.T) {
	for name, plant := range map[string]func(*saving) counting{
		"forgetful": func(s *saving) counting { return forgetful{s} },
		"sure":      func(s *saving) counting { return sure{s} },
		"full":      func(s *saving) counting { return full{s} },
		"loose":     func(s *saving) counting { return loose{s} },
	} {
		if err := judgeAll(plant); err == nil {
			t.Errorf("%s was not found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
