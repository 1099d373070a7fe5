package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// linkPage is a line a host and one for the switch, and faults below.
func (m Model) linkPage(rows int, r *rates) []string {
	p := m.newPage()
	wide := m.width >= wideWidth
	p.add(func(l *line) {
		l.text(faint, "  ")
		l.left(faint, 8, "HOST")
		l.left(faint, 11, "STATE")
		for _, c := range []struct {
			width int
			name  string
		}{{8, "UP pkt/s"}, {6, "bit/s"}, {10, "DOWN pkt/s"}, {6, "bit/s"}, {6, "DROP/s"}, {6, "RETR/s"}} {
			l.right(faint, c.width, c.name)
		}
		if wide {
			l.right(faint, 7, "DROPPED")
			l.right(faint, 6, "RETRAN")
			l.left(faint, sparkWidth, fmt.Sprintf("BITS, LAST %d s", sparkWidth))
		}
		l.text(faint, "FAULTS")
	})
	for i := range m.now.Nodes {
		if len(p.lines) >= rows {
			break
		}
		m.linkLine(p, &m.now.Nodes[i], r, i == m.chosen, wide)
	}
	for i, text := range m.faultLines() {
		if i == 0 && len(p.lines)+1 < rows {
			p.say(plain, "")
		}
		if len(p.lines) < rows {
			p.say(plain, text)
		}
	}
	if rest := rows - len(p.lines) - 2; m.height < tallHeight && rest >= minQPs {
		p.lines = append(p.lines, "", m.title(QPs))
		p.lines = append(p.lines, m.qpPage(rest, r)...)
	}
	return p.fit(rows)
}

// minQPs is how many lines of queue pairs are worth to be shown below the links.
const minQPs = 4

// sparkWidth is how many seconds a sparkline shows.
const sparkWidth = 20

func (m Model) linkLine(p *page, n *Node, r *rates, isChosen, wide bool) {
	p.add(func(l *line) {
		name, mark := plain, "  "
		if isChosen {
			name, mark = chosen, "> "
		}
		l.text(bold, mark)
		l.left(name, 8, n.Name)
		state := n.State
		if state == "up" && n.Link != "" && n.Link != "up" {
			state = "link " + n.Link
		}
		l.left(statePaint(n.State), 11, state)
		if n.Link == "" { // the switch: sums would say everything twice
			for _, c := range m.now.Switch.Counters {
				if c.Name == "rewritten" && c.Value > 0 {
					l.text(plain, fmt.Sprintf("%8s packets rewritten a second", amount(r.of(r.counts, c.Name, c.Value))))
				}
			}
			return
		}
		drops, again := r.of(r.drops, n.Name, n.Dropped), r.of(r.retrans, n.Name, n.Retrans)
		l.right(plain, 8, amount(n.UpPackets))
		l.right(plain, 6, amount(n.UpBits))
		l.right(plain, 10, amount(n.DownPackets))
		l.right(plain, 6, amount(n.DownBits))
		l.right(above(drops), 6, amount(drops))
		l.right(above(again), 6, amount(again))
		if wide {
			l.right(plain, 7, amount(n.Dropped))
			l.right(plain, 6, amount(n.Retrans))
			l.left(accent, sparkWidth, spark(m.style, m.history[n.Name], sparkWidth))
		}
		l.text(warn, strings.Join(n.Faults, ","))
	})
}

// above marks numbers that ought to be 0.
func above(n uint64) paint {
	if n > 0 {
		return warn
	}
	return plain
}

// faultLines says what rules there are, and the partition.
func (m Model) faultLines() (lines []string) {
	for _, f := range m.now.Faults {
		lines = append(lines, fmt.Sprintf("  %-6s %-8s %6s hits  %s", f.ID, f.State, amount(f.Hits), oneLine(f.Text)))
	}
	if len(m.now.Partition) > 0 {
		sides := make([]string, len(m.now.Partition))
		for i, g := range m.now.Partition {
			sides[i] = strings.Join(g, ",")
		}
		if len(sides) == 1 {
			sides = append(sides, "all others")
		}
		lines = append(lines, "  partition: "+strings.Join(sides, " | "))
	}
	return lines
}

// qpPage is a line a queue pair.
func (m Model) qpPage(rows int, r *rates) []string {
	p := m.newPage()
	wide := m.width >= wideWidth
	p.add(func(l *line) {
		l.left(faint, 6, "HOST")
		l.left(faint, 8, "QP")
		l.left(faint, 4, "TYPE")
		l.left(faint, 5, "STATE")
		l.left(faint, 8, "PEER")
		l.left(faint, 8, "PEER QP")
		l.left(faint, 8, "SEND PSN")
		l.left(faint, 8, "RECV PSN")
		l.right(faint, 6, "PSN/s")
		l.right(faint, 5, "RETR")
		if wide {
			l.right(faint, 6, "RETR/s")
			l.right(faint, 8, "SENDS")
			l.right(faint, 8, "RECEIVES")
		}
	})
	qps := m.now.QPs
	if m.scroll == 0 { // those that failed, then those that do something
		qps = slices.Clone(qps)
		slices.SortStableFunc(qps, func(a, b QP) int { return cmp.Compare(r.rank(&a), r.rank(&b)) })
	}
	first := min(m.scroll, max(0, len(qps)-1))
	for i := first; i < len(qps) && len(p.lines) < rows; i++ {
		if len(p.lines) == rows-1 && i < len(qps)-1 {
			p.say(faint, fmt.Sprintf("%d more: pgdn", len(qps)-i))
			break
		}
		qpLine(p, &qps[i], r, wide)
	}
	if len(qps) == 0 {
		p.say(faint, "no queue pair: try `rdmalab perf write_bw --from HOST --to SERVER`")
	}
	return p.fit(rows)
}

