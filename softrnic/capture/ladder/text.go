package ladder

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
)

// MaxLines is the number of lifelines that WriteText can print, MaxDrawnLines that of pictures and pages.
const (
	MaxLines      = 6
	MaxDrawnLines = 16
)

// ErrLines means that a capture has more lifelines than fit.
var ErrLines = errors.New("too many hosts for a ladder: select one with --host, --qpn or --interface")

const column = 9 // characters from one lifeline to the next

// WriteText prints the ladder with lines of at most 120 columns, of which comments take their own.
func (m *Model) WriteText(w io.Writer) error {
	if err := m.fits(MaxLines); err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	head := fmt.Sprintf("%5s %12s  ", "#", "seconds")
	for _, name := range m.lines {
		head += fmt.Sprintf("%-*s", column, shorten(name))
	}
	fmt.Fprintln(out, strings.TrimRight(head, " "))
	for i := range m.rows {
		r := &m.rows[i]
		fmt.Fprintf(out, "%5d %12.6f  %s  %s\n", r.Number, float64(r.Time)/1e9, m.arrow(r), r.label())
		for _, c := range r.Comments {
			fmt.Fprintf(out, "%*s# %s\n", 20+column*(len(m.lines)-1)+3, "", dump.OneLine(c))
		}
	}
	if m.Left() > 0 {
		fmt.Fprintf(out, "%d more packets: select some with --host, --qpn or --interface\n", m.Left())
	}
	return out.Flush()
}

// fits builds the rows, and returns an error if there are more than `most` lifelines.
func (m *Model) fits(most int) error {
	m.build()
	if len(m.lines) > most {
		return fmt.Errorf("%w (%d lifelines, at most %d)", ErrLines, len(m.lines), most)
	}
	return nil
}

// odd reports whether a character of a fault's name is none that takes one column.
func odd(c rune) bool { return c <= ' ' || c > '~' }

// label returns all that is said of the packet in one line.
func (r *Row) label() string {
	if note := r.Note(); note != "" {
		return r.Title() + "  " + note
	}
	return r.Title()
}

// arrow draws the lifelines with the arrow of r; x is the end of a lost packet.
func (m *Model) arrow(r *Row) string {
	b := []byte(strings.Repeat(" ", column*(max(len(m.lines), 1)-1)+1))
	for i := 0; i < len(b); i += column {
		b[i] = '|'
	}
	from, to := column*slices.Index(m.lines, r.From), column*slices.Index(m.lines, r.To)
	if from == to {
		b[from] = 'o' // a host's packet to itself
		return string(b)
	}
	step, head := 1, byte('>')
	if to < from {
		step, head = -1, '<'
	}
	body := byte('-')
	if r.Resend.Why != Once {
		body = '='
	}
	end := to - step
	if r.Lost {
		end, head = (from+to)/2, 'x'
	}
	for at := from + step; at != end; at += step {
		b[at] = body
	}
	b[end] = head
	if id, _, _ := strings.Cut(r.LostTo(), " "); r.Lost && step > 0 && len(id) <= column-column/2-3 && strings.IndexFunc(id, odd) < 0 {
		copy(b[end+2:], id)
	}
	return string(b)
}

// shorten returns a name that fits between two lifelines: its end, because addresses of a rack differ there.
func shorten(name string) string { return shortenTo(name, column-1) }

// shortenTo returns the end of a name, at most n characters.
func shortenTo(name string, n int) string {
	runes := []rune(dump.OneLine(name))
	if len(runes) <= n {
		return string(runes)
	}
	return "…" + string(runes[len(runes)-n+1:])
}
