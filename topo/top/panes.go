package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// linkPage has a line for each host and one for the switch; stores and faults follow.
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

// minQPs is the smallest number of lines for queue pairs below the links; with fewer they are left
// out.
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
		if n.Link == "" { // the switch has no numbers, because they would be the sums of the hosts'
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

// above returns the paint of a number that should be 0, like a number of losses: bad if it is not 0.
func above(n uint64) paint {
	if n > 0 {
		return warn
	}
	return plain
}

// faultLines lists the fault rules and the partition.
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

// qpPage has a line for each queue pair.
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
