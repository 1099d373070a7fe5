package ladder

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

//go:embed page.css
var pageStyle string

// perSection is how many rows a section of the page has. A browser lays out only the sections that are seen.
const perSection = 100

// number of a packet in a text.
var packetNumber = regexp.MustCompile(`#[0-9]+`)

// WriteHTML draws the ladder as one page that needs no other file.
func (m *Model) WriteHTML(w io.Writer, title string) error {
	if err := m.fits(MaxDrawnLines); err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"+
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"+
		"<title>%s</title>\n<style>\n%s</style></head>\n<body style=\"--n:%d\">\n", esc(title), pageStyle, max(1, len(m.lines)))
	fmt.Fprintf(out, "<h1>%s</h1>\n<p>%s</p>\n", esc(title), esc(m.summary()))
	fmt.Fprint(out, "<p class=\"legend\"><span class=\"nak\"><i></i>refuses (NAK)</span> <span class=\"again\"><i></i>sent again</span> "+
		"<span class=\"lost\"><b>✕</b> lost</span></p>\n")
	fmt.Fprint(out, "<div class=\"row head\"><span class=\"k\">#</span><span class=\"t\">seconds</span><div class=\"w\">")
	for _, name := range m.lines {
		fmt.Fprintf(out, "<b title=\"%s\">%s</b>", esc(name), esc(shortenTo(name, 14)))
	}
	fmt.Fprint(out, "</div><span class=\"l\"></span></div>\n<main>\n")
	rows, _, _ := m.drawn()
	for i := range rows {
		if i%perSection == 0 {
			fmt.Fprint(out, either(i > 0, "</section>\n", "")+"<section>\n")
		}
		m.pageRow(out, &rows[i])
	}
	fmt.Fprint(out, either(len(rows) > 0, "</section>\n", ""))
	fmt.Fprintf(out, "</main>\n<p>%s</p>\n</body></html>\n", esc(m.rest()))
	return out.Flush()
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// pageRow writes the row r.
func (m *Model) pageRow(out io.Writer, r *Row) {
	fmt.Fprintf(out, "<div id=\"p%d\" class=\"row %s\"><a class=\"k\" href=\"#p%d\">%d</a><span class=\"t\">%.6f</span><div class=\"w\">%s</div><div class=\"l\">%s",
		r.Number, r.classes(), r.Number, r.Number, float64(r.Time)/1e9, m.pageArrow(r), esc(r.Title()))
	if note := r.Note(); note != "" {
		fmt.Fprintf(out, " <span class=\"note\">%s</span>", packetNumber.ReplaceAllStringFunc(esc(note), m.anchor))
	}
	for _, c := range r.remarks() {
		fmt.Fprintf(out, "<p>%s</p>", esc(c))
	}
	fmt.Fprint(out, "</div></div>\n")
}

// anchor makes a link of the number of a packet. An escaped character like &#39; has no row and stays.
func (m *Model) anchor(text string) string {
	n, err := strconv.Atoi(text[1:])
	if err != nil || n < 1 || n >= len(m.at) {
		return text
	}
	return fmt.Sprintf("<a href=\"#p%d\">%s</a>", m.rows[m.at[n]].Number, text)
}

// pageArrow returns the arrow of r: a box from lifeline to lifeline, in percent of all.
func (m *Model) pageArrow(r *Row) string {
	from, to, n := m.place(r.From), m.place(r.To), float64(max(1, len(m.lines)))
	at := func(i float64) float64 { return 100 * (i + 0.5) / n }
	if from == to {
		return fmt.Sprintf("<i class=\"o\" style=\"left:%.2f%%\"></i>", at(float64(from)))
	}
	a, b, class := float64(from), float64(to), "r"
	if r.Lost {
		b = (a + b) / 2
	}
	if to < from {
		a, b, class = b, a, "f"
	}
	text := ""
	if r.Lost {
		text = "<b>✕ " + esc(r.lostTo()) + "</b>"
		if to < from {
			text = "<b>" + esc(r.lostTo()) + " ✕</b>"
		}
	}
	if r.Packets > 1 {
		text = fmt.Sprintf("<b>×%d</b>", r.Packets)
	}
	return fmt.Sprintf("<i class=\"%s\" style=\"left:%.2f%%;width:%.2f%%\">%s</i>", class, at(a), at(b)-at(a), text)
}

// lostTo returns the name of a fault without its kind, or the beginning of what else has dropped the packet.
func (r *Row) lostTo() string {
	word, _, _ := strings.Cut(r.LostTo(), " ")
	if runes := []rune(word); len(runes) > 8 {
		return string(runes[:7]) + "…"
	}
	return word
}
