package sherman

import (
	"errors"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Each memory server has a list of pages that were merged: FreeWord names the first one, and the
// header of each names the next. A client that takes the first page, or adds one, changes the word
// by a compare-and-swap. If the compare-and-swap is not answered, the page is never reused.
//
// A second list, which SlackWord names, has a page that ordinary splits do not take. When a leaf is
// closed with records, its sibling may be full before the merge goes on, for instance because the
// client has died; and then, with all memory in use, no client could write to the keys of the
// closed leaf. The split of the sibling takes that page, and the closed leaf takes its place when
// it leaves the tree. The first page of the list is the last one of the first server whose memory
// is exhausted. The list is empty if BulkLoad has taken all memory to the last byte, and after a
// client that has taken the page dies before its split: then, with all memory in use and the
// sibling full, writes to the keys of the closed leaf end with kv.ErrFull until another page leaves
// the tree or keys of the sibling are deleted.

// readHead reads the word of a list of a server.
func (c *memory) readHead(i int, list uint64, deadline clock.Time) (layout.FreeHead, error) {
	if err := c.reach(i, deadline); err != nil {
		return 0, err
	}
	w, err := c.readWord(c.target(layout.At(i, list)), wordAtomic, deadline)
	return layout.FreeHead(w), err
}

// swapHead changes the word of a list of a server by a compare-and-swap. lost reports that its outcome
// is unknown.
func (c *memory) swapHead(i int, list uint64, old, to layout.FreeHead, deadline clock.Time) (won, lost bool, err error) {
	if err := c.reach(i, deadline); err != nil {
		return false, false, err
	}
	was, err := c.swap(c.target(layout.At(i, list)), uint64(old), uint64(to), deadline)
	return err == nil && was == uint64(old), err != nil, err
}

// readUnused reads the first page of a server's list. It is nil if the word has changed meanwhile.
func (c *changer) readUnused(i int, head layout.FreeHead, deadline clock.Time) (*layout.Page, error) {
	a := layout.At(i, head.Place())
	if !c.inside(a) {
		return nil, ErrBroken
	}
	o := &c.ops[0]
	c.fab.Read(o, c.target(a), c.at.in, len(c.sibBuf))
	err := c.do(deadline, o)
	if err == nil {
		err = c.fab.MR().ReadAt(c.sibBuf, c.at.in)
	}
	if err != nil {
		return nil, err
	}
	p := &c.sib
	if err := p.Parse(c.super.Shape, c.sibBuf); err != nil || p.Stage != layout.Unused || p.Self.Place() != a || p.Generation != c.super.Generation {
		return nil, nil //nolint:nilerr // the page has been taken and used: the word has changed
	}
	return p, nil
}

// maxPops bounds how many times a client loses the race for the first page before it asks the next
// server.
const maxPops = 64

// pop takes the first page of a list of a server for this client.
func (c *changer) pop(i int, list uint64, deadline clock.Time) error {
	for range maxPops {
		head, err := c.readHead(i, list, deadline)
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
		if err == nil {
			f, ok := p.Renewed()
			var won bool
			won, _, err = c.swapHead(i, list, head, head.Then(p.Sibling), deadline)
			if won && ok {
				c.spare = append(c.spare, f)
				c.node.count(func(s *NodeStats) { s.Reused++ })
				return nil
			}
		}
		if err == nil {
			continue
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
	return errNone
}

// push adds a page to a list of its server. It first writes the page's header, which is safe
// because the page belongs to this client alone: the client has made the page Unused, or has never
// used it.
func (c *changer) push(f layout.Fresh, list uint64, deadline clock.Time) error {
	i := f.At.Server()
	for {
		head, err := c.readHead(i, list, deadline)
		if err == nil {
			next := layout.Addr(0)
			if head.Place() != 0 {
				next = layout.At(i, head.Place())
			}
			c.sib.Init(c.super.Shape, c.sibBuf, layout.Header{Self: f.At, Generation: c.super.Generation, Epoch: f.Epoch})
			c.sib.Retire(next)
			err = c.writeFresh(f.At, c.sibBuf[:layout.Line], deadline)
		}
		if err == nil {
			var won, lost bool
			won, lost, err = c.swapHead(i, list, head, head.Then(f.At), deadline)
			if won || lost {
				return err
			}
		}
		if err == nil {
			continue
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// slack returns a server that has a page for splits that merges need; -1: none has.
func (c *changer) slack(deadline clock.Time) (server int, err error) {
	for i := range c.links {
		head, err := c.readHead(i, layout.SlackWord, deadline)
		if err != nil || head.Place() != 0 {
			return i, err
		}
	}
	return -1, nil
}

// keepSlack keeps the last page of a server's memory for splits that merges need, unless there is
// such a page.
func (c *changer) keepSlack(f layout.Fresh, deadline clock.Time) (kept bool) {
	for {
		i, err := c.slack(deadline)
		switch {
		case err == nil && i >= 0:
			return false
		case err == nil:
			_ = c.push(f, layout.SlackWord, deadline) // if it fails, the memory is not reused
			return true
		case c.prepareRetry(err, deadline) != nil:
			return false
		}
	}
}

// giveBack adds a page that has left the tree to a list of its server.
func (c *changer) giveBack(f layout.Fresh, deadline clock.Time) error {
	list := uint64(layout.FreeWord)
	if i, err := c.slack(deadline); err == nil && i < 0 {
		list = layout.SlackWord
	}
	return c.push(f, list, deadline)
}

// leave gives the unused pages of a client that closes to its node. The last client of the node
// also returns the node's pages to the memory servers (Hardened only). Pages that it cannot return
// before the deadline are never reused.
func (c *changer) leave(deadline clock.Time) {
	n := c.node
	n.keepPages(c.spare...)
	c.spare = nil
	n.mu.Lock()
	n.clients--
	last := n.clients == 0
	n.mu.Unlock()
	for last && c.super.Shape.Kind == layout.Hardened && c.rt.Now() < deadline {
		f, ok := n.freshPage(c.super.Shape.Page)
		if !ok {
			return
		}
		if err := c.push(f, layout.FreeWord, deadline); err != nil && !errors.Is(err, ErrBroken) {
			return // the memory of the page is not reused
		}
	}
}

// Unused returns how many pages of a server are in its list of merged pages, up to most.
func (c *Client) Unused(server, most int, deadline clock.Time) (int, error) {
	for {
		n, err := c.countUnused(server, most, deadline)
		if err == nil {
			return n, nil
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return 0, err
		}
	}
}

func (c *Client) countUnused(server, most int, deadline clock.Time) (n int, err error) {
	head, err := c.readHead(server, layout.FreeWord, deadline)
	for ; err == nil && head.Place() != 0 && n < most; n++ {
		var p *layout.Page
		if p, err = c.readUnused(server, head, deadline); p == nil {
			break // the list has changed during the walk
		}
		head = layout.FreeHead(0).Then(p.Sibling)
	}
	return n, err
}
