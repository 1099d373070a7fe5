package sherman

import (
	"errors"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Each memory server has a list of unused pages: pages that have left the tree, and pages that no
// client has used yet (extend, leave). FreeWord names the first page, and the header of each page
// names the next one. A client takes or adds the first page by a compare-and-swap of the word. If
// the client gets no answer to its compare-and-swap, the page may never be reused.

// readHead reads FreeWord of server i: the head of its list of unused pages.
func (c *memory) readHead(i int, deadline clock.Time) (layout.FreeHead, error) {
	if err := c.reach(i, deadline); err != nil {
		return 0, err
	}
	w, err := c.readWord(c.target(layout.At(i, layout.FreeWord)), wordAtomic, deadline)
	return layout.FreeHead(w), err
}

// swapHead changes FreeWord of server i from the value `old` to the value `to`, by a
// compare-and-swap. won is true if the word was changed. lost is true if the compare-and-swap had
// no answer, so that its outcome is unknown.
func (c *memory) swapHead(i int, old, to layout.FreeHead, deadline clock.Time) (won, lost bool, err error) {
	if err := c.reach(i, deadline); err != nil {
		return false, false, err
	}
	was, err := c.swap(c.target(layout.At(i, layout.FreeWord)), uint64(old), uint64(to), deadline)
	return err == nil && was == uint64(old), err != nil, err
}

// readUnused reads the first page of the list of unused pages of server i, which head names. It
// returns nil if the list has changed since head was read.
func (c *changer) readUnused(i int, head layout.FreeHead, deadline clock.Time) (*layout.Page, error) {
	a := layout.At(i, head.Place())
	if !c.mem.inside(a) {
		return nil, ErrBroken
	}
	o := &c.mem.ops[0]
	c.mem.fab.Read(o, c.mem.target(a), c.mem.at.in, len(c.sibBuf))
	err := c.mem.do(deadline, o)
	if err == nil {
		err = c.mem.fab.MR().ReadAt(c.sibBuf, c.mem.at.in)
	}
	if err != nil {
		return nil, err
	}
	p := &c.sib
	if err := p.Parse(c.mem.super.Shape, c.sibBuf); err != nil || p.Stage != layout.Unused || p.Self.Place() != a || p.Generation != c.mem.super.Generation {
		return nil, nil //nolint:nilerr // the page has been taken and used: the word has changed
	}
	return p, nil
}

// maxPops is how many times a client tries to take the first page of a list before it asks the next
// server.
const maxPops = 64

// pop takes the first page of the list of server i and adds it to c.spare. It takes the only page
// of a list only if `last` is true: this page is reserved for rotate, whose merge gives another
// page back.
func (c *changer) pop(i int, last bool, deadline clock.Time) error {
	for range maxPops {
		head, err := c.mem.readHead(i, deadline)
		if err == nil && head.Place() == 0 {
			return errNone
		}
		var p *layout.Page
		if err == nil {
			p, err = c.readUnused(i, head, deadline)
		}
		if err == nil && p == nil {
			continue
		}
		if err == nil && p.Sibling == 0 && !last {
			return errNone
		}
		if err == nil {
			f, ok := p.Renewed()
			var won bool
			won, _, err = c.mem.swapHead(i, head, head.Then(p.Sibling), deadline)
			if won && ok {
				c.spare = append(c.spare, f)
				c.mem.node.count(func(s *NodeStats) { s.Reused++ })
				return nil
			}
		}
		if err == nil {
			continue
		}
		if err := c.mem.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
	return errNone
}

// push adds a page to the list of its server. It first writes the page's header. That is safe
// because no other client uses the page: this client has made the page Unused, or has never used
// it. If there is no answer to the compare-and-swap of FreeWord, by which the page enters the list,
// push gives up: it returns nil after a pause, or the error of prepareRetry. If the page is not in
// the list then, it is never reused.
func (c *changer) push(f layout.Fresh, deadline clock.Time) error {
	i := f.At.Server()
	for {
		head, err := c.mem.readHead(i, deadline)
		if err == nil {
			next := layout.Addr(0)
			if head.Place() != 0 {
				next = layout.At(i, head.Place())
			}
			c.sib.Init(c.mem.super.Shape, c.sibBuf, layout.Header{
				Stage: layout.Unused, Sibling: next, Self: f.At, Generation: c.mem.super.Generation, Epoch: f.Epoch,
			})
			err = c.writeFresh(f.At, c.sibBuf[:layout.Line], deadline)
		}
		if err == nil {
			var won, lost bool
			won, lost, err = c.mem.swapHead(i, head, head.Then(f.At), deadline)
			switch {
			case won:
				return nil
			case lost:
				// The page may be in the server's list of unused pages, so this client must not use
				// the page any more. The operation goes on without the page.
				return c.mem.prepareRetry(err, deadline)
			}
		}
		if err == nil {
			continue
		}
		if err := c.mem.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// leave gives the unused pages of a closing client to its node. The last client of the node also
// returns the node's pages to the memory servers (Hardened only). Pages that it cannot return
// before the deadline are never reused.
func (c *changer) leave(deadline clock.Time) {
	n := c.mem.node
	n.keepPages(c.spare...)
	c.spare = nil
	n.mu.Lock()
	n.clients--
	last := n.clients == 0
	n.mu.Unlock()
	for last && c.mem.super.Shape.Kind == layout.Hardened && c.mem.rt.Now() < deadline {
		f, ok := n.freshPage(c.mem.super.Shape.Page)
		if !ok {
			return
		}
		if err := c.push(f, deadline); err != nil && !errors.Is(err, ErrBroken) {
			return // the memory of the page is not reused
		}
	}
}

// Unused counts the pages in a server's list of unused pages, at most `most` of them.
func (c *Client) Unused(server, most int, deadline clock.Time) (n int, err error) {
	err = c.mem.retried(server, deadline, func() (err error) {
		n, err = c.countUnused(server, most, deadline)
		return err
	})
	return n, err
}

func (c *Client) countUnused(server, most int, deadline clock.Time) (n int, err error) {
	head, err := c.mem.readHead(server, deadline)
	for ; err == nil && head.Place() != 0 && n < most; n++ {
		var p *layout.Page
		if p, err = c.pages.readUnused(server, head, deadline); p == nil {
			break // the list has changed during the walk
		}
		head = layout.FreeHead(0).Then(p.Sibling)
	}
	return n, err
}
