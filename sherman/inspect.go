package sherman

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
)

// ReadPage reads len(b) bytes of memory at an address into b. It does not check them: they may be
// torn. One READ takes at most 32 pages.
func (c *Client) ReadPage(a layout.Addr, b []byte, deadline clock.Time) error {
	if a.Server() >= len(c.mem.links) || a.Offset() >= 1<<47 {
		return fmt.Errorf("%w: %d bytes at %v", ErrBroken, len(b), a)
	}
	room := maxParallel * c.mem.super.Shape.Page
	for len(b) > 0 {
		n := min(len(b), room)
		if err := c.mem.fetch(a.Server(), func() remotemem.Target { return c.mem.target(a) }, b[:n], deadline); err != nil {
			return err
		}
		a, b = layout.At(a.Server(), a.Offset()+uint64(n)), b[n:]
	}
	return nil
}

// fetch reads len(b) bytes of a server's memory at the target that t returns. It repeats failed
// attempts until the deadline.
func (c *memory) fetch(server int, t func() remotemem.Target, b []byte, deadline clock.Time) error {
	return c.retried(server, deadline, func() error {
		o := &c.ops[0]
		c.fab.Read(o, t(), c.at.in, len(b))
		if err := c.do(deadline, o); err != nil {
			return err
		}
		return c.fab.MR().ReadAt(b, c.at.in)
	})
}

// AllocEnd returns the offset at which the allocated memory of a server ends. All pages of the
// server lie between FirstChunk and this offset.
func (c *Client) AllocEnd(server int, deadline clock.Time) (uint64, error) {
	w, err := c.mem.word(layout.At(server, layout.AllocWord), wordAtomic, deadline)
	return min(w, c.mem.links[server].len), err
}

// Len returns how many bytes of a server's memory belong to the tree. It returns 0 before the
// client has connected to the server.
func (c *Client) Len(server int) uint64 { return c.mem.links[server].len }

// LockState describes a lock that is held.
type LockState struct {
	Server, Index int
	Tag           layout.Tag
	// Seen is how long this node has seen the tag in the word. Left is the time until the node
	// suspects the owner; 0 means that it suspects the owner now.
	Seen, Left time.Duration
	// Holder is what the memory server knows of the owner. An owner without queue pairs is dead or
	// has ended.
	Holder memservice.Holder
}

// Locks lists the locks of a server that are held. Comparing the tags of two calls shows which
// locks have changed their holders.
func (c *Client) Locks(server int, deadline clock.Time) (list []LockState, err error) {
	if server < 0 || server >= len(c.mem.links) {
		return nil, fmt.Errorf("memory server %d of %d", server, len(c.mem.links))
	}
	if c.mem.super.PageLocks {
		return c.pageLocks(server, deadline)
	}
	b, asked := make([]byte, 8*c.mem.super.Locks), c.mem.rt.Now()
	for off := 0; off < len(b); off += zeros / 4 {
		n := min(zeros/4, len(b)-off)
		err := c.mem.fetch(server, func() remotemem.Target { return c.mem.lockTarget(lock.Key{Server: server, Index: off / 8}) }, b[off:off+n], deadline)
		if err != nil {
			return nil, err
		}
	}
	for i := 0; i < c.mem.super.Locks && err == nil; i++ {
		list, err = c.addLock(list, lock.Key{Server: server, Index: i}, b[8*i:], asked, deadline)
	}
	return list, err
}

// pageLocks does the work of Locks for a tree whose lock words are in the pages.
func (c *Client) pageLocks(server int, deadline clock.Time) (list []LockState, err error) {
	end, err := c.AllocEnd(server, deadline)
	page := uint64(c.mem.super.Shape.Page)
	for at := c.mem.super.FirstChunk(); err == nil && at+page <= end; at += page {
		var b [layout.LockLen]byte
		asked := c.mem.rt.Now()
		if err = c.ReadPage(layout.At(server, at+page-layout.LockLen), b[:], deadline); err == nil {
			list, err = c.addLock(list, lock.Key{Server: server, Index: int(at / page)}, b[:], asked, deadline)
		}
	}
	return list, err
}

// addLock appends the description of lock k to list if it is held. A READ posted at time `asked`
// found its word to be b.
func (c *Client) addLock(list []LockState, k lock.Key, b []byte, asked, deadline clock.Time) (_ []LockState, err error) {
	tag := layout.TagOf(b)
	if tag == 0 {
		return list, nil
	}
	s := LockState{Server: k.Server, Index: k.Index, Tag: tag, Seen: c.mem.node.sighted(k, tag, asked, c.mem.rt.Now())}
	s.Left = max(0, c.mem.node.cfg.Lease-s.Seen)
	if s.Holder, err = memservice.WhoIs(c.mem.cfg.Context, c.mem.cfg.Manager, c.mem.node.cfg.Servers[k.Server], tag.Owner(), deadline); tag.Owner() == 0 {
		err = nil
	}
	return append(list, s), err
}
