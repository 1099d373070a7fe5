package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

type checker struct {
	Config
	report Report
	pages  map[layout.Addr]*page
	// faults are the problems found within a page, by the address of the page. They go into the
	// report only if the page is part of the tree.
	faults map[layout.Addr][]Problem
	// unparsed are the errors of addresses whose bytes could not be parsed as a page.
	unparsed map[layout.Addr]error
	// buf, keys and `one` are memory that the check uses again for each page. `one` has the length
	// of a page.
	buf  layout.Page
	keys []uint64
	one  []byte
}

// Check reads the tree and returns a report of what it found, including the problems of the tree.
// An error means that the tree could not be read, or that cfg is not valid.
//
// If clients use the tree during the check, a merge may change pointers that the check has read,
// and the check reports false problems. Therefore Check repeats a check that has found problems in
// a tree with merges, up to maxChecks checks in all.
func Check(cfg Config) (rep *Report, err error) {
	full, err := cfg.withDefaults()
	for i := 0; err == nil && i < maxChecks; i++ {
		var merging bool
		if rep, merging, err = check(full); err == nil && (rep.Wrong == 0 || !merging) {
			break
		}
	}
	return rep, err
}

// check does one check. merging is true if the check has found pages that are leaving the tree, or
// have left it.
func check(full Config) (_ *Report, merging bool, err error) {
	c := &checker{
		Config: full, pages: make(map[layout.Addr]*page), faults: make(map[layout.Addr][]Problem), unparsed: make(map[layout.Addr]error),
		one: make([]byte, full.Super.Shape.Page),
	}
	for s := range c.Super.Servers {
		if err := c.scan(s); err != nil {
			return nil, false, err
		}
	}
	if err := c.walk(); err != nil {
		return nil, false, err
	}
	if err := c.rest(); err != nil {
		return nil, false, err
	}
	c.locks()
	if c.Want != nil && *c.Want != c.report.Content {
		c.bad(WrongKeys, c.Root, "%d keys with sum %#x, want %d with sum %#x", c.report.Content.Keys, c.report.Content.Sum, c.Want.Keys, c.Want.Sum)
	}
	return &c.report, c.report.Closed+c.report.Free > 0, nil
}

func (c *checker) bad(k Kind, at layout.Addr, format string, args ...any) {
	c.add(Problem{k, at, fmt.Sprintf(format, args...)})
}

func (c *checker) add(p Problem) {
	if c.report.Wrong++; len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, p)
	}
}

// read reads len(b) bytes at addr into b, and counts the READ.
func (c *checker) read(addr layout.Addr, b []byte) error {
	c.report.Reads++
	c.report.Bytes += uint64(len(b))
	if err := c.Read(addr, b); err != nil {
		return fmt.Errorf("read of %d bytes at %v: %w", len(b), addr, err)
	}
	return nil
}

// scan reads all allocated pages of a server.
func (c *checker) scan(server int) error {
	b := make([]byte, c.Block)
	n := uint64(c.Super.Shape.Page)
	for at, end := c.Super.FirstChunk(), c.Ends[server]; at+n <= end; {
		piece := b[:min(uint64(len(b)), (end-at)/n*n)]
		if err := c.read(layout.At(server, at), piece); err != nil {
			return err
		}
		for ; len(piece) > 0; piece, at = piece[n:], at+n {
			_, _ = c.take(layout.At(server, at), piece[:n]) // take stores the error in unparsed
		}
	}
	return nil
}

// take parses the bytes b of the page at addr. It stores the page in pages, and the problems within
// it in faults. If the bytes are no page, it stores the error in unparsed.
func (c *checker) take(addr layout.Addr, b []byte) (*page, error) {
	place := addr.Place()
	delete(c.pages, place)
	delete(c.faults, place)
	delete(c.unparsed, place)
	p, wrong, err := c.parse(addr, b)
	if err != nil {
		c.unparsed[place] = err
		return nil, err
	}
	c.pages[place] = p
	if wrong != nil {
		c.faults[place] = wrong
	}
	return p, nil
}

