package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// wellFormed parses an SVG and counts its elements by name.
func wellFormed(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	count := make(map[string]int)
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := tok.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

// A chart has a mark for each point and one for each series of the legend; points that an axis
// cannot show are left out.
func TestSVG(t *testing.T) {
	c := Chart{Title: "a < b & c", X: "threads", Y: "Mops", LogY: true, Panels: []Panel{
		{Title: "1", Series: []Series{{Name: "ours", Points: []Point{{7, 1}, {14, 2}, {21, 0}, {28, math.NaN()}, {28, math.Inf(1)}}}}},
		{Title: "2", Series: []Series{{Name: "ours", Points: []Point{{7, 1}}}, {Name: "authors", Color: -1, Dashed: true, Points: []Point{{392, 40}}}}},
	}}
	svg := c.SVG()
	// A circle is the mark of colour 0; colour -1 has another one, as a path beside that of its line.
	if n := wellFormed(t, svg); n["circle"] != 3+3 || n["path"] != 2+3+2+1+3 {
		t.Errorf("%d circles and %d paths, want a mark of each of 4 points and 3 of each of 2 series in the legend", n["circle"], n["path"])
	}
	if text := string(svg); !strings.Contains(text, "a &lt; b &amp; c") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error(text)
	}
}

// Texts from elsewhere cannot break the picture: XML allows neither control characters nor bytes that are
// no UTF-8.
func TestHostileTexts(t *testing.T) {
	const hostile = "a\x00\x1b[1m\xff</text><script>\uffff\" onload='"
	c := Chart{Title: hostile, X: hostile, Y: hostile, Names: []string{hostile}, Panels: []Panel{{
		Title: hostile, Series: []Series{{Name: hostile, Points: []Point{{0, 1}}}},
	}}}
	s := Steps{
		Title: hostile, Columns: []string{hostile}, Notes: []string{hostile}, Arrows: []Arrow{{Name: hostile}},
		Steps: []Step{{Time: hostile, Title: hostile, Lines: []string{hostile}, Marked: []string{hostile}}},
	}
	for _, svg := range [][]byte{c.SVG(), s.SVG()} {
		if n := wellFormed(t, svg); n["script"] != 0 || n["svg"] != 1 {
			t.Errorf("elements %v", n)
		}
	}
}

// A chart without points, or with single values, can be drawn.
func TestSmallCharts(t *testing.T) {
	for _, c := range []Chart{
		{},
		{Panels: []Panel{{}}},
		{LogY: true, Panels: []Panel{{Series: []Series{{Points: []Point{{0, 0}}}}}}},
		{Panels: []Panel{{Series: []Series{{Points: []Point{{0, 0}}}}}}},
		{Names: []string{"SRAM"}, Panels: []Panel{{Series: []Series{{Points: []Point{{0, 5}}}}}}},
		{Panels: []Panel{{Series: []Series{{Points: []Point{{3, -5}, {4, -5}}}}}}},
	} {
		if svg := c.SVG(); wellFormed(t, svg)["svg"] != 1 || strings.Contains(string(svg), "NaN") {
			t.Errorf("%s", svg)
		}
	}
}

// Ticks are round numbers inside the axis, between 3 and 12 of them.
func TestTicks(t *testing.T) {
	for _, a := range []axis{{min: 0, max: 42.6}, {min: 0, max: 1}, {log: true, min: 0.3, max: 50}, {log: true, min: 5, max: 13e6}, {min: -5, max: 0.07}} {
		list := a.ticks()
		if len(list) < 3 || len(list) > 12 {
			t.Errorf("%+v: %v", a, list)
		}
		for _, v := range list {
			if v < a.min || v > a.max {
				t.Errorf("%+v: %v", a, list)
			}
		}
	}
}

func TestTitleFits(t *testing.T) {
	for _, c := range []struct {
		title string
		want  float64
	}{{"", titleFont}, {"Figure 1", titleFont}, {strings.Repeat("x", 100), 400 / (glyph * 100)}} {
		if got := titleSize(c.title, 400); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q: %v, want %v", c.title, got, c.want)
		}
	}
}

