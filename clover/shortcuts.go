package clover

import (
	"iter"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
)

// shortcuts has the WRITEs of shortcuts that a client has posted, and decides after which appends it
// posts one.
type shortcuts struct {
	// ops are the WRITEs; appends is how many appends there were.
	ops     [shortcutSlots]remotemem.Op
	appends uint
	raced   int // for how many appends the client still writes each shortcut
}

// A client writes the shortcut of the key after each append as long as other clients append first:
// they read it to find the newest node. raceMemory is for how many appends after a lost race it goes
// on. Otherwise it writes the shortcut of every freshenEvery-th append. It uses the first turnSlots
// WRITEs in turn.
const (
	raceMemory   = 64
	freshenEvery = 4
	turnSlots    = 16
)

// due counts an append and reports whether its shortcut is to be written. raced is true if other
// clients have appended first.
func (s *shortcuts) due(raced bool) bool {
	s.appends++
	if s.raced = max(0, s.raced-1); raced {
		s.raced = raceMemory
	}
	return s.raced > 0 || s.appends%freshenEvery == 0
}

// idle reports whether the last WRITEs are complete.
func (s *shortcuts) idle() bool {
	for i := range s.ops {
		if !over(&s.ops[i]) {
			return false
		}
	}
	return true
}

// firsts returns the indices of the first record of each key among the oldest n records, without
// records of deletions. Their shortcuts are those that the published client writes with a report.
func (g *reports) firsts(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, r := range g.records[:n] {
			same := func(o rpc.Record) bool { return o.Key == r.Key }
			if !r.Deleted && !slices.ContainsFunc(g.records[:i], same) && !yield(i) {
				return
			}
		}
	}
}

// freshen posts the WRITE of a shortcut, as WRITE i. It leaves the shortcut as it is if an earlier
// WRITE i is still in flight, or if its server is not connected: the shortcut then goes on naming an
// older node.
func (c *session) freshen(i int, slot uint32, word layout.Word) {
	s := &c.gc.shortcuts
	p, ok := c.space.Shortcut(int(slot))
	if !ok || !over(&s.ops[i]) || !c.fab.Connected(c.servers[p.Server].peer) {
		return
	}
	off := c.at.words + 8*(wordSlots-shortcutSlots+i)
	if c.fab.MR().Store64(off, uint64(word)) != nil {
		return
	}
	c.fab.Write(&s.ops[i], c.servers[p.Server].target(p.Offset), off, layout.ShortcutLen)
	_ = c.fab.Start(&s.ops[i])
}
