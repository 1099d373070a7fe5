package export_test

import (
	"bytes"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/plot"
	"github.com/rdmalab/rdmalab/plot/export"
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" width="100" height="50" font-family="sans-serif" font-size="11"><rect width="100" height="50" fill="white"/>`

// What is drawn is where it belongs, in its colour, at twice the size.
func TestPNG(t *testing.T) {
	file, err := export.PNG([]byte(head +
		`<rect x="10" y="10" width="20" height="20" rx="4" fill="#ff0000"/>` +
		`<path d="M60 10H80V30H60Z" fill="none" stroke="#0000ff" stroke-width="2" stroke-dasharray="5 4"/>` +
		`<circle cx="50" cy="20" r="5" fill="#00ff00"/><line x1="0" y1="45" x2="100" y2="45" stroke="black" stroke-width="2"/>` +
		`<path d="M35 5C36 5 38 5 40 5" fill="none" stroke="#0000ff"/></svg>`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(file))
	if err != nil || m.Bounds().Dx() != 200 || m.Bounds().Dy() != 100 {
		t.Fatalf("%v, %v", err, m.Bounds())
	}
	for at, want := range map[[2]int]color.RGBA{
		{40, 40}: {255, 0, 0, 255}, {140, 40}: {255, 255, 255, 255}, {100, 40}: {0, 255, 0, 255}, {120, 90}: {0, 0, 0, 255},
		{123, 20}: {0, 0, 255, 255}, {20, 20}: {255, 255, 255, 255}, {74, 10}: {0, 0, 255, 255},
	} {
		if got := color.RGBAModel.Convert(m.At(at[0], at[1])); got != want {
			t.Errorf("at %v is %v, want %v", at, got, want)
		}
	}
}

// Text is there, begins, ends or has its middle at its place, and goes up if it is turned.
func TestText(t *testing.T) {
	for more, where := range map[string][4]int{
		`text-anchor="start"`:                                 {100, 160, 20, 60},
		`text-anchor="end"`:                                   {40, 100, 20, 60},
		`text-anchor="middle"`:                                {70, 130, 20, 60},
		`text-anchor="start" transform="rotate(-90 50 25)"`:   {70, 104, 0, 52},
		`text-anchor="start" font-family="monospace"`:         {100, 170, 20, 60},
		`text-anchor="start" font-weight="bold" fill="black"`: {100, 165, 20, 60},
	} {
		file, err := export.PNG([]byte(head + `<text x="50" y="25" ` + more + `>Hill</text></svg>`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		ink := 0
		for x := range 200 {
			for y := range 100 {
				if r, _, _, _ := m.At(x, y).RGBA(); r < 0x8000 {
					if ink++; x < where[0] || x > where[1] || y < where[2] || y > where[3] {
						t.Fatalf("%s: ink at %d, %d", more, x, y)
					}
				}
			}
		}
		if ink < 30 {
			t.Errorf("%s: %d dark pixels", more, ink)
		}
	}
}

// A PDF has its fonts, and is the same each time.
func TestPDF(t *testing.T) {
	c := plot.Chart{Title: "Figure äöü", X: "clients", Y: "Mops", Panels: []plot.Panel{{Series: []plot.Series{{
		Name: "a", Dashed: true,
		Points: []plot.Point{{X: 1, Y: 2}, {X: 3, Y: 4}}, Bars: []plot.Bar{{X: 1, Low: 1, High: 3}},
	}}}}}
	first, err := export.PDF(c.SVG())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"%PDF-", "/FontFile2", "/MediaBox"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
	for range 5 {
		if again, err := export.PDF(c.SVG()); err != nil || !bytes.Equal(again, first) {
			t.Fatal("another PDF of the same picture", err)
		}
	}
}

// A part that is not known is refused, not left out.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "no SVG",
		"<svg/>":                          "0 by 0 pixels",
		`<svg width="1e9" height="2"/>`:   "pixels",
		`<svg width="NaN" height="2"/>`:   "pixels",
		"<rect/>":                         "where it cannot be",
		head + `<g/></svg>`:               "g is not known",
		head + `<svg/></svg>`:             "where it cannot be",
		head + `<rect x="a"/></svg>`:      "x of rect",
		head + `<rect fill="red"/></svg>`: "no colour",
		head + `<path d="m1 2"/></svg>`:   "command 'm'",
		head + `<path d="M1"/></svg>`:     "1 numbers",
		head + `<path d="L1 2"/></svg>`:   "begin with M",
		head + `<path d="M1 x"/></svg>`:   "invalid syntax",
		head + `<text transform="skewX(2)">a</text></svg>`:           "transform",
		head + `<line stroke="black" stroke-dasharray="a"/></svg>`:   "dasharray",
		head + `<line stroke="black" stroke-dasharray="0 0"/></svg>`: "dasharray",
		head + `<line stroke="black" stroke-dasharray="NaN"/></svg>`: "dasharray",
		head: "EOF",
	} {
		for _, f := range []func([]byte) ([]byte, error){export.PDF, export.PNG} {
			if _, err := f([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %s", text, err, want)
			}
		}
	}
	if _, err := export.Picture("x.jpg", nil); err == nil || export.Known("x.jpg") || !export.Known("a/b.PDF") {
		t.Error("jpg is no format, PDF is one")
	}
}

// A character that the fonts cannot have is replaced.
func TestCharactersBeyondTheFonts(t *testing.T) {
	svg := []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"><text x="5" y="20" font-size="12">日本 🙂</text></svg>`)
	for name, of := range map[string]func([]byte) ([]byte, error){"PDF": export.PDF, "PNG": export.PNG} {
		if b, err := of(svg); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}
