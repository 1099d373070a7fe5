package check

import (
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// Content is a digest of a set of keys. It does not depend on their order.
type Content struct {
	Keys uint64 `json:"keys"`
	Sum  uint64 `json:"sum"`
}

func (c *Content) Add(key uint64) {
	c.Keys++
	c.Sum += layout.Mix(key)
}

// Report is the result of a check.
type Report struct {
	// Levels are the numbers of pages of each level, leaves first.
	Levels []int `json:"levels"`
	// Content is the digest of the keys in the leaves. Room is the number of records that the
	// leaves can hold.
	Content Content `json:"content"`
	Room    uint64  `json:"room"`
	// HalfSplits counts pages that have no separator in the level above yet. Searches reach them
	// through their left neighbours.
	HalfSplits int `json:"halfSplits"`
	// Closed counts pages that are leaving the tree. Free counts pages that have left it and can be
	// reused.
	Closed int `json:"closed"`
	Free   int `json:"free"`
	// Unreachable counts written pages that are in the chain of no level. Unused counts allocated
	// pages that this tree has never written.
	Unreachable int `json:"unreachable"`
	Unused      int `json:"unused"`
	// Locked counts lock words that were not free, Dead those of them whose owners are dead.
	Locked int `json:"locked"`
	Dead   int `json:"dead"`
	// Bytes and Reads count all READs. Again counts further READs of pages that the check has read
	// before, because they were torn or did not fit the other pages.
	Bytes uint64 `json:"bytes"`
	Reads int    `json:"reads"`
	Again int    `json:"again"`
	// Problems describes the first problems, at most maxProblems. Wrong counts all of them.
	Problems []Problem `json:"problems,omitempty"`
	Wrong    int       `json:"wrong"`
}

// Err returns nil if no problem was found, otherwise an error that describes the problems.
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

// String summarises the report in one line.
func (r *Report) String() string {
	pages := 0
	for _, n := range r.Levels {
		pages += n
	}
	s := fmt.Sprintf("%d keys in %d pages on %d levels", r.Content.Keys, pages, len(r.Levels))
	if r.Room > 0 {
		s += fmt.Sprintf(", leaves %.0f%% full", 100*float64(r.Content.Keys)/float64(r.Room))
	}
	return s + fmt.Sprintf("; %d half-done splits, %d half-done merges, %d free pages, %d unreachable, %d never written; "+
		"%d locks held, %d of them by dead owners", r.HalfSplits, r.Closed, r.Free, r.Unreachable, r.Unused, r.Locked, r.Dead)
}
