// Package plot draws line charts as SVG: several panels of one figure with a common X axis and one
// legend; each series has its colour and its mark, which a print in grey keeps apart. It also draws
// pictures of steps (Steps). The output depends only on the input. Package plot/export makes PDF and
// PNG of it.
package plot

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type Chart struct {
	// Title is above the panels, X and Y beside the axes.
	Title, X, Y string
	// LogY makes the Y axis logarithmic; values that are not positive are then left out.
	LogY bool
	// Names, if not empty, are the labels of the X axis at 0, 1, 2 and so on, instead of numbers.
	Names  []string
	Panels []Panel
}

// Panel is one part of a chart, with a Y axis of its own.
type Panel struct {
	Title  string
	Series []Series
}

type Series struct {
	Name string
	// Color is the number of a colour; series with the same number have the same colour.
	Color int
	// Dashed makes the line dashed and its marks hollow.
	Dashed bool
	Points []Point
	// Bars are error bars.
	Bars []Bar

	// shift is how far the series is drawn from where it is, in pixels to the right and down, because
	// another one hides it there.
	shift float64
}

// Bar is an error bar: the values at X were from Low to High.
type Bar struct{ X, Low, High float64 }

// Point is a point of a line. Points with NaN or an infinity are left out.
type Point struct{ X, Y float64 }

// Sizes in pixels.
const (
	panelWidth  = 400
	panelHeight = 290
	left        = 66
	right       = 16
	top         = 28
	bottom      = 46
	titleHeight = 34
	// titleFont is the font size of the title. glyph is the mean width of a character, divided by its
	// font size.
	titleFont, glyph = 14.0, 0.56
	// fontSize is the font size of other texts, nameHeight the distance between lines of names below
	// an axis.
	fontSize, nameHeight = 11, 13
	legendHeight         = 20
	// markSize is half of the width of a mark, barCap that of the ends of an error bar. A series that
	// is hidden by another one is drawn hiddenShift beside it.
	markSize, barCap, hiddenShift = 3.4, 3, 4.5
	legendWidth                   = 300
	maxColumns                    = 2
)

