package top

import "strings"

const printWidth = 120

// Print returns all panes as text, one below the other. Rates are those between the samples
// `before` and `now`.
func Print(style Style, before, now *Sample) string {
	m := Model{style: style, width: printWidth, height: tallHeight, chosen: -1, before: before, now: now, history: map[string][]uint64{}}
	r := since(before, now)
	lines := append(m.header(), m.linkPage(len(now.Nodes)+2+m.storeLines()+len(m.faultLines()), r)...)
	lines = append(append(lines, m.title(QPs)), m.qpPage(len(now.QPs)+2, r)...)
	sw := &now.Switch
	rows := max(len(sw.Counters), len(sw.Tables)) + len(sw.Shared) + len(sw.Words) + len(sw.Keys) + 4
	lines = append(append(lines, m.title(SwitchPane)), m.switchPage(rows, r)...)
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
