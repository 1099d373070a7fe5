package sherman

import (
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Scan calls f for up to n keys from the smallest that is not below from. Leaves that the index cache knows are read together, up to 32
// at a time. Each record was there at one moment of the scan; different leaves at different ones.
func (c *Client) Scan(from uint64, n int, f func(key uint64, value []byte) bool, deadline clock.Time) error {
	if err := c.begin(deadline); err != nil {
		return err
	}
	s := scan{next: from, left: n, f: f}
	for s.left > 0 && !s.end {
		c.leaves = c.node.cache.leaves(s.next, c.batch(s.left), c.leaves[:0])
		if len(c.leaves) == 0 {
			a, err := c.descend(s.next, 0, false, deadline)
			if err != nil {
				return err
			}
			c.leaves = append(c.leaves, a)
		}
		if err := c.scanLeaves(&s, deadline); err != nil {
			return err
		}
	}
	return nil
}

// scan is how far one has come.
type scan struct {
	next uint64
	left int
	end  bool
	f    func(key uint64, value []byte) bool
}

// batch is how many leaves are likely to hold n records.
func (c *Client) batch(n int) int {
	return min(1+n/max(1, c.super.Shape.Slots(0)/2), maxParallel)
}

// scanLeaves reads leaves together and takes them in order; what was read too early or too late is read again.
func (c *Client) scanLeaves(s *scan, deadline clock.Time) error {
	leaves := c.leaves
	read := c.readAll(leaves, deadline)
	for i, a := range leaves {
		p := &c.pages[i]
		whole := false
		if read {
			err := c.fab.MR().ReadAt(c.pageBufs[i], c.at.in+i*len(c.pageBufs[i]))
			if err == nil {
				whole, err = c.parse(a, p, c.pageBufs[i], deadline)
			}
			if err != nil {
				return err
			}
		}
		if !whole || p.Level != 0 || !p.Covers(s.next) {
			if i > 0 {
				return nil // a page between this one and the last, which the cache does not know: it is found from the last
			}
			if _, err := c.covering(a, s.next, 0, deadline); err != nil {
				return err
			}
			p = &c.page // by way of the buffer's first page, which has been taken
		}
		if err := c.emit(s, p, deadline); err != nil || s.end || s.left == 0 {
			return err
		}
	}
	return nil
}

// readAll reads pages into the buffer with one round trip; false says that they must be read one by one.
func (c *Client) readAll(leaves []layout.Addr, deadline clock.Time) bool {
	c.list = c.list[:0]
	for i, a := range leaves {
		if !c.inside(a) || c.reach(a.Server(), deadline) != nil {
			return false
		}
		o := &c.scanOps[i]
		c.fab.Read(o, c.target(a), c.at.in+i*c.super.Shape.Page, c.super.Shape.Page)
		c.list = append(c.list, o)
	}
	return c.do(deadline, c.list...) == nil
}

// emit hands on the records of a page.
func (c *Client) emit(s *scan, p *layout.Page, deadline clock.Time) error {
	if p.Shape.Kind == layout.Faithful && !c.node.cfg.LostSearch {
		for i := range p.Slots() {
			if _, state := p.Slot(i); state == layout.Torn {
				if c.rt.Now() >= deadline {
					return timeout(layout.ErrTorn)
				}
				a, err := c.descend(s.next, 0, false, deadline)
				if err == nil {
					_, err = c.covering(a, s.next, 0, deadline)
				}
				if err != nil {
					return err
				}
				return c.emit(s, &c.page, deadline)
			}
		}
	}
	last := uint64(0)
	c.order = p.Order(c.order[:0])
	for n, i := range c.order {
		r, _ := p.Slot(int(i))
		if r.Key < s.next || n > 0 && r.Key == last {
			continue // the second of two was put in after the first had been removed, while the page was read
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
