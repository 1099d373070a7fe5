package check

import (
	"fmt"
	"strings"
)

// Content is a digest of a set of keys, in any order.
type Content struct {
	Keys uint64 `json:"keys"`
	Sum  uint64 `json:"sum"`
}

// Add adds a key.
func (c *Content) Add(key uint64) {
	c.Keys++
	c.Sum += mix(key)
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Report is what was found.
type Report struct {
	// Levels are the numbers of pages, leaves first.
	Levels []int `json:"levels"`
	// Content is what the leaves hold, Room how many records they could.
	Content Content `json:"content"`
	Room    uint64  `json:"room"`
	// HalfSplits are pages that have no separator in the level above yet; searches reach them by way of their neighbour.
	HalfSplits int `json:"halfSplits"`
	// Unreachable are written pages that nothing leads to, Unused those that were given out and never written.
	Unreachable int `json:"unreachable"`
	Unused      int `json:"unused"`
	// Locked are lock words that were not free, Dead those of them whose owners are gone.
	Locked int `json:"locked"`
	Dead   int `json:"dead"`
	// Bytes were read in so many Reads, Again of them because of what was torn or did not fit.
	Bytes uint64 `json:"bytes"`
	Reads int    `json:"reads"`
	Again int    `json:"again"`
	// Problems are the first of Wrong.
	Problems []Problem `json:"problems,omitempty"`
	Wrong    int       `json:"wrong"`
}

// Err is nil for a tree that is whole.
func (r *Report) Err() error {
	if r.Wrong == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the tree has %d faults", r.Wrong)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\n  %v", p)
	}
	if n := r.Wrong - len(r.Problems); n > 0 {
		fmt.Fprintf(&b, "\n  and %d more", n)
	}
	return fmt.Errorf("%s", b.String())
}

// Has reports a problem of a kind.
func (r *Report) Has(k Kind) bool {
	for _, p := range r.Problems {
		if p.Kind == k {
			return true
		}
	}
	return false
}

// String says it on one line.
func (r *Report) String() string {
	pages := 0
	for _, n := range r.Levels {
		pages += n
	}
	s := fmt.Sprintf("%d keys in %d pages on %d levels", r.Content.Keys, pages, len(r.Levels))
	if r.Room > 0 {
		s += fmt.Sprintf(", leaves %.0f%% full", 100*float64(r.Content.Keys)/float64(r.Room))
	}
	return s + fmt.Sprintf("; %d half-done splits, %d pages that nothing leads to, %d never written; %d locks held, %d of them by the dead",
		r.HalfSplits, r.Unreachable, r.Unused, r.Locked, r.Dead)
}