func qpLine(p *page, q *QP, r *rates, wide bool) {
	on, again := r.psns(q)
	p.add(func(l *line) {
		peer, peerQP := "-", "-"
		if q.Peer != "" {
			peer = q.Peer
		}
		if q.PeerQPN != 0 {
			peerQP = hex(uint32(q.PeerQPN))
		}
		l.left(plain, 6, q.Host)
		l.left(plain, 8, hex(uint32(q.QPN)))
		l.left(plain, 4, q.Type)
		l.left(statePaint(q.State), 5, q.State)
		l.left(plain, 8, peer)
		l.left(plain, 8, peerQP)
		l.left(plain, 8, hex(uint32(q.SendPSN)))
		l.left(plain, 8, hex(uint32(q.RecvPSN)))
		l.right(plain, 6, amount(on))
		l.right(above(again), 5, amount(q.Retrans))
		if wide {
			l.right(above(again), 6, amount(again))
			l.right(plain, 8, fmt.Sprint(q.SendQueued))
			l.right(plain, 8, fmt.Sprint(q.RecvQueued))
		}
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func hex(n uint32) string { return fmt.Sprintf("%#06x", n) }

// switchPage is counters beside tables, then the switch's own connections, then words.
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
	// Those that grow come first; among them the order stays, so that lines do not jump.
	idle := func(c Counter) int { return boolInt(r.of(r.counts, c.Name, c.Value) == 0) }
	slices.SortStableFunc(counters, func(a, b Counter) int { return cmp.Compare(idle(a), idle(b)) })
	below := 0
	if len(s.Shared) > 0 {
		below += 1 + len(s.Shared)
	}
	if len(s.Words) > 0 {
		below += 3 // at least a head and two words
	}
	upper := min(max(len(counters), len(s.Tables))+1, max(rows-below, min(rows, 7)))
	half := m.width / 2
	for i := range upper {
		p.add(func(l *line) {
			counterCell(l, counters, i-1, r)
			l.text(plain, strings.Repeat(" ", max(1, l.room-(m.width-half))))
			tableCell(l, s.Tables, i-1)
		})
	}
	for i := range s.Shared {
		if i == 0 && len(p.lines) < rows {
			p.add(sharedHead)
		}
		if len(p.lines) < rows {
			sharedLine(p, &s.Shared[i])
		}
	}
	m.words(p, rows, r)
	return p.fit(rows)
}

// counterCell is the head for i < 0, a counter, or nothing.
func counterCell(l *line, list []Counter, i int, r *rates) {
	switch {
	case i < 0:
		l.right(faint, 8, "A SECOND")
		l.right(faint, 6, "ALL")
		l.text(faint, "COUNTER")
	case i < len(list):
		c := list[i]
		rate := r.of(r.counts, c.Name, c.Value)
		mark := plain
		if rate > 0 {
			mark = accent
		}
		l.right(mark, 8, amount(rate))
		l.right(plain, 6, amount(c.Value))
		l.text(plain, cut(c.Name, 22))
	}
}

func tableCell(l *line, list []Table, i int) {
	switch {
	case i < 0:
		l.left(faint, 14, "TABLE")
		l.right(faint, 6, "USED")
		l.right(faint, 6, "OF")
	case i < len(list):
		t := list[i]
		mark := plain
		if t.Used == t.Max {
			mark = bad
		}
		l.left(plain, 14, t.Name)
		l.right(mark, 6, amount(uint64(t.Used)))
		l.right(plain, 6, amount(uint64(t.Max)))
	}
}

func sharedHead(l *line) {
	l.left(faint, 10, "OWN CONN")
	l.left(faint, 10, "STATE")
	l.right(faint, 9, "OPEN")
	l.right(faint, 7, "QUEUED")
	l.left(faint, 8, "NEXT PSN")
	l.right(faint, 5, "TRIES")
}

func sharedLine(p *page, s *Shared) {
	p.add(func(l *line) {
		l.left(plain, 10, s.Name)
		l.left(statePaint(s.State), 10, s.State)
		l.right(plain, 9, fmt.Sprintf("%d/%d", s.Open, s.Most))
		l.right(above(uint64(s.Queued)), 7, fmt.Sprint(s.Queued))
		l.left(plain, 8, hex(uint32(s.NextPSN)))
		l.right(plain, 5, fmt.Sprint(s.Tries))
	})
}

// words are those that are busy first: hot keys.
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
		l.left(faint, 8, "SERVER")
		l.left(faint, 16, "WORD AT")
		l.left(faint, 10, "STATE")
		l.right(faint, 18, "VALUE")
		l.right(faint, 7, "PENDING")
		l.text(faint, "  busiest first")
	})
	for i := range words {
		if len(p.lines) >= rows {
			return
		}
		w := &words[i]
		p.add(func(l *line) {
			mark := plain
			if r.changed(w) {
				mark = accent
			}
			l.left(plain, 8, w.Server)
			l.left(plain, 16, fmt.Sprintf("%#x", w.VA))
			l.left(statePaint(w.State), 10, w.State)
			l.right(mark, 18, fmt.Sprintf("%#x", w.Value))
			l.right(plain, 7, fmt.Sprint(w.Pending))
		})
	}
}
