package export

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxSide bounds the width and the height of a picture in pixels.
const maxSide = 1 << 14

// element has the attributes of an SVG element, and reads them.
type element struct {
	name string
	attr map[string]string
	err  error
}

func (e *element) number(name string, otherwise float64) float64 {
	text, ok := e.attr[name]
	if !ok {
		return otherwise
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("%s of %s: %w", name, e.name, err)
	}
	return v
}

// colour reads a colour: #rrggbb, white, black or none, which is nil.
func (e *element) colour(name, otherwise string) *rgb {
	text, ok := e.attr[name]
	if !ok {
		text = otherwise
	}
	switch text {
	case "none":
		return nil
	case "white":
		return &rgb{255, 255, 255}
	case "black":
		return &rgb{}
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 24)
	if (err != nil || len(text) != 7) && e.err == nil {
		e.err = fmt.Errorf("%s of %s: %q is no colour", name, e.name, text)
	}
	return &rgb{uint8(v >> 16), uint8(v >> 8), uint8(v)}
}

// draw reads an SVG and draws it on the canvas that begin makes.
func draw(svg []byte, begin func(width, height float64) (canvas, error)) error {
	var c canvas
	base := face{size: 16}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && c != nil:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("no SVG picture")
		case err != nil:
			return err
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		e := element{name: start.Name.Local, attr: make(map[string]string, len(start.Attr))}
		for _, a := range start.Attr {
			e.attr[a.Name.Local] = a.Value
		}
		if (e.name == "svg") != (c == nil) {
			return fmt.Errorf("element %s where it cannot be", e.name)
		}
		if e.name == "svg" {
			base.size = e.number("font-size", base.size)
			w, h := e.number("width", 0), e.number("height", 0)
			if e.err != nil || !(w >= 1 && h >= 1 && w <= maxSide && h <= maxSide) {
				return fmt.Errorf("a picture of %g by %g pixels; want 1 to %d", w, h, maxSide)
			}
			if c, err = begin(w, h); err != nil {
				return err
			}
			continue
		}
		text := ""
		if e.name == "text" {
			if err := d.DecodeElement(&text, &start); err != nil {
				return err
			}
		}
		if e.draw(c, text, base); e.err != nil {
			return e.err
		}
	}
}

// draw draws an element. text is its content.
func (e *element) draw(c canvas, text string, f face) {
	if e.name == "text" {
		f.size = e.number("font-size", f.size)
		f.bold, f.mono = e.attr["font-weight"] == "bold", e.attr["font-family"] == "monospace"
		turn := e.attr["transform"]
		if turn != "" && !strings.HasPrefix(turn, "rotate(-90 ") && e.err == nil {
			e.err = fmt.Errorf("transform %q of a text", turn)
		}
		c.write(text, e.number("x", 0), e.number("y", 0), f, e.attr["text-anchor"], turn != "", e.colour("fill", "black"))
		return
	}
	p := e.outline()
	if e.err != nil {
		return
	}
	fill := e.colour("fill", "black")
	if e.name == "line" {
		fill = nil
	}
	var dash []float64
	for word := range strings.FieldsSeq(strings.ReplaceAll(e.attr["stroke-dasharray"], ",", " ")) {
		v, err := strconv.ParseFloat(word, 64)
		if err == nil && !(v > 0 && v < maxSide) {
			err = fmt.Errorf("%q is no length of a dash", word)
		}
		if err != nil && e.err == nil {
			e.err = fmt.Errorf("stroke-dasharray: %w", err)
		}
		dash = append(dash, v)
	}
	c.shape(p, fill, e.colour("stroke", "none"), e.number("stroke-width", 1), dash)
}

// round is how far from its end a control point of a quarter of a circle is, divided by the radius.
const round = 0.5523

// outline returns the path of an element.
func (e *element) outline() []segment {
	switch e.name {
	case "line":
		return []segment{{'M', [6]float64{e.number("x1", 0), e.number("y1", 0)}}, {'L', [6]float64{e.number("x2", 0), e.number("y2", 0)}}}
	case "rect":
		x, y, w, h := e.number("x", 0), e.number("y", 0), e.number("width", 0), e.number("height", 0)
		return rounded(x, y, w, h, e.number("rx", 0))
	case "circle":
		x, y, r := e.number("cx", 0), e.number("cy", 0), e.number("r", 0)
		return rounded(x-r, y-r, 2*r, 2*r, r)
	case "path":
		p, err := parsePath(e.attr["d"])
		if err != nil {
			e.err = err
		}
		return p
	}
	e.err = fmt.Errorf("element %s is not known", e.name)
	return nil
}

// rounded is a rectangle whose corners have the radius r.
func rounded(x, y, w, h, r float64) []segment {
	if r == 0 {
		return []segment{{'M', [6]float64{x, y}}, {'L', [6]float64{x + w, y}}, {'L', [6]float64{x + w, y + h}}, {'L', [6]float64{x, y + h}}, {op: 'Z'}}
	}
	k := r * (1 - round)
	return []segment{
		{'M', [6]float64{x + r, y}},
		{'L', [6]float64{x + w - r, y}},
		{'C', [6]float64{x + w - k, y, x + w, y + k, x + w, y + r}},
		{'L', [6]float64{x + w, y + h - r}},
		{'C', [6]float64{x + w, y + h - k, x + w - k, y + h, x + w - r, y + h}},
		{'L', [6]float64{x + r, y + h}},
		{'C', [6]float64{x + k, y + h, x, y + h - k, x, y + h - r}},
		{'L', [6]float64{x, y + r}},
		{'C', [6]float64{x, y + k, x + k, y, x + r, y}},
		{op: 'Z'},
	}
}

// operands is how many numbers a command of a path has.
var operands = map[byte]int{'M': 2, 'L': 2, 'H': 1, 'V': 1, 'C': 6, 'Z': 0}

func parsePath(text string) (list []segment, err error) {
	var x, y float64
	for text = strings.TrimSpace(text); text != ""; {
		op := text[0]
		n, ok := operands[op]
		if !ok {
			return nil, fmt.Errorf("command %q of a path", op)
		}
		end := strings.IndexAny(text[1:], "MLHVCZ") + 1
		if end == 0 {
			end = len(text)
		}
		words := strings.FieldsFunc(text[1:end], func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
		text = text[end:]
		if len(words) != n {
			return nil, fmt.Errorf("%d numbers for %q of a path; want %d", len(words), op, n)
		}
		s := segment{op: op}
		for i, w := range words {
			if s.at[i], err = strconv.ParseFloat(w, 64); err != nil {
				return nil, err
			}
		}
		switch op {
		case 'H':
			s = segment{'L', [6]float64{s.at[0], y}}
		case 'V':
			s = segment{'L', [6]float64{x, s.at[0]}}
		}
		if n > 0 {
			k := 0
			if op == 'C' {
				k = 4
			}
			x, y = s.at[k], s.at[k+1]
		}
		if len(list) == 0 && op != 'M' {
			return nil, errors.New("a path that does not begin with M")
		}
		list = append(list, s)
	}
	return list, nil
}