// again reads the page at addr again until the copy is not torn, at most maxReads times. p is nil
// if the bytes are no page, or if all copies were torn; then c.unparsed has the reason. err is the
// error of a READ.
func (c *checker) again(addr layout.Addr) (p *page, err error) {
	for range maxReads {
		c.report.Again++
		if err := c.read(addr, c.one); err != nil {
			return nil, err
		}
		if p, err = c.take(addr, c.one); !errors.Is(err, layout.ErrTorn) {
			break
		}
	}
	return p, nil // take has put the error into unparsed
}

// allocated reports whether the memory of a page at address a has been allocated.
func (c *checker) allocated(a layout.Addr) bool {
	return c.Super.Inside(a) && a.Offset()+uint64(c.Super.Shape.Page) <= c.Ends[a.Server()]
}

// rereadEnd reads again where a server's allocated memory ends, if address a is beyond the known
// end.
func (c *checker) rereadEnd(a layout.Addr) error {
	if c.End == nil || c.allocated(a) {
		return nil
	}
	end, err := c.End(a.Server())
	if err == nil {
		c.Ends[a.Server()] = max(c.Ends[a.Server()], min(end, c.Super.Len))
	}
	return err
}

// find returns the page at address a, which the page at address `from` names, or the root word if
// `from` is 0. The page must have the given level (-1 means any level) and begin at key lowest. If
// isChild is true, it may begin at a lower key, if it has taken over ranges up to lowest from pages
// that have left the tree. If there is no such page, find reports a problem and returns nil.
func (c *checker) find(a, from layout.Addr, level int, lowest uint64, isChild bool) (*page, error) {
	p := c.pages[a.Place()]
	begins := func() bool {
		return p.lowest == lowest || isChild && p.lowest < lowest && lowest <= p.reach
	}
	named := func() bool { return p.addr == a && p.stage != layout.Unused }
	fits := func() bool { return p != nil && (level < 0 || p.level == level) && begins() && named() }
	if !c.Super.Inside(a) {
		c.bad(Dangling, from, "it names %v, where no page can be", a)
		return nil, nil
	}
	if err := c.rereadEnd(a); err != nil {
		return nil, err
	}
	switch {
	case !c.allocated(a):
		c.bad(Unallocated, a, "%v names it, but that memory is not allocated", from)
		return nil, nil
	case !fits(): // the page may have been written after the scan
		var err error
		if p, err = c.again(a); err != nil {
			return nil, err
		}
	}
	switch {
	case p == nil && errors.Is(c.unparsed[a.Place()], layout.ErrTorn):
		c.bad(Torn, a, "it stays torn in repeated READs")
	case p == nil:
		c.bad(BadPage, a, "%v names it, but %v", from, c.unparsed[a.Place()])
	case !named():
		c.bad(Gone, a, "%v names it, but the page there is %v, which is %v", from, p.addr, p.stage)
	case level >= 0 && p.level != level:
		c.bad(BadLevel, a, "its level is %d; %v wants %d", p.level, from, level)
	case !begins() && isChild:
		c.bad(Separator, from, "separator %d names a page that begins at %d", lowest, p.lowest)
	case !begins():
		c.bad(Gap, a, "it begins at %d; its left neighbour %v ends at %d", p.lowest, from, lowest)
	default:
		return p, nil
	}
	return nil, nil
}

// locks counts the held locks, and those of them whose owners are dead. If there are more locks of
// dead owners than DeadLocks allows, it reports the excess ones as problems.
func (c *checker) locks() {
	c.report.Locked = len(c.Locks)
	for _, l := range c.Locks {
		if !l.Alive {
			if c.report.Dead++; c.DeadLocks < 0 || c.report.Dead <= c.DeadLocks {
				continue
			}
			c.bad(DeadLock, layout.At(l.Server, uint64(8*l.Index)), "lock %d of server %d is held by %v, whose owner is dead", l.Index, l.Server, l.Tag)
		}
	}
}

// sorted returns the pages for which want is true, in the order of their addresses, so that reports
// are reproducible.
func (c *checker) sorted(want func(*page) bool) []*page {
	var out []*page
	for _, p := range c.pages {
		if want(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *page) int { return cmp.Compare(a.addr, b.addr) })
	return out
}
