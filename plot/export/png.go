package export

import (
	"bytes"

	"codeberg.org/go-fonts/liberation/liberationmonoregular"
	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"git.sr.ht/~sbinet/gg"
	"golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
)

// scale is how many pixels of a PNG picture a pixel of the SVG is wide: 192 dots per inch.
const scale = 2

// fonts reads the fonts: regular, bold, of constant width.
func fonts() (list [3]*opentype.Font, err error) {
	for i, ttf := range [][]byte{liberationsansregular.TTF, liberationsansbold.TTF, liberationmonoregular.TTF} {
		if list[i], err = opentype.Parse(ttf); err != nil {
			return list, err
		}
	}
	return list, nil
}

type png struct {
	*gg.Context
	fonts [3]*opentype.Font
	faces map[face]font.Face
}

// PNG returns an SVG picture as a PNG file with 192 dots per inch.
func PNG(svg []byte) ([]byte, error) {
	p := png{faces: map[face]font.Face{}}
	err := draw(svg, func(w, h float64) (_ canvas, err error) {
		p.Context = gg.NewContext(int(w*scale), int(h*scale))
		p.Scale(scale, scale)
		p.fonts, err = fonts()
		return &p, err
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = p.EncodePNG(&out)
	return out.Bytes(), err
}

func (p *png) shape(path []segment, fill, stroke *rgb, width float64, dash []float64) {
	trace(path, p, p.CubicTo)
	if fill != nil {
		p.SetRGB255(int(fill.r), int(fill.g), int(fill.b))
		p.FillPreserve()
	}
	if stroke != nil {
		scaled := make([]float64, len(dash))
		for i := range dash {
			scaled[i] = dash[i] * scale
		}
		p.SetRGB255(int(stroke.r), int(stroke.g), int(stroke.b))
		p.SetLineWidth(width * scale) // lengths of lines and dashes are not transformed
		p.SetDash(scaled...)
		p.StrokePreserve()
	}
	p.ClearPath()
}

func (p *png) write(text string, x, y float64, f face, anchor string, up bool, color *rgb) {
	if color == nil {
		return
	}
	glyphs := p.faces[f]
	if glyphs == nil {
		k := 0
		if f.bold {
			k = 1
		}
		if f.mono {
			k = 2
		}
		var err error
		if glyphs, err = opentype.NewFace(p.fonts[k], &opentype.FaceOptions{Size: f.size * scale, DPI: 72}); err != nil {
			return // the options are valid
		}
		p.faces[f] = glyphs
	}
	p.Push()
	defer p.Pop()
	p.SetRGB255(int(color.r), int(color.g), int(color.b))
	p.SetFontFace(glyphs)
	at := 0.0
	switch anchor {
	case "middle":
		at = 0.5
	case "end":
		at = 1
	}
	p.Translate(x, y)
	if up {
		p.Rotate(-gg.Radians(90))
	}
	p.Scale(1.0/scale, 1.0/scale) // the face has the size in pixels of the PNG
	p.DrawStringAnchored(text, 0, 0, at, 0)
}