// Long names below an axis do not overlap, because they are on two lines.
func TestLongNames(t *testing.T) {
	for _, c := range []struct {
		names []string
		lines int
	}{
		{[]string{"exact crossbar", "hash bits", "gateways", "SRAM", "map RAM", "stateful units", "logical tables"}, 2},
		{[]string{"host", "device"}, 1},
	} {
		var points []Point
		for i := range c.names {
			points = append(points, Point{float64(i), 1})
		}
		svg := string((&Chart{X: "resource", Names: c.names, Panels: []Panel{{Series: []Series{{Points: points}}}}}).SVG())
		heights := make(map[string]bool)
		for _, n := range c.names {
			at := strings.Index(svg, ">"+n+"<")
			_, y, _ := strings.Cut(svg[strings.LastIndex(svg[:at], "<text"):at], ` y="`)
			y, _, _ = strings.Cut(y, `"`)
			heights[y] = true
		}
		if len(heights) != c.lines || strings.Contains(svg, ">resource<") != (c.lines == 1) {
			t.Errorf("%v: on the lines %v", c.names, heights)
		}
	}
}

// An axis has few ticks for any values, also where adding 1 to a float64 changes nothing.
func TestTicksAreBounded(t *testing.T) {
	for _, a := range []axis{{min: -9e15, max: -9e15 + 1}, {min: -1e17, max: -99999999999999984}, {min: -1e300, max: 1e300}, {min: 0, max: 5e-324}, {min: 0, max: 20}} {
		if n := len(a.ticks()); n > maxTicks {
			t.Errorf("%v to %v: %d ticks", a.min, a.max, n)
		}
	}
	for _, values := range [][]float64{{-1e17}, {-9e15}, {1, 1.75e308}, {-1e300, 1e300}, {1e-300, 1e300}} {
		for _, log := range []bool{false, true} {
			a := axis{log: log, min: math.Inf(1), max: math.Inf(-1)}
			for _, v := range values {
				a.grow(v)
			}
			if a.settle(); !(a.min < a.max) || math.IsInf(a.max-a.min, 0) {
				t.Errorf("%v, log %v: from %v to %v", values, log, a.min, a.max)
			}
		}
	}
	if n := len((&axis{min: 0, max: 20}).ticks()); n < 4 || n > 21 {
		t.Errorf("0 to 20: %d ticks", n)
	}
}

// A series that equals another one is drawn beside it, and the legend says so.
func TestHiddenSeries(t *testing.T) {
	same := []Point{{1, 1}, {2, 3}, {3, 2}}
	c := Chart{Panels: []Panel{{Series: []Series{
		{Name: "a", Points: same}, {Name: "b", Color: 1, Points: same}, {Name: "c", Color: 2, Points: []Point{{1, 3}, {2, 1}, {3, 3}}}, {Name: "d", Color: 3, Points: same},
	}}}}
	svg := string(c.SVG())
	if strings.Count(svg, "drawn beside its place") != 2 || !strings.Contains(svg, ">b, drawn beside") || !strings.Contains(svg, ">d, drawn beside") {
		t.Error(svg)
	}
	if a, b, d := c.Panels[0].Series[0].shift, c.Panels[0].Series[1].shift, c.Panels[0].Series[3].shift; a != 0 || b <= a || d <= b {
		t.Errorf("shifts %g %g %g", a, b, d)
	}
	if again := string(c.SVG()); again != svg {
		t.Error("the second drawing differs")
	}
}

// Error bars are drawn, and the axis has room for them.
func TestErrorBars(t *testing.T) {
	c := Chart{Panels: []Panel{{Series: []Series{{Name: "a", Points: []Point{{1, 10}, {2, 20}}, Bars: []Bar{{1, 5, 12}, {2, 15, 400}, {3, math.NaN(), 1}}}}}}}
	with := string(c.SVG())
	if !strings.Contains(with, ">400<") || strings.Contains(with, "NaN") {
		t.Error(with)
	}
	c.Panels[0].Series[0].Bars = nil
	if without := string(c.SVG()); strings.Count(with, "<path")-strings.Count(without, "<path") != 2 {
		t.Errorf("want two bars in\n%s", with)
	}
}

// Each colour has a mark of its own, which is there in grey, too.
func TestMarksDiffer(t *testing.T) {
	if len(marks) != len(colors) {
		t.Fatalf("%d marks for %d colours", len(marks), len(colors))
	}
	seen := map[string]int{}
	for i := range marks {
		var d drawing
		d.mark(i, 0, 0, "white", "black")
		if k, ok := seen[d.String()]; ok {
			t.Errorf("colours %d and %d have the same mark", k, i)
		}
		seen[d.String()] = i
	}
}