// colors is the palette of Okabe and Ito, which people with colour blindness can distinguish.
var colors = []string{"#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// axis maps values to pixels.
type axis struct {
	log      bool
	min, max float64
	// from and to are the pixels of min and max.
	from, to float64
}

func (a *axis) scale(v float64) float64 {
	if a.log {
		return math.Log10(v)
	}
	return v
}

// at returns the pixel of a value.
func (a *axis) at(v float64) float64 {
	lo, hi := a.scale(a.min), a.scale(a.max)
	return a.from + (a.scale(v)-lo)/(hi-lo)*(a.to-a.from)
}

func (a *axis) shows(v float64) bool {
	return math.Abs(v) <= maxValue && (!a.log || v > 0) // false for NaN, too
}

func (a *axis) grow(v float64) {
	if a.shows(v) {
		a.min, a.max = math.Min(a.min, v), math.Max(a.max, v)
	}
}

// settle extends the axis a little beyond its values: at both ends if it is logarithmic, and at the
// upper end if it is linear. A linear axis begins at 0 if all values are positive. Without values
// the axis goes from 1 to 10.
func (a *axis) settle() {
	switch {
	case math.IsInf(a.min, 1):
		a.min, a.max = 1, 10
	case a.log:
		a.min, a.max = a.min/1.3, a.max*1.3
	case a.min > 0:
		a.min, a.max = 0, a.max*1.05
	default:
		a.max += 0.05 * (a.max - a.min)
	}
	if a.min == a.max {
		a.max += max(1, 1e-9*math.Abs(a.max)) // adding 1 alone may change nothing
	}
}

// maxValue bounds the values that are shown, so that the length of an axis is a float64.
const maxValue = 1e300

// maxTicks is more than ticks returns on an axis that is not logarithmic: a step is at least a
// twentieth of the axis.
const maxTicks = 32

// ticks returns the values that get a mark and a label.
func (a *axis) ticks() (list []float64) {
	if a.log {
		steps := []float64{1}
		if a.max/a.min < 1000 {
			steps = []float64{1, 2, 5}
		}
		for e := math.Floor(math.Log10(a.min)); e <= math.Log10(a.max); e++ {
			for _, s := range steps {
				if v := s * math.Pow(10, e); v >= a.min && v <= a.max {
					list = append(list, v)
				}
			}
		}
		return list
	}
	step := math.Pow(10, math.Floor(math.Log10((a.max-a.min)/4)))
	for _, s := range []float64{5, 2} {
		if (a.max-a.min)/(s*step) >= 4 {
			step *= s
			break
		}
	}
	first := math.Ceil(a.min / step)
	for n := range maxTicks { // the number is bounded even if the float64 values are so large that adding 1 changes nothing
		v := (first + float64(n)) * step
		if !(v <= a.max) {
			break
		}
		list = append(list, v)
	}
	return list
}

// tickText formats the label of a value.
func tickText(v float64) string {
	if v = math.Round(v*1e9) / 1e9; math.Abs(v) >= 10000 {
		return strconv.FormatFloat(v/1000, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

type drawing struct{ strings.Builder }

func (d *drawing) addf(format string, args ...any) { fmt.Fprintf(&d.Builder, format+"\n", args...) }

func (d *drawing) text(x, y float64, anchor, more, s string) {
	d.addf(`<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`, x, y, anchor, more, escape(s))
}

// escape returns a text as XML. Characters that XML cannot have become U+FFFD.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

func (c *Chart) SVG() []byte {
	for i := range c.Panels {
		c.uncover(i)
	}
	columns := max(1, min(maxColumns, len(c.Panels)))
	lines := max(1, (len(c.Panels)+columns-1)/columns)
	legend := c.legend()
	perLine := max(1, columns*panelWidth/legendWidth)
	width := float64(columns * panelWidth)
	height := float64(titleHeight + lines*panelHeight + legendHeight*((len(legend)+perLine-1)/perLine) + 10)
	var d drawing
	d.addf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="%d">`, width, height, fontSize)
	d.addf(`<rect width="%.0f" height="%.0f" fill="white"/>`, width, height)
	d.text(width/2, 20, "middle", fmt.Sprintf(` font-size="%.1f"`, titleSize(c.Title, width)), c.Title)
	for i := range c.Panels {
		c.panel(&d, &c.Panels[i], float64(i%columns*panelWidth), float64(titleHeight+i/columns*panelHeight))
	}
	for i, s := range legend {
		x, y := float64(i%perLine*legendWidth+left), float64(titleHeight+lines*panelHeight+legendHeight*(i/perLine)+10)
		name := s.Name
		if s.shift != 0 {
			name += ", drawn beside its place"
		}
		s.Points, s.Bars, s.shift = []Point{{x, y}, {x + 15, y}, {x + 30, y}}, nil, 0
		s.draw(&d, func(p Point) (float64, float64, bool) { return p.X, p.Y, true })
		d.text(x+38, y+4, "start", "", name)
	}
	d.addf("</svg>")
	return []byte(d.String())
}

// legend lists each name once, in the order of the panels.
func (c *Chart) legend() (list []Series) {
	seen := make(map[string]bool)
	for _, p := range c.Panels {
		for _, s := range p.Series {
			if !seen[s.Name] {
				seen[s.Name] = true
				list = append(list, s)
			} else if i := slices.IndexFunc(list, func(l Series) bool { return l.Name == s.Name }); s.shift != 0 {
				list[i].shift = s.shift
			}
		}
	}
	return list
}

// axes returns the axes of the panel whose corner is at x, y. All panels have the same X axis.
func (c *Chart) axes(p *Panel, x, y float64) (ax, ay axis) {
	ax = axis{min: math.Inf(1), max: math.Inf(-1), from: x + left, to: x + panelWidth - right}
	ay = axis{log: c.LogY, min: math.Inf(1), max: math.Inf(-1), from: y + panelHeight - bottom, to: y + top}
	for i := range c.Panels {
		for _, s := range c.Panels[i].Series {
			for _, q := range s.Points {
				if ay.shows(q.Y) {
					ax.grow(q.X)
				}
			}
		}
	}
	for _, s := range p.Series {
		for _, q := range s.Points {
			ay.grow(q.Y)
		}
		for _, b := range s.Bars {
			ay.grow(b.Low)
			ay.grow(b.High)
		}
	}
	if ay.settle(); len(c.Names) > 0 {
		ax.min, ax.max = -0.5, float64(len(c.Names))-0.5
	} else {
		ax.settle()
	}
	return ax, ay
}

// titleSize returns the size of the title: titleFont, or less for a title that would be wider than
// the chart.
func titleSize(title string, width float64) float64 {
	return min(titleFont, width/(glyph*float64(max(1, utf8.RuneCountInString(title)))))
}

// nameLines returns over how many lines the names below an axis are distributed so that neighbours
// do not overlap.
func (c *Chart) nameLines(width float64) int {
	longest := 0
	for _, n := range c.Names {
		longest = max(longest, utf8.RuneCountInString(n))
	}
	return 1 + min(1, int(glyph*fontSize*float64(longest*len(c.Names))/width))
}

func (c *Chart) panel(d *drawing, p *Panel, x, y float64) {
	ax, ay := c.axes(p, x, y)
	d.text((ax.from+ax.to)/2, y+top-8, "middle", ` font-size="12"`, p.Title)
	for _, v := range ay.ticks() {
		at := ay.at(v)
		d.addf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/>`, ax.from, at, ax.to, at)
		d.text(ax.from-5, at+4, "end", "", tickText(v))
	}
	ticks := ax.ticks()
	if len(c.Names) > 0 {
		ticks = ticks[:0]
		for i := range c.Names {
			ticks = append(ticks, float64(i))
		}
	}
	lines := c.nameLines(ax.to - ax.from)
	for i, v := range ticks {
		at, name := ax.at(v), tickText(v)
		if len(c.Names) > 0 {
			name = c.Names[i]
		}
		d.addf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#666666"/>`, at, ay.from, at, ay.from+4)
		d.text(at, ay.from+16+float64(i%lines*nameHeight), "middle", "", name)
	}
	d.addf(`<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#666666"/>`, ax.from, ay.to, ay.from, ax.to)
	if lines == 1 { // with several lines, the names are drawn where the title of the axis would be
		d.text((ax.from+ax.to)/2, ay.from+34, "middle", "", c.X)
	}
	d.text(x+14, (ay.from+ay.to)/2, "middle", fmt.Sprintf(` transform="rotate(-90 %.1f %.1f)"`, x+14, (ay.from+ay.to)/2), c.Y)
	for i := range p.Series {
		p.Series[i].draw(d, func(q Point) (float64, float64, bool) {
			if !ax.shows(q.X) || !ay.shows(q.Y) {
				return 0, 0, false
			}
			return ax.at(q.X), ay.at(q.Y), true
		})
	}
}

// uncover decides which series of panel i are drawn beside their place: those of which another one,
// drawn later, would hide three points of four.
func (c *Chart) uncover(i int) {
	p := &c.Panels[i]
	ax, ay := c.axes(p, 0, 0)
	for k := range p.Series {
		s := &p.Series[k]
		s.shift = 0
		for j := range k {
			near, all := 0, 0
			for _, q := range s.Points {
				if !ax.shows(q.X) || !ay.shows(q.Y) {
					continue
				}
				all++
				if slices.ContainsFunc(p.Series[j].Points, func(o Point) bool {
					return o.X == q.X && ay.shows(o.Y) && math.Abs(ay.at(o.Y)-ay.at(q.Y)) < 1
				}) {
					near++
				}
			}
			if all > 0 && 4*near >= 3*all && s.shift <= p.Series[j].shift {
				s.shift = p.Series[j].shift + hiddenShift
			}
		}
	}
}

// marks are the paths of marks around 0, 0, in units of markSize. A colour has the mark of its number.
var marks = [][]Point{
	nil, // a circle
	{{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}},
	{{0, -1.2}, {1.1, 0.8}, {-1.1, 0.8}},
	{{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}},
	{{0, 1.2}, {1.1, -0.8}, {-1.1, -0.8}},
	{{-0.4, -1.2}, {0.4, -1.2}, {0.4, -0.4}, {1.2, -0.4}, {1.2, 0.4}, {0.4, 0.4}, {0.4, 1.2}, {-0.4, 1.2}, {-0.4, 0.4}, {-1.2, 0.4}, {-1.2, -0.4}, {-0.4, -0.4}},
	{{-1.2, -0.5}, {1.2, -0.5}, {1.2, 0.5}, {-1.2, 0.5}},
}

// mark draws the mark of colour number n at x, y.
func (d *drawing) mark(n int, x, y float64, fill, color string) {
	shape := marks[n]
	if shape == nil {
		d.addf(`<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s" stroke="%s"/>`, x, y, markSize*0.9, fill, color)
		return
	}
	var path strings.Builder
	for i, q := range shape {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x+q.X*markSize, y+q.Y*markSize)
	}
	d.addf(`<path d="%sZ" fill="%s" stroke="%s"/>`, path.String(), fill, color)
}

// draw draws a line, the marks of its points and its error bars; place maps points to pixels.
func (s *Series) draw(d *drawing, place func(Point) (x, y float64, ok bool)) {
	number := (s.Color%len(colors) + len(colors)) % len(colors)
	color := colors[number]
	dash, fill := "", color
	if s.Dashed {
		dash, fill = ` stroke-dasharray="5 4"`, "white"
	}
	var path, marked drawing
	for _, q := range s.Points {
		x, y, ok := place(q)
		if !ok {
			continue
		}
		x, y = x+s.shift, y+s.shift
		step := "L"
		if path.Len() == 0 {
			step = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", step, x, y)
		marked.mark(number, x, y, fill, color)
	}
	for _, b := range s.Bars {
		x, low, ok := place(Point{b.X, b.Low})
		_, high, too := place(Point{b.X, b.High})
		if ok && too {
			x += s.shift
			d.addf(`<path d="M%.1f %.1fH%.1fM%.1f %.1fV%.1fM%.1f %.1fH%.1f" fill="none" stroke="%s"/>`,
				x-barCap, low+s.shift, x+barCap, x, low+s.shift, high+s.shift, x-barCap, high+s.shift, x+barCap, color)
		}
	}
	if path.Len() > 0 {
		d.addf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.6"%s/>`, path.String(), color, dash)
		d.WriteString(marked.String())
	}
}
