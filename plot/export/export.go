// Package export turns pictures of package plot, and others that keep to the same few elements of
// SVG, into PDF with embedded fonts and into PNG. The output depends only on the input.
//
// It knows rect, line, path (absolute M, L, H, V, C and Z), circle and text, with attributes instead
// of style sheets. Anything else is an error, so that no part of a picture is left out unnoticed.
package export

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Formats are the suffixes of file names that Picture knows. A name without a suffix is that of an SVG.
var Formats = []string{".svg", ".pdf", ".png"}

// Known reports whether name has one of the suffixes, or none.
func Known(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return ext == "" || slices.Contains(Formats, ext)
}

// Picture returns an SVG picture in the format that the suffix of a file's name says.
func Picture(name string, svg []byte) ([]byte, error) {
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".svg", "":
		return svg, nil
	case ".pdf":
		return PDF(svg)
	case ".png":
		return PNG(svg)
	default:
		return nil, fmt.Errorf("%q is no picture: want one of %s", ext, strings.Join(Formats, " "))
	}
}

// canvas is what a picture is drawn on. Coordinates and lengths are pixels of the SVG, from its upper
// left corner.
type canvas interface {
	// shape draws a path: its area in fill, then its line. A nil colour draws nothing.
	shape(p []segment, fill, stroke *rgb, width float64, dash []float64)
	// write draws text that begins, has its middle or ends at x, turned by -90 degrees if up.
	write(text string, x, y float64, f face, anchor string, up bool, color *rgb)
}

// segment is a part of a path: 'M', 'L', 'C' or 'Z', with its points.
type segment struct {
	op byte
	at [6]float64
}

// pen is what both libraries draw a path with, but for curves.
type pen interface {
	MoveTo(x, y float64)
	LineTo(x, y float64)
	ClosePath()
}

// trace follows a path with a pen; curve draws a cubic curve.
func trace(path []segment, p pen, curve func(x1, y1, x2, y2, x, y float64)) {
	for _, s := range path {
		switch a := s.at; s.op {
		case 'M':
			p.MoveTo(a[0], a[1])
		case 'L':
			p.LineTo(a[0], a[1])
		case 'C':
			curve(a[0], a[1], a[2], a[3], a[4], a[5])
		case 'Z':
			p.ClosePath()
		}
	}
}

type rgb struct{ r, g, b uint8 }

// face is a font. size is in pixels.
type face struct {
	size       float64
	bold, mono bool
}
