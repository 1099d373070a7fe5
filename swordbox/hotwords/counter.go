package hotwords

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// maxUnits is how many units (words, lines or pages of memory, as the rule says) a Counter counts
// for one request at most: the first ones of the request. Counting all units of a long request
// would take the switch too long.
const maxUnits = 16

// Stats counts what a Counter did.
type Stats struct {
	Requests uint64 `name:"requests" help:"requests under rules of action count"`
	Units    uint64 `name:"units" help:"words, lines or pages that these requests touched"`
	Cut      uint64 `name:"cut" help:"requests of which only the first 16 units were counted"`
	Taken    uint64 `name:"taken_over" help:"addresses that took the place of another one"`
}

// Counter is the handler of rules of action count that keep their counts in the switch. Make one
// with New.
type Counter struct {
	watched []watched // in the order of the rules
	stats   Stats
}

// watched is a rule with the counts of its addresses.
type watched struct {
	rule  *rules.Rule
	shift uint // log2 of the unit in bytes
	saving
}

var (
	_ handler.Observer = (*Counter)(nil)
	_ handler.Tabler   = (*Counter)(nil)
)

// New makes a Counter without rules.
func New() *Counter { return &Counter{} }

// Kind returns the counter's registry entry.
func (c *Counter) Kind() *handler.Kind { return &Kind }

// SetRules takes new rules. A rule that has not changed keeps its counts.
func (c *Counter) SetRules(set *rules.Set) {
	former := c.watched
	c.watched = nil
	for r := range Kind.Of(set) {
		w := watched{rule: r, shift: ShiftOf(r)}
		for _, f := range former {
			if same(f.rule, r) {
				w.saving = f.saving
			}
		}
		if w.places == nil {
			w.saving = *newSaving(topOf(r))
		}
		c.watched = append(c.watched, w)
	}
}

// same reports whether two rules select the same requests and count the same addresses.
func same(a, b *rules.Rule) bool {
	return a.ID == b.ID && a.Server == b.Server && slices.Equal(a.Also, b.Also) && a.From == b.From && a.To == b.To && a.RKey == b.RKey && maps.Equal(a.Options, b.Options)
}

// Observe counts a request.
func (c *Counter) Observe(_ *pipeline.Ctx, r *rules.Rule, t handler.Target) {
	kind := kindRead
	switch {
	case t.Opcode.Is(wire.OpAtomic):
		kind = kindAtomic
	case t.Opcode.Is(wire.OpWrite):
		kind = kindWrite
	}
	for i := range c.watched {
		if w := &c.watched[i]; w.rule == r {
			c.stats.Requests++
			c.count(w, kind, t)
			return
		}
	}
}

// count adds a request to the counts of the units that it touches, at most maxUnits of them. A
// request of no bytes touches the unit of its address.
func (c *Counter) count(w *watched, kind int, t handler.Target) {
	first := t.VA >> w.shift
	last := (t.VA + uint64(max(t.Length, 1)) - 1) >> w.shift
	if last < first { // the range runs over the end of the address space
		last = ^uint64(0) >> w.shift
	}
	if last-first >= maxUnits {
		c.stats.Cut++
		last = first + maxUnits - 1
	}
	for unit := first; ; unit++ {
		c.stats.Units++
		if w.add(unit, kind) {
			c.stats.Taken++
		}
		if unit == last {
			return
		}
	}
}

// list returns the counts, the highest first.
func (c *Counter) list(clock.Time) []Hot {
	var list []Hot
	for i := range c.watched {
		w := &c.watched[i]
		for _, e := range w.heap {
			list = append(list, Hot{
				Rule: w.rule.ID, Server: w.rule.Server, Address: e.key << w.shift, Unit: 1 << w.shift, Count: e.count, Over: e.over,
				Reads: e.kinds[kindRead], Writes: e.kinds[kindWrite], Atomics: e.kinds[kindAtomic],
			})
		}
	}
	slices.SortStableFunc(list, func(a, b Hot) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Address, b.Address))
	})
	return list
}

// Info lists the counters.
func (c *Counter) Info(clock.Time) handler.Info {
	return handler.Info{Mode: Kind.Mode, Counters: handler.Counters("", c.stats)}
}

const tableHot = "hot"

// Tables lists the table of counts.
func (c *Counter) Tables() []handler.Table {
	used := 0
	for i := range c.watched {
		used += len(c.watched[i].heap)
	}
	return []handler.Table{{Name: tableHot, Doc: "addresses with a count of a rule of action count", Used: used, Max: MaxCounters, Clear: true}}
}

// ClearTable removes all counts, and returns how many there were.
func (c *Counter) ClearTable(string) (n int) {
	for i := range c.watched {
		n += len(c.watched[i].heap)
		c.watched[i].clear()
	}
	return n
}

// Spec declares the table of counts for a switching chip: it matches a rule and a unit, and holds
// the unit's count, by how much the count may be too large, and the numbers of READs, WRITEs and
// atomics. The chip's control plane would have to find the entry with the smallest count.
func (c *Counter) Spec() pipeline.Part {
	const ruleBits, unitBits, countBits = 8, 61, 64
	return pipeline.Part{Tables: []pipeline.TableSpec{
		{Name: "hot addresses", KeyBits: ruleBits + unitBits, ValueBits: 5 * countBits, Entries: MaxCounters, Learned: true},
	}}
}
