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

var storeColumns = []column{
	text("STORE ON", 8), number("CLIENTS", 7), number("OPS/s", 7), text(fmt.Sprintf("LAST %d s", sparkWidth), sparkWidth),
	number("P99 usec", 8), text(fmt.Sprintf("LAST %d s", sparkWidth), sparkWidth),
}

// stores adds a line for each host with clients of stores, as far as there is room.
func (m Model) stores(p *page, rows int, r *rates) {
	if m.storeLines() == 0 || len(p.lines)+2 > rows {
		return
	}
	p.add(func(l *line) {
		l.text(faint, "  ")
		l.head(storeColumns)
	})
	for i := range m.now.Nodes {
		n := &m.now.Nodes[i]
		if n.Clients == 0 || len(p.lines) >= rows {
			continue
		}
		p.add(func(l *line) {
			l.text(plain, "  ")
			l.cells(storeColumns, []cell{
				{plain, n.Name},
				{plain, fmt.Sprint(n.Clients)},
				{plain, amount(n.Ops)},
				{accent, spark(m.style, m.history[opsOf(n.Name)], sparkWidth)},
				{plain, amount(n.P99)},
				{accent, spark(m.style, m.history[p99Of(n.Name)], sparkWidth)},
			})
			for _, c := range n.Columns {
				l.text(plain, " "+c.Name+"/s "+amount(r.of(r.columns, columnOf(n.Name, c.Name), c.Value)))
			}
		})
	}
}
