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

// MaxLines is the number of lifelines that WriteText can print.
const MaxLines = 6

// ErrLines means that a capture has more lifelines than fit.
var ErrLines = errors.New("too many hosts for a ladder: select one with --host, --qpn or --interface")

const column = 9 // characters from one lifeline to the next

// WriteText prints the ladder with lines of at most 120 columns, of which comments take their own.
func (m *Model) WriteText(w io.Writer) error {
	if len(m.Lines) > MaxLines {
		return fmt.Errorf("%w (%d lifelines, at most %d)", ErrLines, len(m.Lines), MaxLines)
	}
	out := bufio.NewWriter(w)
	head := fmt.Sprintf("%5s %12s  ", "#", "seconds")
	for _, name := range m.Lines {
		head += fmt.Sprintf("%-*s", column, shorten(name))
	}
	fmt.Fprintln(out, strings.TrimRight(head, " "))
	for i := range m.Rows {
		r := &m.Rows[i]
		fmt.Fprintf(out, "%5d %12.6f  %s  %s\n", r.Number, float64(r.Time)/1e9, m.arrow(r), r.label())
		for _, c := range r.Comments {
			fmt.Fprintf(out, "%*s# %s\n", 20+column*(len(m.Lines)-1)+3, "", dump.OneLine(c))
		}
	}
	return out.Flush()
}

// arrow draws the lifelines with the arrow of r; x is the end of a lost packet.
func (m *Model) arrow(r *Row) string {
	b := []byte(strings.Repeat(" ", column*(max(len(m.Lines), 1)-1)+1))
	for i := 0; i < len(b); i += column {
		b[i] = '|'
	}
	from, to := column*slices.Index(m.Lines, r.From), column*slices.Index(m.Lines, r.To)
	if from == to {
		b[from] = 'o' // a host's packet to itself
		return string(b)
	}
	step, head := 1, byte('>')
	if to < from {
		step, head = -1, '<'
	}
	body := byte('-')
	if r.Again > 0 {
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
	return string(b)
}

func (r *Row) label() string {
	text := fmt.Sprintf("%+d %v qp=%#x", r.PSN, r.Opcode, uint32(r.QPN))
	if r.Packets > 1 {
		text = fmt.Sprintf("%+d…%+d %v qp=%#x, %d packets", r.PSN, int(r.PSN)+r.Packets-1, r.Opcode, uint32(r.QPN), r.Packets)
	}
	if r.HasSyndrome && !r.Syndrome.IsAck() {
		text += fmt.Sprintf(" %v", r.Syndrome)
	}
	if r.Damaged {
		text += " wrong ICRC"
	}
	switch {
	case r.Cause > 0:
		text += fmt.Sprintf(" again: #%d, for #%d", r.Again, r.Cause)
	case r.Again > 0:
		text += fmt.Sprintf(" again: #%d", r.Again)
	}
	return text
}

// shorten returns a name that fits between two lifelines: its end, because addresses of a rack differ there.
func shorten(name string) string {
	runes := []rune(dump.OneLine(name))
	if len(runes) < column {
		return string(runes)
	}
	return "…" + string(runes[len(runes)-column+2:])
}
