package export

import (
	"bytes"
	"strings"
	"time"
	"unicode"

	"codeberg.org/go-fonts/liberation/liberationmonoregular"
	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"codeberg.org/go-pdf/fpdf"
)

// pdf draws on a page of a PDF file, whose unit of length is a pixel of 1/96 inch.
type pdf struct{ *fpdf.Fpdf }

// PDF returns an SVG picture as a PDF file of one page, with the fonts embedded.
func PDF(svg []byte) ([]byte, error) {
	var p pdf
	err := draw(svg, func(w, h float64) (canvas, error) {
		p.Fpdf = fpdf.NewCustom(&fpdf.InitType{UnitStr: "pt", Size: fpdf.SizeType{Wd: w, Ht: h}})
		p.SetCreationDate(time.Unix(0, 0))
		p.SetModificationDate(time.Unix(0, 0))
		p.SetCatalogSort(true)
		p.SetMargins(0, 0, 0)
		p.SetAutoPageBreak(false, 0)
		p.AddUTF8FontFromBytes("sans", "", liberationsansregular.TTF)
		p.AddUTF8FontFromBytes("sans", "B", liberationsansbold.TTF)
		p.AddUTF8FontFromBytes("mono", "", liberationmonoregular.TTF)
		p.AddPage()
		return p, p.Error()
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = p.Output(&out)
	return out.Bytes(), err
}

func (p pdf) shape(path []segment, fill, stroke *rgb, width float64, dash []float64) {
	style := ""
	if fill != nil {
		p.SetFillColor(int(fill.r), int(fill.g), int(fill.b))
		style += "F"
	}
	if stroke != nil {
		p.SetDrawColor(int(stroke.r), int(stroke.g), int(stroke.b))
		p.SetLineWidth(width)
		p.SetDashPattern(dash, 0)
		style += "D"
	}
	if style == "" || len(path) == 0 {
		return
	}
	trace(path, p, p.CurveBezierCubicTo)
	p.DrawPath(style)
}

func (p pdf) write(text string, x, y float64, f face, anchor string, up bool, color *rgb) {
	if color == nil || text == "" {
		return
	}
	family, style := "sans", ""
	if f.bold {
		style = "B"
	}
	if f.mono {
		family, style = "mono", ""
	}
	p.SetFont(family, style, f.size)
	text = strings.Map(func(r rune) rune {
		if r > 0xffff { // the fonts' tables end here
			return unicode.ReplacementChar
		}
		return r
	}, text)
	p.SetTextColor(int(color.r), int(color.g), int(color.b))
	at := x
	switch width := p.GetStringWidth(text); anchor {
	case "middle":
		at -= width / 2
	case "end":
		at -= width
	}
	if up {
		p.TransformBegin()
		p.TransformRotate(90, x, y)
		defer p.TransformEnd()
	}
	p.Text(at, y, text)
}
