package top

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// paint is the colour and style of a piece of text.
type paint string

// Paints, as parameters of the escape sequence SGR. The terminal's user has chosen how the sixteen
// colours look.
const (
	plain  paint = ""
	bold   paint = "1"
	faint  paint = "2"
	chosen paint = "7" // inverse
	bad    paint = "1;31"
	fine   paint = "32"
	warn   paint = "33"
	accent paint = "36"
)

func either[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}

// line is one line of the screen while it is being composed.
type line struct {
	b     strings.Builder
	style Style
	room  int // columns that are left
}

// text appends text, which is cut off at the end of the line.
func (l *line) text(p paint, s string) {
	if l.style.ASCII {
		s = ascii(s)
	}
	if short := strings.TrimRight(s, " "); utf8.RuneCountInString(short) <= l.room {
		s = string([]rune(s)[:min(l.room, utf8.RuneCountInString(s))]) // only spaces are cut off here
	}
	s = cut(s, l.room)
	if s == "" {
		return
	}
	l.room -= utf8.RuneCountInString(s)
	if p == plain || l.style.Plain {
		l.b.WriteString(s)
		return
	}
	l.b.WriteString("\x1b[" + string(p) + "m" + s + "\x1b[m")
}

// left appends a cell with left-aligned text, and a space.
func (l *line) left(p paint, width int, s string) {
	s = cut(s, width)
	l.text(p, s)
	l.text(plain, strings.Repeat(" ", width-utf8.RuneCountInString(s)+1))
}

// right appends a cell with right-aligned text, and a space.
func (l *line) right(p paint, width int, s string) {
	s = cut(s, width)
	l.text(plain, strings.Repeat(" ", width-utf8.RuneCountInString(s)))
	l.text(p, s)
	l.text(plain, " ")
}

// cut shortens s to n characters; a ~ at the end says that text is missing.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	return string([]rune(s)[:n-1]) + "~"
}

// ascii replaces characters that a terminal without UTF-8 cannot show, and control characters.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// oneLine returns text that another program has printed as one line, without control characters.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// page has the lines of a part of the screen.
type page struct {
	style Style
	width int
	lines []string
}

func (p *page) add(f func(l *line)) {
	l := line{style: p.style, room: p.width}
	f(&l)
	p.lines = append(p.lines, strings.TrimRight(l.b.String(), " "))
}

func (p *page) say(style paint, text string) { p.add(func(l *line) { l.text(style, text) }) }

// fit cuts or extends the page to n lines.
func (p *page) fit(n int) []string {
	n = max(n, 0)
	for len(p.lines) < n {
		p.lines = append(p.lines, "")
	}
	return p.lines[:n]
}

// amount formats a number in at most five characters: 999, 1.2k, 45.6M.
func amount(n uint64) string {
	f := float64(n)
	for _, unit := range []string{"", "k", "M", "G", "T", "P"} {
		switch {
		case f < 999.5 && unit == "":
			return fmt.Sprintf("%.0f", f)
		case f < 99.95:
			return fmt.Sprintf("%.1f%s", f, unit)
		case f < 999.5:
			return fmt.Sprintf("%.0f%s", f, unit)
		}
		f /= 1000
	}
	return "lots"
}

// Characters of a sparkline, from 0 to the largest value.
var (
	bars      = []rune(" ▁▂▃▄▅▆▇█")
	asciiBars = []rune(" .:-=+*#@")
)

// spark draws the last values, scaled to the largest of them.
func spark(style Style, values []uint64, width int) string {
	values = values[max(0, len(values)-width):]
	var most uint64
	for _, v := range values {
		most = max(most, v)
	}
	set := either(style.ASCII, asciiBars, bars)
	out := []rune(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		i := 0
		if v > 0 { // a value above 0 is never drawn as 0
			i = 1 + int(float64(v)/float64(most)*float64(len(set)-2)+0.5)
		}
		out = append(out, set[min(i, len(set)-1)])
	}
	return string(out)
}
