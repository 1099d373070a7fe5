package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// checker is a check in progress.
type checker struct {
	Config
	report Report
	pages  map[layout.Addr]*page
	// faults are those inside of pages, by address.
	faults map[layout.Addr][]Problem
	// odd are addresses whose bytes were no page in the first pass.
	odd  map[layout.Addr]error
	buf  layout.Page
	keys []uint64
	one  []byte
}

// Check reads the tree. The error says that it could not be read; what is wrong with it is in the report.
func Check(cfg Config) (*Report, error) {
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &checker{
		Config: full, pages: make(map[layout.Addr]*page), faults: make(map[layout.Addr][]Problem), odd: make(map[layout.Addr]error),
		one: make([]byte, full.Super.Shape.Page),
	}
	for s := range c.Super.Servers {
		if err := c.scan(s); err != nil {
			return nil, err
		}
	}
	if err := c.walk(); err != nil {
		return nil, err
	}
	if err := c.rest(); err != nil {
		return nil, err
	}
	c.locks()
	if c.Want != nil && *c.Want != c.report.Content {
		c.bad(WrongKeys, c.Root, "%d keys with sum %#x, want %d with sum %#x", c.report.Content.Keys, c.report.Content.Sum, c.Want.Keys, c.Want.Sum)
	}
	return &c.report, nil
}

func (c *checker) bad(k Kind, at layout.Addr, format string, args ...any) {
	c.tell(Problem{k, at, fmt.Sprintf(format, args...)})
}

func (c *checker) tell(p Problem) {
	if c.report.Wrong++; len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, p)
	}
}

// read reads and counts.
func (c *checker) read(addr layout.Addr, b []byte) error {
	c.report.Reads++
	c.report.Bytes += uint64(len(b))
	if err := c.Read(addr, b); err != nil {
		return fmt.Errorf("read of %d bytes at %v: %w", len(b), addr, err)
	}
	return nil
}

// scan reads all pages of a server that were given out.
func (c *checker) scan(server int) error {
	b := make([]byte, c.Block)
	n := uint64(c.Super.Shape.Page)
	for at, end := c.Super.FirstChunk(), c.Ends[server]; at+n <= end; {
		piece := b[:min(uint64(len(b)), (end-at)/n*n)]
		if err := c.read(layout.At(server, at), piece); err != nil {
			return err
		}
		for ; len(piece) > 0; piece, at = piece[n:], at+n {
			_, _ = c.take(layout.At(server, at), piece[:n]) // kept in odd
		}
	}
	return nil
}

// take keeps what was read of a page.
func (c *checker) take(addr layout.Addr, b []byte) (*page, error) {
	delete(c.pages, addr)
	delete(c.faults, addr)
	delete(c.odd, addr)
	p, wrong, err := c.parse(addr, b)
	if err != nil {
		c.odd[addr] = err
		return nil, err
	}
	c.pages[addr] = p
	if wrong != nil {
		c.faults[addr] = wrong
	}
	return p, nil
}

// again reads a page once more, until it is whole.
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
	return p, nil // what was wrong with it is in odd
}

// given reports whether an address is that of a page that was given out.
func (c *checker) given(a layout.Addr) bool {
	return c.Super.Inside(a) && a.Offset()+uint64(c.Super.Shape.Page) <= c.Ends[a.Server()]
}

// taken asks again for the end of a server's pages if an address is beyond.
func (c *checker) taken(a layout.Addr) error {
	if c.End == nil || c.given(a) {
		return nil
	}
	end, err := c.End(a.Server())
	if err == nil {
		c.Ends[a.Server()] = max(c.Ends[a.Server()], min(end, c.Super.Len))
	}
	return err
}

// find returns the page at an address to which from leads, which must be on a level and begin at lowest; nil, after it has told
// why, if there is none. from 0 is the root word.
func (c *checker) find(a, from layout.Addr, level int, lowest uint64, isChild bool) (*page, error) {
	p := c.pages[a]
	fits := func() bool { return p != nil && (level < 0 || p.level == level) && p.lowest == lowest }
	if !c.Super.Inside(a) {
		c.bad(Dangling, from, "it leads to %v, where no page can be", a)
		return nil, nil
	}
	if err := c.taken(a); err != nil {
		return nil, err
	}
	switch {
	case !c.given(a):
		c.bad(Unallocated, a, "%v leads there, but nobody took that memory", from)
		return nil, nil
	case !fits(): // it may have been made since
		var err error
		if p, err = c.again(a); err != nil {
			return nil, err
		}
	}
	switch {
	case p == nil && errors.Is(c.odd[a], layout.ErrTorn):
		c.bad(Torn, a, "it is torn, however often it is read")
	case p == nil:
		c.bad(BadPage, a, "%v leads there, but %v", from, c.odd[a])
	case level >= 0 && p.level != level:
		c.bad(BadLevel, a, "its level is %d; %v wants %d", p.level, from, level)
	case p.lowest != lowest && isChild:
		c.bad(Separator, from, "separator %d leads to a page that begins at %d", lowest, p.lowest)
	case p.lowest != lowest:
		c.bad(Gap, a, "it begins at %d; its left neighbour %v ends at %d", p.lowest, from, lowest)
	default:
		return p, nil
	}
	return nil, nil
}

// locks looks at who holds locks.
func (c *checker) locks() {
	c.report.Locked = len(c.Locks)
	for _, l := range c.Locks {
		if !l.Alive {
			if c.report.Dead++; c.DeadLocks < 0 || c.report.Dead <= c.DeadLocks {
				continue
			}
			c.bad(DeadLock, layout.At(l.Server, uint64(8*l.Index)), "lock %d of server %d is held by %v, who is gone", l.Index, l.Server, l.Tag)
		}
	}
}

// sorted are the addresses of pages, so that reports are the same each time.
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
