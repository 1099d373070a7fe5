package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Columns of the tables of the switch.
var (
	counterColumns = []column{number("A SECOND", 8), number("ALL", 6)}
	tableColumns   = []column{text("TABLE", 14), number("USED", 6), number("OF", 6)}
	sharedColumns  = []column{text("OWN CONN", 10), text("STATE", 10), number("OPEN", 9), number("QUEUED", 7), text("NEXT PSN", 8), number("TRIES", 5)}
	keyColumns     = []column{text("HOT KEY", 20), number("A SECOND", 8), number("READS", 7), number("APPENDS", 7), number("STEERED", 7)}
	wordColumns    = []column{text("SERVER", 8), text("WORD AT", 16), text("STATE", 10), number("VALUE", 18), number("PENDING", 7)}
)

// switchPage shows counters beside the sizes of the switch's tables. Below are the switch's shared
// connections, then hot keys, then words.
func (m Model) switchPage(rows int, r *rates) []string {
	p, s := m.newPage(), &m.now.Switch
	if n := len(m.now.Nodes); n == 0 || m.now.Nodes[n-1].State != "up" {
		state := "unknown"
		if n > 0 {
			state = m.now.Nodes[n-1].State
		}
		p.say(bad, "the switch does not answer; its state is "+state)
		return p.fit(rows)
	}
	counters := slices.Clone(s.Counters)
	// Counters that grow come first. Apart from that, the order does not change, so that lines stay
	// in place.
	idle := func(c Counter) int { return either(r.of(r.counts, c.Name, c.Value) == 0, 1, 0) }
	slices.SortStableFunc(counters, func(a, b Counter) int { return cmp.Compare(idle(a), idle(b)) })
	below := 0
	if len(s.Shared) > 0 {
		below += 1 + len(s.Shared)
	}
	for _, n := range []int{len(s.Keys), len(s.Words)} {
		if n > 0 {
			below += 1 + min(n, 2) // room for a heading and two lines
		}
	}
	upper := min(max(len(counters), len(s.Tables))+1, max(rows-below, min(rows, 7)))
	half := m.width / 2
	for i := range upper {
		p.add(func(l *line) {
			l.counterCell(counters, i-1, r)
			l.text(plain, strings.Repeat(" ", max(1, l.room-(m.width-half))))
			l.tableCell(s.Tables, i-1)
		})
	}
	for i := range s.Shared {
		if i == 0 && len(p.lines) < rows {
			p.add(func(l *line) { l.head(sharedColumns) })
		}
		if len(p.lines) < rows {
			p.sharedLine(&s.Shared[i])
		}
	}
	words := 0
	if n := len(s.Words); n > 0 {
		words = min(n, 2) + 1
	}
	m.hotKeys(p, rows-words)
	m.words(p, rows, r)
	return p.fit(rows)
}

// counterCell writes the heading of the counters if i is negative, otherwise counter number i. If
// there is no counter i, it writes nothing.
func (l *line) counterCell(list []Counter, i int, r *rates) {
	switch {
	case i < 0:
		l.head(counterColumns)
		l.text(faint, "COUNTER")
	case i < len(list):
		c := list[i]
		rate := r.of(r.counts, c.Name, c.Value)
		l.cells(counterColumns, []cell{{either(rate > 0, accent, plain), amount(rate)}, {plain, amount(c.Value)}})
		l.text(plain, cut(c.Name, 22))
	}
}

func (l *line) tableCell(list []Table, i int) {
	switch {
	case i < 0:
		l.head(tableColumns)
	case i < len(list):
		t := list[i]
		l.cells(tableColumns, []cell{{plain, t.Name}, {either(t.Used == t.Max, bad, plain), amount(uint64(t.Used))}, {plain, amount(uint64(t.Max))}})
	}
}

func (p *page) sharedLine(s *Shared) {
	p.add(func(l *line) {
		l.cells(sharedColumns, []cell{
			{plain, s.Name},
			{statePaint(s.State), s.State},
			{plain, fmt.Sprintf("%d/%d", s.Open, s.Most)},
			{above(uint64(s.Queued)), fmt.Sprint(s.Queued)},
			{plain, hex(uint32(s.NextPSN))},
			{plain, fmt.Sprint(s.Tries)},
		})
	})
}

// hotKeys adds the keys of a store, those with the most requests first.
func (m Model) hotKeys(p *page, rows int) {
	keys := slices.Clone(m.now.Switch.Keys)
	if len(keys) == 0 || len(p.lines)+1 >= rows {
		return
	}
	slices.SortStableFunc(keys, func(a, b Key) int { return cmp.Compare(b.Rate, a.Rate) })
	p.add(func(l *line) {
		l.head(keyColumns)
		l.text(faint, "NEWEST NODE AT")
	})
	for i := range keys {
		if len(p.lines) >= rows {
			return
		}
		k := &keys[i]
		p.add(func(l *line) {
			rate := uint64(max(0, k.Rate) + 0.5)
			l.cells(keyColumns, []cell{
				{plain, fmt.Sprint(k.Key)},
				{either(rate > 0, accent, plain), amount(rate)},
				{plain, amount(k.Reads)},
				{plain, amount(k.Appends)},
				{plain, amount(k.Steered)},
			})
			if k.Server == "" {
				l.text(plain, "-")
				return
			}
			l.text(plain, fmt.Sprintf("%s %#x", k.Server, k.VA))
		})
	}
}

// words adds the words, busy ones first.
func (m Model) words(p *page, rows int, r *rates) {
	words := slices.Clone(m.now.Switch.Words)
	if len(words) == 0 || len(p.lines)+1 >= rows {
		return
	}
	heat := func(w *Word) int {
		h := 2 * w.Pending
		if r.changed(w) {
			h++
		}
		return h
	}
	slices.SortStableFunc(words, func(a, b Word) int { return cmp.Compare(heat(&b), heat(&a)) })
	p.add(func(l *line) {
		l.head(wordColumns)
		l.text(faint, "  busiest first")
	})
	for i := range words {
		if len(p.lines) >= rows {
			return
		}
		w := &words[i]
		p.add(func(l *line) {
			mark := either(r.changed(w), accent, plain)
			l.cells(wordColumns, []cell{
				{plain, w.Server}, {plain, fmt.Sprintf("%#x", w.VA)}, {statePaint(w.State), w.State}, {mark, fmt.Sprintf("%#x", w.Value)}, {plain, fmt.Sprint(w.Pending)},
			})
		})
	}
}
