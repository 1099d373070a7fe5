package cli

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rdmalab/rdmalab/rackfile"
)

// Measures of a picture of a rack, in pixels: the switch is a box on the left, the hosts are boxes below
// each other on the right, and lines with the faults of the links join them.
const (
	graphLine    = 15  // from one line of text to the next
	graphPad     = 10  // around everything, and inside of boxes
	graphHost    = 230 // width of a host
	graphHeight  = 42  // height of a host
	graphLetter  = 6.2 // mean width of a letter
	graphSwitch  = 150 // least width of the switch
	graphLink    = 120 // least length of a link
	graphColours = `fill="#f4f8fc" stroke="#333333"`
)

// drawSVG draws a rack with the elements that plot/export knows.
func drawSVG(w *bytes.Buffer, r *rackfile.Rack) {
	rules := ruleTexts(r)
	widthOf := func(least float64, lines ...string) float64 {
		for _, l := range lines {
			least = max(least, float64(utf8.RuneCountInString(l))*graphLetter+2*graphPad)
		}
		return least
	}
	middle := widthOf(graphSwitch, rules...)
	link := float64(graphLink)
	heights := make([]float64, len(r.Hosts))
	total := 0.0
	for i := range r.Hosts {
		faults := faultsOf(r, r.Hosts[i].Name)
		link = widthOf(link, faults...)
		heights[i] = max(graphHeight, float64(graphLine*(len(faults)+1))) + graphPad
		total += heights[i]
	}
	top := float64(3*graphPad + graphLine)
	boxHeight := max(total-graphPad, float64(graphLine*(3+len(rules))))
	width, height := 2*graphPad+middle+link+graphHost, top+boxHeight+graphPad

	text := func(x, y float64, anchor, more, s string) {
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>`, x, y, anchor, more)
		_ = xml.EscapeText(w, []byte(s)) // a buffer never fails
		w.WriteString("</text>\n")
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(w, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", width, height)
	text(graphPad, 2*graphPad, "start", ` font-weight="bold" font-size="13"`, fmt.Sprintf("rack %s: MTU %d, %v, %v", r.Name, r.LinkMTU, r.Subnet, r.Subnet6))
	fmt.Fprintf(w, `<rect x="%d" y="%.1f" width="%.1f" height="%.1f" rx="6" %s/>`+"\n", graphPad, top, middle, boxHeight, graphColours)
	centre := graphPad + middle/2
	y := top + boxHeight/2 - float64(graphLine*len(rules))/2
	text(centre, y, "middle", ` font-weight="bold"`, "switch")
	text(centre, y+graphLine, "middle", "", "program "+r.Switch.Program)
	for i, rule := range rules {
		text(centre, y+float64(graphLine*(i+2)), "middle", "", rule)
	}
	at := top
	for i := range r.Hosts {
		h := &r.Hosts[i]
		from, to := graphPad+middle, graphPad+middle+link
		faults := faultsOf(r, h.Name)
		colour := "#666666"
		if len(faults) > 0 {
			colour = "#d55e00"
		}
		line := at + (heights[i]-graphPad)/2
		fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="1.6"/>`+"\n", from, line, to, line, colour)
		for k, f := range faults {
			text((from+to)/2, line-4-float64(graphLine*(len(faults)-1-k)), "middle", ` fill="#d55e00"`, f)
		}
		fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%d" height="%d" rx="4" %s/>`+"\n", to, line-graphHeight/2, graphHost, graphHeight, graphColours)
		text(to+graphPad, line-4, "start", ` font-weight="bold"`, h.Name)
		text(to+graphPad, line+graphLine-4, "start", "", strings.Join(append(described(h), h.IPv6.String()), "  "))
		at += heights[i]
	}
	w.WriteString("</svg>\n")
}
