package sherman

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/slab"
)

// pool holds the pages that the node has taken from the memory servers and that no client of the
// node uses.
type pool struct {
	slab.Chunks
	spare []layout.Fresh
}

// freshPage takes a page out of the node's pool. It returns false if the pool is empty.
func (n *Node) freshPage(page int) (f layout.Fresh, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.pool
	if i := len(p.spare) - 1; i >= 0 {
		f, p.spare = p.spare[i], p.spare[:i]
		return f, true
	}
	server, at, ok := p.Take(page)
	if ok {
		f.At = layout.At(server, at)
	}
	return f, ok
}

func (n *Node) keepPages(f ...layout.Fresh) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pool.spare = append(n.pool.spare, f...)
}

// nextServer returns the server to ask for memory next. unused is true if the server may have
// memory that was never used.
func (n *Node) nextServer() (server int, unused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pool.Next(len(n.owners))
}

// reserve gets a page for the next split and adds it to c.spare. The caller must hold no lock. The
// page comes from the node's pool, from memory that was never used, or from a server's list of
// unused pages. The servers take turns.
func (c *changer) reserve(deadline clock.Time) error {
	if len(c.spare) > 0 {
		return nil
	}
	if f, ok := c.mem.node.freshPage(c.mem.super.Shape.Page); ok {
		c.spare = append(c.spare, f)
		return nil
	}
	var first error
	for range 2 * len(c.mem.links) { // the first round asks for memory that was never used
		i, unused := c.mem.node.nextServer()
		var err error
		if unused {
			err = c.extend(i, deadline)
		} else {
			err = c.pop(i, false, deadline)
		}
		if len(c.spare) > 0 {
			return nil
		}
		if !errors.Is(err, errNone) {
			first = cmp.Or(first, err)
		}
	}
	return cmp.Or(first, c.mem.errFull())
}

// errNone means that pop or extend got no page from a server: there is none, the only one is
// reserved for rotate, or maxPops tries got none.
var errNone = errors.New("no page")

// errFull returns the error for a tree without a free page.
func (c *memory) errFull() error {
	s := &c.super
	var bytes uint64
	for i := range c.links {
		bytes += (c.links[i].len - s.FirstChunk()) / uint64(s.Shape.Page) * uint64(s.Shape.Page)
	}
	return fmt.Errorf("%w: a split needs a page, and all %d bytes of pages on %d memory servers are in use (deleting most keys of a leaf gives its page back)",
		kv.ErrFull, bytes, len(c.links))
}

// extend takes memory of server i that was never used, by a FETCH_ADD on a word of the server. (The
// published system sends a message to a thread of the server.) The first page is for this client.
// The others go to the node's pool. In a hardened tree the last page of the server's memory goes to
// the list of unused pages instead: pop reserves the last page of that list for rotate. If a
// FETCH_ADD is executed but not answered, its memory is never used.
func (c *changer) extend(i int, deadline clock.Time) error {
	page := uint64(c.mem.super.Shape.Page)
	var at, want uint64
	err := c.mem.retried(i, deadline, func() (err error) {
		c.mem.node.mu.Lock()
		want = c.mem.node.pool.Want(int(page), c.mem.super.Chunk, c.mem.links[i].len)
		c.mem.node.mu.Unlock()
		o := &c.mem.ops[0]
		c.mem.fab.FetchAdd(o, c.mem.target(layout.At(i, layout.AllocWord)), want, c.mem.wordAt(wordAtomic))
		if err = c.mem.do(deadline, o); err == nil {
			at, err = c.mem.load(wordAtomic)
		}
		return err
	})
	if err != nil {
		return err
	}
	// The client whose FETCH_ADD crosses the end of the memory gets only the part before the end.
	end := min(at+want, c.mem.links[i].len)
	if at%page != 0 || at < c.mem.super.FirstChunk() || at >= end {
		end = at
	}
	end -= (end - at) % page
	over := end < at+want
	if c.mem.super.Shape.Kind == layout.Hardened && end > at && end+page > c.mem.links[i].len {
		end -= page                                               // the last page of the memory
		_ = c.push(layout.Fresh{At: layout.At(i, end)}, deadline) // if it fails, the page is never used
	}
	c.mem.node.mu.Lock()
	defer c.mem.node.mu.Unlock()
	if !c.mem.node.pool.Took(i, at, end, int(page), over) {
		return errNone
	}
	c.spare = append(c.spare, layout.Fresh{At: layout.At(i, at)})
	return nil
}

// fresh takes the page that reserve has put into c.spare. It returns false if there is none.
func (c *changer) fresh() (layout.Fresh, bool) {
	n := len(c.spare) - 1
	if n < 0 {
		return layout.Fresh{}, false
	}
	f := c.spare[n]
	c.spare = c.spare[:n]
	return f, true
}

// errRoom means that the page is full, and the client has no page for a split. The operation calls
// mover.room and tries again.
var errRoom = errors.New("no page for a split")
