package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Columns of the links and of the queue pairs. Narrow screens have only the first narrowLinks and
// narrowQPs of them.
var (
	linkColumns = []column{
		text("HOST", 8), text("STATE", 11), number("UP pkt/s", 8), number("bit/s", 6), number("DOWN pkt/s", 10), number("bit/s", 6),
		number("DROP/s", 6), number("RETR/s", 6), number("DROPPED", 7), number("RETRAN", 6), text(fmt.Sprintf("BITS, LAST %d s", sparkWidth), sparkWidth),
	}
	qpColumns = []column{
		text("HOST", 6), text("QP", 8), text("TYPE", 4), text("STATE", 5), text("PEER", 8), text("PEER QP", 8), text("SEND PSN", 8), text("RECV PSN", 8),
		number("PSN/s", 6), number("RETR", 5), number("RETR/s", 6), number("SENDS", 8), number("RECEIVES", 8),
	}
)

const narrowLinks, narrowQPs = 8, 10

// linkPage returns the lines about links: one for each host and one for the switch, and below them
// those of stores and faults. On a screen that does not show all panes, queue pairs follow if there
// is room.
func (m Model) linkPage(rows int, r *rates) []string {
	p, columns := m.newPage(), linkColumns
	if m.width < wideWidth {
		columns = columns[:narrowLinks]
	}
	p.add(func(l *line) {
		l.text(faint, "  ")
		l.head(columns)
		l.text(faint, "FAULTS")
	})
	for i := range m.now.Nodes {
		if len(p.lines) >= rows {
			break
		}
		m.linkLine(p, columns, &m.now.Nodes[i], r, i == m.chosen)
	}
	m.stores(p, rows, r)
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

// minQPs is the smallest number of lines of the list of queue pairs below the links. If fewer lines
// are free, the list is left out.
const minQPs = 4

// sparkWidth is how many seconds a sparkline shows.
const sparkWidth = 20

func (m Model) linkLine(p *page, columns []column, n *Node, r *rates, isChosen bool) {
	p.add(func(l *line) {
		l.text(bold, either(isChosen, "> ", "  "))
		state := n.State
		if state == "up" && n.Link != "" && n.Link != "up" {
			state = "link " + n.Link
		}
		l.cells(columns, []cell{{either(isChosen, chosen, plain), n.Name}, {statePaint(n.State), state}})
		if n.Link == "" { // the switch's line has no rates of links, which would be the sums of the hosts' rates
			for _, c := range m.now.Switch.Counters {
				if c.Name == "rewritten" && c.Value > 0 {
					l.text(plain, fmt.Sprintf("%8s packets rewritten a second", amount(r.of(r.counts, c.Name, c.Value))))
				}
			}
			return
		}
		drops, again := r.of(r.drops, n.Name, n.Dropped), r.of(r.retrans, n.Name, n.Retrans)
		l.cells(columns[2:], []cell{
			{plain, amount(n.UpPackets)},
			{plain, amount(n.UpBits)},
			{plain, amount(n.DownPackets)},
			{plain, amount(n.DownBits)},
			{above(drops), amount(drops)},
			{above(again), amount(again)},
			{plain, amount(n.Dropped)},
			{plain, amount(n.Retrans)},
			{accent, spark(m.style, m.history[n.Name], sparkWidth)},
		})
		l.text(warn, strings.Join(n.Faults, ","))
	})
}

// above returns the paint of a number that should be 0, like a number of losses: warn if it is not.
func above(n uint64) paint {
	return either(n > 0, warn, plain)
}

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

func (m Model) qpPage(rows int, r *rates) []string {
	p, columns := m.newPage(), qpColumns
	if m.width < wideWidth {
		columns = columns[:narrowQPs]
	}
	p.add(func(l *line) { l.head(columns) })
	qps := m.now.QPs
	if m.scroll == 0 { // failed queue pairs come first, then active ones
		qps = slices.Clone(qps)
		slices.SortStableFunc(qps, func(a, b QP) int { return cmp.Compare(r.rank(&a), r.rank(&b)) })
		qps = r.mixed(qps, rows)
	}
	first := min(m.scroll, max(0, len(qps)-1))
	for i := first; i < len(qps) && len(p.lines) < rows; i++ {
		if len(p.lines) == rows-1 && i < len(qps)-1 {
			p.say(faint, fmt.Sprintf("%d more: pgdn", len(qps)-i))
			break
		}
		p.qpLine(columns, &qps[i], r)
	}
	if len(qps) == 0 {
		p.say(faint, "no queue pair: try `rdmalab perf write_bw --from HOST --to SERVER`")
	}
	return p.fit(rows)
}

func (p *page) qpLine(columns []column, q *QP, r *rates) {
	on, again := r.psns(q)
	p.add(func(l *line) {
		peer, peerQP := cmp.Or(q.Peer, "-"), either(q.PeerQPN != 0, hex(uint32(q.PeerQPN)), "-")
		l.cells(columns, []cell{
			{plain, q.Host},
			{plain, hex(uint32(q.QPN))},
			{plain, q.Type},
			{statePaint(q.State), q.State},
			{plain, peer},
			{plain, peerQP},
			{plain, hex(uint32(q.SendPSN))},
			{plain, hex(uint32(q.RecvPSN))},
			{plain, amount(on)},
			{above(again), amount(q.Retrans)},
			{above(again), amount(again)},
			{plain, fmt.Sprint(q.SendQueued)},
			{plain, fmt.Sprint(q.RecvQueued)},
		})
	})
}

func hex(n uint32) string { return fmt.Sprintf("%#06x", n) }
