package ladder

import (
	"bufio"
	"fmt"
	"io"
)

// Measures of a picture, in pixels.
const (
	rowHeight = 20
	headTop   = 34
	textLeft  = 10
	gutter    = 160 // left of the lifelines: number and time, then the links to causes
	step      = 130 // from one lifeline to the next
	labelRoom = 640
	lanes     = 5 // of links to causes
)

// svgStyle has the colours for a light and for a dark background.
const svgStyle = `
svg { background: #fff; color: #1c2330; font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
text { fill: currentColor } .t, .c { fill: #667085 } .c { font-size: 11px } .life { stroke: #c5ccd8 }
.a { stroke: #1f5fbf; fill: none; stroke-width: 1.5 } .h { fill: #1f5fbf; stroke: none } .n { font-weight: bold }
.again .a { stroke: #b45309; stroke-width: 3 } .again .h, .again .l { fill: #b45309 } .link { stroke: #b45309; fill: none }
.nak .a, .nak .a { stroke: #9d174d; stroke-dasharray: 5 3 } .nak .h, .nak .l { fill: #9d174d }
.lost .x { stroke: #c81e1e; stroke-width: 2.5 } .lost .l, .lost .w { fill: #c81e1e } .changed .l { fill: #0f766e }
@media (prefers-color-scheme: dark) {
svg { background: #12161d; color: #e6e9ef } .t, .c { fill: #98a2b3 } .life { stroke: #3b4454 }
.a { stroke: #7db1ff } .h { fill: #7db1ff } .again .a, .link { stroke: #fbbf24 } .again .h, .again .l { fill: #fbbf24 }
.nak .a { stroke: #f9a8d4 } .nak .h, .nak .l { fill: #f9a8d4 } .lost .x { stroke: #ff6b6b } .lost .l, .lost .w { fill: #ff6b6b }
.changed .l { fill: #5eead4 }
}`

// svg writes a picture.
type svg struct {
	*Model
	out *bufio.Writer
	y   int
	at  map[int]int // y of each row, by its packet's number
}

// WriteSVG draws the ladder as a picture.
func (m *Model) WriteSVG(w io.Writer) error {
	if err := m.fits(MaxDrawnLines); err != nil {
		return err
	}
	s := svg{Model: m, out: bufio.NewWriter(w), at: map[int]int{}}
	rows, _, _ := m.drawn()
	height := headTop + 2*rowHeight
	for i := range rows {
		height += rowHeight * (1 + len(rows[i].Comments))
	}
	width := s.x(len(m.lines)) + labelRoom
	fmt.Fprintf(s.out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
		width, height, width, height)
	fmt.Fprintf(s.out, "<title>%s</title>\n<style>%s\n</style>\n", esc("Ladder: "+m.summary()), svgStyle)
	fmt.Fprintf(s.out, "<text class=\"t\" xml:space=\"preserve\" x=\"%d\" y=\"20\">%5s %10s</text>\n", textLeft, "#", "seconds")
	for i, name := range m.lines {
		fmt.Fprintf(s.out, "<text class=\"n\" text-anchor=\"middle\" x=\"%d\" y=\"20\">%s</text>\n", s.x(i), esc(shortenTo(name, 17)))
		fmt.Fprintf(s.out, "<line class=\"life\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", s.x(i), headTop-6, s.x(i), height-rowHeight)
	}
	s.y = headTop + rowHeight/2
	for i := range rows {
		s.row(&rows[i])
	}
	fmt.Fprintf(s.out, "<text class=\"t\" x=\"%d\" y=\"%d\">%s</text>\n</svg>\n", textLeft, height-6, esc(m.rest()))
	return s.out.Flush()
}

// x returns where lifeline i is.
func (s *svg) x(i int) int { return gutter + 40 + step*i }

func (s *svg) row(r *Row) {
	fmt.Fprintf(s.out, "<g class=\"%s\">", r.classes())
	fmt.Fprintf(s.out, "<text class=\"t\" xml:space=\"preserve\" x=\"%d\" y=\"%d\">%5d %10.6f</text>", textLeft, s.y+4, r.Number, float64(r.Time)/1e9)
	s.arrow(r, s.x(s.place(r.From)), s.x(s.place(r.To)))
	label := s.x(len(s.lines)-1) + 24
	fmt.Fprintf(s.out, "<text class=\"l\" x=\"%d\" y=\"%d\">%s</text>", label, s.y+4, esc(r.label()))
	s.link(r)
	s.at[r.Number] = s.y
	s.y += rowHeight
	for _, c := range r.remarks() {
		fmt.Fprintf(s.out, "<text class=\"c\" x=\"%d\" y=\"%d\">%s</text>", label+14, s.y+2, esc(c))
		s.y += rowHeight
	}
	fmt.Fprint(s.out, "</g>\n")
}

// arrow draws the arrow of r; a cross, with the name of what has dropped the packet, ends that of a lost one.
func (s *svg) arrow(r *Row, from, to int) {
	y := s.y
	switch {
	case from == to:
		fmt.Fprintf(s.out, "<circle class=\"a\" cx=\"%d\" cy=\"%d\" r=\"4\"/>", from, y)
	case r.Lost:
		x := (from + to) / 2
		fmt.Fprintf(s.out, "<path class=\"a\" d=\"M%d %dH%d\"/><path class=\"x\" d=\"M%d %dl10 10m0-10l-10 10\"/>", from, y, x, x-5, y-5)
		anchor, at := "start", x+9
		if to < from {
			anchor, at = "end", x-9
		}
		fmt.Fprintf(s.out, "<text class=\"w\" text-anchor=\"%s\" x=\"%d\" y=\"%d\">%s</text>", anchor, at, y+4, esc(r.lostTo()))
	default:
		dx := 8
		if to < from {
			dx = -8
		}
		fmt.Fprintf(s.out, "<path class=\"a\" d=\"M%d %dH%d\"/><path class=\"h\" d=\"M%d %dl%d -4.5v9z\"/>", from, y, to-dx, to, y, -dx)
		if r.Packets > 1 {
			fmt.Fprintf(s.out, "<path class=\"a\" d=\"M%d %dh%dm0 6h%d\"/>", (from+to)/2-dx, y-3, 2*dx, -2*dx)
		}
	}
}

// link joins a packet that is sent again with what has caused it.
func (s *svg) link(r *Row) {
	cause := r.Resend.Cause
	if cause == 0 {
		cause = r.Resend.Gone
	}
	if cause == 0 || r.Resend.Why == Behind {
		return // those behind another one would hide it
	}
	y, ok := s.at[s.rows[s.Model.at[cause]].Number]
	if !ok {
		return
	}
	right := gutter + 26
	left := right - 8 - 6*(r.Number%lanes)
	fmt.Fprintf(s.out, "<path class=\"link\" d=\"M%d %dC%d %d %d %d %d %d\"/><circle class=\"link\" cx=\"%d\" cy=\"%d\" r=\"2\"/>",
		right, y, left, y, left, s.y, right, s.y, right, y)
}
