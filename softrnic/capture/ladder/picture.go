package ladder

import (
	"fmt"
	"html"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
)

// MaxDrawn is how many rows a picture or a page has; it says how many are left out.
const MaxDrawn = 20000

// drawn returns the rows of a picture, and how many rows and packets are left out.
func (m *Model) drawn() (rows []Row, rest, packets int) {
	rows = m.rows
	if len(rows) > MaxDrawn {
		rows = rows[:MaxDrawn]
	}
	return rows, len(m.rows) - len(rows), m.Left()
}

// place returns the number of a lifeline.
func (m *Model) place(name string) int {
	for i, l := range m.lines {
		if l == name {
			return i
		}
	}
	return 0
}

// classes returns the names of the style of r.
func (r *Row) classes() string {
	list := make([]string, 0, 4)
	for _, c := range []struct {
		is   bool
		name string
	}{
		{r.Lost, "lost"}, {r.Resend.Why != Once, "again"}, {r.Nak(), "nak"}, {r.Damaged, "damaged"}, {len(r.Changes) > 0, "changed"},
	} {
		if c.is {
			list = append(list, c.name)
		}
	}
	return strings.Join(list, " ")
}

// lines of a row's comments, without what the cross of a lost packet says.
func (r *Row) remarks() (list []string) {
	for _, c := range r.Comments {
		list = append(list, dump.OneLine(c))
	}
	return list
}

// summary says what the ladder has, in one sentence.
func (m *Model) summary() string {
	again, lost, naks, packets := 0, 0, 0, 0
	for i := range m.rows {
		r := &m.rows[i]
		packets += r.Packets
		if r.Resend.Why != Once {
			again += r.Packets
		}
		if r.Lost {
			lost++
		}
		if r.Nak() {
			naks++
		}
	}
	return fmt.Sprintf("%d packets, %d lost, %d NAKs, %d sent again", packets, lost, naks, again)
}

// rest says what a picture leaves out; "" if that is nothing.
func (m *Model) rest() string {
	_, rows, packets := m.drawn()
	if rows+packets == 0 {
		return ""
	}
	return fmt.Sprintf("%d rows and %d packets are left out: select some with --host, --qpn or --interface", rows, packets)
}

// esc returns text for a picture or page.
func esc(s string) string { return html.EscapeString(dump.OneLine(s)) }
