package sherman

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// LoadStats describes the tree that BulkLoad made.
type LoadStats struct {
	Keys  uint64
	Pages []int  // the number of pages on each level, leaves first
	Bytes uint64 // the number of bytes written
}

// fillPercent is how full the loader makes pages, in percent of their slots. The free slots keep
// later inserts from splitting every page at once.
const fillPercent = 75

// extent is the largest number of bytes that one WRITE of the loader carries. A WRITE carries
// neighbouring pages.
const extent = 256 << 10

// BulkLoad fills an empty tree from the leaves up. next returns the keys in strictly increasing
// order, and ok false after the last one. No client may use the tree meanwhile. After an error the
// tree must be formatted again.
func BulkLoad(cfg Config, servers []netip.Addr, next func() (key uint64, value []byte, ok bool), deadline clock.Time) (_ LoadStats, err error) {
	m, err := newMaker(cfg, servers, extent, deadline)
	if err != nil {
		return LoadStats{}, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	l, err := m.loader(deadline)
	if err != nil {
		return LoadStats{}, err
	}
	err = l.run(next)
	return l.stats, err
}

// loader fills one page of each level at a time. When a page is full, the loader begins its right
// neighbour.
type loader struct {
	*maker
	deadline clock.Time
	levels   []*growing
	// at has, for each server, the offset at which the loader's next piece of memory begins.
	at    []uint64
	old   layout.Addr // the root of the empty tree
	turn  int         // the server from which the next piece comes
	stats LoadStats
	spare []*piece // pieces that have room for further pages
}

// growing is the page of a level that the loader is filling.
type growing struct {
	page  layout.Page
	addr  layout.Addr
	piece *piece
	used  int // the number of records in page
}

// piece is a run of neighbouring pages of one server. The loader writes it with WRITEs of up to
// l.buf bytes when all of its pages are finished.
type piece struct {
	server   int
	off      uint64 // the offset in the server's region
	buf      []byte
	next     int  // offset of the next unused page
	open     int  // how many of its pages the loader is still filling
	detached bool // true if no further page fits into the piece
}

// loader makes a loader for the tree on the servers. To do so it reads the superblocks, the words
// that say where the allocated memory ends, and the root word.
func (m *maker) loader(deadline clock.Time) (*loader, error) {
	l := &loader{maker: m, deadline: deadline, at: make([]uint64, len(m.servers))}
	for i := range m.servers {
		var b [layout.LocksAt]byte
		if err := m.get(i, 0, b[:], deadline); err != nil {
			return nil, err
		}
		var s layout.Superblock
		if err := s.Parse(b[:]); err != nil {
			return nil, err
		}
		if i == 0 {
			m.super = s
		}
		if s.Generation != m.super.Generation || s.Servers != len(m.servers) || s.Server != i {
			return nil, errServers
		}
		if err := m.fab.MR().WriteAt(b[:], 0); err != nil {
			return nil, err
		}
		at, err := m.fab.MR().Load64(layout.AllocWord)
		if err != nil {
			return nil, err
		}
		l.at[i] = at
		if i > 0 {
			continue
		}
		root, err := m.fab.MR().Load64(layout.RootWord)
		if err == nil {
			l.old = layout.Addr(root)
			err = l.empty(l.old)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// empty returns errNotEmpty unless the tree is one leaf without keys.
func (l *loader) empty(at layout.Addr) error {
	if at != layout.At(0, l.super.FirstChunk()) {
		return errNotEmpty
	}
	root := make([]byte, l.super.Shape.Page)
	if err := l.get(0, at.Offset(), root, l.deadline); err != nil {
		return err
	}
	var p layout.Page
	if err := p.Parse(l.super.Shape, root); err != nil {
		return err
	}
	if p.Level != 0 || p.Sibling != 0 || p.Count() > 0 {
		return errNotEmpty
	}
	return nil
}

func (l *loader) run(next func() (uint64, []byte, bool)) error {
	last := uint64(0)
	for {
		key, value, ok := next()
		if !ok {
			break
		}
		if l.stats.Keys > 0 && key <= last {
			return fmt.Errorf("load: key %d comes after key %d: keys must be sorted, each once", key, last)
		}
		if len(value) > l.super.Shape.Value {
			return fmt.Errorf("%w: %d bytes, the tree was formatted for %d", kv.ErrTooLarge, len(value), l.super.Shape.Value)
		}
		last = key
		g, err := l.room(0, key)
		if err != nil {
			return err
		}
		g.page.Put(g.used, key, value)
		g.used++
		l.stats.Keys++
	}
	return l.finish()
}

// room returns the page of a level to which the record with the given key is to be added. If the
// current page of the level is full, room ends the page's range before this key and begins a new
// page.
func (l *loader) room(level int, key uint64) (*growing, error) {
	if level == len(l.levels) {
		g := &growing{}
		l.levels = append(l.levels, g)
		l.stats.Pages = append(l.stats.Pages, 0)
		return g, l.open(g, level, 0, 0)
	}
	g := l.levels[level]
	slots := l.super.Shape.Slots(level)
	// a page that ends at MaxKey also holds the key MaxKey
	if g.used < max(1, slots*fillPercent/100) || key == layout.MaxKey && g.used < slots {
		return g, nil
	}
	done, old := *g, g.addr
	*g = growing{}
	if err := l.open(g, level, key, 0); err != nil {
		return nil, err
	}
	done.page.End(key, g.addr)
	if err := l.closed(&done); err != nil {
		return nil, err
	}
	return g, l.link(level+1, key, old, g.addr)
}

// link adds a separator for `page`, the right neighbour of `left`, to the given level.
func (l *loader) link(level int, key uint64, left, page layout.Addr) error {
	// the first page of a level becomes the leftmost child of the first page above
	if level == len(l.levels) {
		g := &growing{}
		l.levels = append(l.levels, g)
		l.stats.Pages = append(l.stats.Pages, 0)
		if err := l.open(g, level, 0, left); err != nil {
			return err
		}
	}
	g, err := l.room(level, key)
	if err != nil {
		return err
	}
	if g.used == 0 && g.page.Leftmost == 0 {
		g.page.Lead(page)
		return nil
	}
	g.page.PutChild(key, page)
	g.used++
	return nil
}

func (l *loader) open(g *growing, level int, lowest uint64, leftmost layout.Addr) error {
	b, err := l.take(g)
	if err != nil {
		return err
	}
	g.page.Init(l.super.Shape, b, layout.Header{
		Level: level, Lowest: lowest, Highest: layout.MaxKey, Leftmost: leftmost, Self: g.addr, Generation: l.super.Generation,
	})
	l.stats.Pages[level]++
	return nil
}

// finish ends the last page of each level and makes the page of the top level the root.
func (l *loader) finish() error {
	if len(l.levels) == 0 {
		return nil
	}
	for _, g := range l.levels {
		if err := l.closed(g); err != nil {
			return err
		}
	}
	for i := range l.servers {
		if err := l.putWord(i, layout.AllocWord, l.at[i], l.deadline); err != nil {
			return err
		}
	}
	if err := l.putWord(0, layout.RootWord, uint64(l.levels[len(l.levels)-1].addr), l.deadline); err != nil {
		return err
	}
	// No page names the empty root any more. finish overwrites it: a node that remembers its
	// address must not mistake it for the root of the tree.
	return l.put(l.old.Server(), l.old.Offset(), make([]byte, l.super.Shape.Page), l.deadline)
}

// take gives page g its address and returns its buffer.
func (l *loader) take(g *growing) ([]byte, error) {
	page := l.super.Shape.Page
	var p *piece
	if n := len(l.spare); n > 0 {
		p = l.spare[n-1]
	} else {
		var err error
		if p, err = l.piece(); err != nil {
			return nil, err
		}
		l.spare = append(l.spare, p)
	}
	b := p.buf[p.next : p.next+page]
	g.addr, g.piece = layout.At(p.server, p.off+uint64(p.next)), p
	p.next += page
	p.open++
	if p.next+page > len(p.buf) {
		p.detached = true
		l.spare = l.spare[:len(l.spare)-1]
	}
	return b, nil
}

// piece takes memory for a new piece from the server whose turn it is, or from the next one that
// has enough memory.
func (l *loader) piece() (*piece, error) {
	size := max(extent/l.super.Chunk, 1) * l.super.Chunk
	for range l.servers {
		i := l.turn
		l.turn = (l.turn + 1) % len(l.servers)
		if l.at[i]+uint64(size) <= uint64(l.mem[i].Region.Len) {
			p := &piece{server: i, off: l.at[i], buf: make([]byte, size)}
			l.at[i] += uint64(size)
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: after %d keys", kv.ErrFull, l.stats.Keys)
}

// closed is called when a page is finished. If all pages of its piece are finished and no further
// page will be added to the piece, closed writes the piece.
func (l *loader) closed(g *growing) error {
	p := g.piece
	if p.open--; p.open > 0 {
		return nil
	}
	if !p.detached && l.levels != nil && g.page.Highest != layout.MaxKey {
		return nil // more pages will be added to the piece
	}
	for off := 0; off < p.next; off += l.buf {
		n := min(l.buf, p.next-off)
		if err := l.put(p.server, p.off+uint64(off), p.buf[off:off+n], l.deadline); err != nil {
			return err
		}
		l.stats.Bytes += uint64(n)
	}
	return nil
}
