package top

import "fmt"

// opsOf and p99Of return the keys in Model.history of a host's operations per second, and of the
// 99th percentiles of their latency. Host names have no slash, so keys of different hosts differ.
func opsOf(host string) string { return host + "/ops" }
func p99Of(host string) string { return host + "/p99" }

// columnOf returns the key in rates.columns of a counter of the stores on a host.
func columnOf(host, column string) string { return host + "/" + column }

// storeLines returns how many lines stores take: one for each host with clients, and a heading.
func (m Model) storeLines() int {
	n := 0
	for i := range m.now.Nodes {
		if m.now.Nodes[i].Clients > 0 {
			n++
		}
	}
	if n > 0 {
		n++
	}
	return n
}

// stores adds a line for each host with clients of stores, as far as there is room.
func (m Model) stores(p *page, rows int, r *rates) {
	if m.storeLines() == 0 || len(p.lines)+2 > rows {
		return
	}
	p.add(func(l *line) {
		l.text(faint, "  ")
		l.left(faint, 8, "STORE ON")
		l.right(faint, 7, "CLIENTS")
		l.right(faint, 7, "OPS/s")
		l.left(faint, sparkWidth, fmt.Sprintf("LAST %d s", sparkWidth))
		l.right(faint, 8, "P99 usec")
		l.left(faint, sparkWidth, fmt.Sprintf("LAST %d s", sparkWidth))
	})
	for i := range m.now.Nodes {
		n := &m.now.Nodes[i]
		if n.Clients == 0 || len(p.lines) >= rows {
			continue
		}
		p.add(func(l *line) {
			l.text(plain, "  ")
			l.left(plain, 8, n.Name)
			l.right(plain, 7, fmt.Sprint(n.Clients))
			l.right(plain, 7, amount(n.Ops))
			l.left(accent, sparkWidth, spark(m.style, m.history[opsOf(n.Name)], sparkWidth))
			l.right(plain, 8, amount(n.P99))
			l.left(accent, sparkWidth, spark(m.style, m.history[p99Of(n.Name)], sparkWidth))
			for _, c := range n.Columns {
				l.text(plain, " "+c.Name+"/s "+amount(r.of(r.columns, columnOf(n.Name, c.Name), c.Value)))
			}
		})
	}
}
