package sherman

import (
	"fmt"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// space is where a client takes fresh pages from: a piece of a chunk of one server, and pages that were not used after all.
type space struct {
	server    int
	next, end uint64
	spare     []layout.Addr
	// turn is the server that is asked for the next chunk.
	turn int
}

// giveBack keeps a page that nobody leads to.
func (s *space) giveBack(a layout.Addr) { s.spare = append(s.spare, a) }

// maxLeftOver bounds the pieces of memory that a node keeps of clients that were closed.
const maxLeftOver = 1024

// bequeath keeps what a client has not used of its memory for the next one of the node.
func (n *Node) bequeath(s space) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if (len(s.spare) > 0 || s.next < s.end) && len(n.spaces) < maxLeftOver {
		n.spaces = append(n.spaces, s)
	}
}

// leftOver takes a piece that a client has left.
func (n *Node) leftOver() (s space, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := len(n.spaces) - 1; i >= 0 {
		s, n.spaces = n.spaces[i], n.spaces[:i]
		return s, true
	}
	return s, false
}

// reserve makes sure of a page for the next split, before a lock is held: servers give chunks in turn, by FETCH_ADD on a word in their
// memory. (The published system asks a thread of the server by message.)
func (c *Client) reserve(deadline clock.Time) error {
	s := &c.space
	if len(s.spare) > 0 || s.next < s.end {
		return nil
	}
	if left, ok := c.node.leftOver(); ok {
		left.turn = s.turn
		*s = left
		return nil
	}
	var last error
	for range c.links {
		i := s.turn
		s.turn = (s.turn + 1) % len(c.links)
		at, err := c.chunk(i, deadline)
		if err == nil {
			s.server, s.next, s.end = i, at, at+uint64(c.super.Chunk)
			return nil
		}
		last = err
	}
	return last
}

// chunk takes one from a server. A chunk whose answer was lost is lost, too.
func (c *Client) chunk(i int, deadline clock.Time) (uint64, error) {
	for {
		err := c.reach(i, deadline)
		if err == nil {
			o := &c.ops[0]
			c.fab.FetchAdd(o, c.target(layout.At(i, layout.AllocWord)), uint64(c.super.Chunk), c.wordAt(wordAtomic))
			err = c.do(deadline, o)
		}
		var at uint64
		if err == nil {
			at, err = c.load(wordAtomic)
		}
		if err == nil {
			if at < c.super.FirstChunk() || at > c.links[i].len-uint64(c.super.Chunk) {
				return 0, fmt.Errorf("%w: memory server %d", kv.ErrFull, i)
			}
			return at, nil
		}
		if err := c.again(err, deadline); err != nil {
			return 0, err
		}
	}
}

// fresh takes a page.
func (c *Client) fresh() (layout.Addr, bool) {
	s := &c.space
	if n := len(s.spare); n > 0 {
		a := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return a, true
	}
	if s.next >= s.end {
		return 0, false
	}
	a := layout.At(s.server, s.next)
	s.next += uint64(c.super.Shape.Page)
	return a, true
}
