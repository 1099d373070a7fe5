package sherman

import (
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/store/kv"
)

// scanBuffers hold the leaves that a scan reads with one round trip.
type scanBuffers struct {
	pages    []layout.Page
	pageBufs [][]byte
	leaves   []layout.Addr
	seps     []uint64 // seps[i] is the lowest key of leaves[i+1]
	ops      [maxParallel]remotemem.Op
}

// Scan calls f with up to n keys in increasing order, from the smallest key that is not below
// `from`, until f returns false. If the index cache knows the leaves, Scan reads up to 32 of them
// with one round trip. Each record was in the tree at some moment of the scan. This moment may
// differ from leaf to leaf.
func (c *Client) Scan(from uint64, n int, f func(key uint64, value []byte) bool, deadline clock.Time) error {
	if err := c.tree.begin(deadline); err != nil {
		return err
	}
	s := scan{next: from, left: n, f: f}
	for s.left > 0 && !s.end {
		c.scans.leaves, c.scans.seps = c.mem.node.cache.leaves(s.next, c.batch(s.left), c.scans.leaves[:0], c.scans.seps[:0])
		if len(c.scans.leaves) == 0 {
			a, err := c.tree.descend(s.next, 0, c.tree.restarts > 0, deadline)
			if err == nil {
				c.scans.leaves = append(c.scans.leaves, a)
			} else if err = c.tree.restart(err, s.next, deadline); err != nil {
				return err
			} else {
				continue
			}
		}
		from := s.next
		if err := c.scanLeaves(&s, deadline); err != nil {
			if err = c.tree.restart(err, s.next, deadline); err != nil {
				return err
			}
		} else if s.next > from {
			c.tree.restarts = 0
		}
	}
	return nil
}

type scan struct {
	next uint64 // f still gets the records from this key on
	left int    // how many records f may still get
	end  bool   // true if the scan is complete
	f    func(key uint64, value []byte) bool
}

// batch returns how many leaves are likely to hold the next n records, at most maxParallel.
func (c *Client) batch(n int) int {
	return min(1+n/max(1, c.mem.super.Shape.Slots(0)/2), maxParallel)
}

// scanLeaves reads several leaves with one round trip and uses them in their order. If the first
// leaf cannot be used, because it was torn or does not cover the next key, scanLeaves searches for
// the key from there. If a later leaf cannot be used, scanLeaves returns, and Scan goes on from the
// end of the leaf before.
func (c *Client) scanLeaves(s *scan, deadline clock.Time) error {
	leaves := c.scans.leaves
	read := c.readAll(leaves, deadline)
	for i, a := range leaves {
		p := &c.scans.pages[i]
		whole := false
		if read {
			err := c.mem.fab.MR().ReadAt(c.scans.pageBufs[i], c.mem.at.in+i*len(c.scans.pageBufs[i]))
			if err == nil {
				whole, err = c.mem.parse(a, p, c.scans.pageBufs[i], deadline)
				err = gone(err) // not an error here: covering finds out what has happened to the page
			}
			if err != nil {
				return err
			}
		}
		// A leaf that covers keys below its separator may have taken them over while it was read.
		// Then the READ may have missed their records (see layout.Stage).
		if !whole || p.Level != 0 || p.Stage != layout.Live || !p.Covers(s.next) || i > 0 && s.next < c.scans.seps[i-1] {
			if i > 0 {
				// The cache does not know a page between the previous leaf and this one. Scan goes
				// on from the previous leaf's end, through its siblings.
				return nil
			}
			if _, err := c.tree.covering(a, s.next, 0, deadline); err != nil {
				return err
			}
			// covering has read the page into c.mem.page. The READs of covering overwrite the first
			// leaf's part of the registered buffer, and leave the other leaves' parts as they are.
			p = &c.mem.page
		}
		if err := c.emit(s, p, deadline); err != nil || s.end || s.left == 0 {
			return err
		}
	}
	return nil
}

// readAll reads pages into the buffer with one round trip. It returns false if that fails; then the
// caller reads them one by one.
func (c *Client) readAll(leaves []layout.Addr, deadline clock.Time) bool {
	c.mem.list = c.mem.list[:0]
	for i, a := range leaves {
		if !c.mem.inside(a) || c.mem.reach(a.Server(), deadline) != nil {
			return false
		}
		o := &c.scans.ops[i]
		c.mem.fab.Read(o, c.mem.target(a), c.mem.at.in+i*c.mem.super.Shape.Page, c.mem.super.Shape.Page)
		c.mem.list = append(c.mem.list, o)
	}
	return c.mem.do(deadline, c.mem.list...) == nil
}

// emit calls the scan's function f with the records of page p from s.next on. If one of them is
// torn (Published only), it reads the page again first.
func (c *Client) emit(s *scan, p *layout.Page, deadline clock.Time) error {
	if p.Shape.Kind == layout.Published && !c.mem.node.cfg.LostSearch {
		for i := range p.Slots() {
			if _, state := p.Slot(i); state == layout.Torn {
				if c.mem.rt.Now() >= deadline {
					return kv.TimedOut(layout.ErrTorn)
				}
				a, err := c.tree.descend(s.next, 0, false, deadline)
				if err == nil {
					_, err = c.tree.covering(a, s.next, 0, deadline)
				}
				if err != nil {
					return err
				}
				return c.emit(s, &c.mem.page, deadline)
			}
		}
	}
	last := uint64(0)
	c.pages.order = p.Order(c.pages.order[:0])
	for n, i := range c.pages.order {
		r, _ := p.Slot(int(i))
		if r.Key < s.next || n > 0 && r.Key == last {
			// A key can occur twice in the copy: its record was removed and then inserted in
			// another slot while the page was read.
			continue
		}
		last = r.Key
		s.left--
		if !s.f(r.Key, r.Value) || s.left == 0 {
			s.end = true
			return nil
		}
	}
	if s.next = p.Highest; p.Highest == layout.MaxKey {
		s.end = true
	}
	return nil
}
