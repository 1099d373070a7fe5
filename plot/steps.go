package plot

import (
	"fmt"
	"math"
)

// Steps is a picture of what several actors do, one step below the other in the order of time. Each
// actor has a column.
type Steps struct {
	Title   string
	Columns []string
	Steps   []Step
	Arrows  []Arrow
	// Notes are lines below the steps.
	Notes []string
}

type Step struct {
	Column int
	// Time is the text at the left edge of the picture. It is left out if the step before has the
	// same text.
	Time string
	// Title is the first line of the box, Lines are below it, and then Marked, in a colour of its own.
	Title         string
	Lines, Marked []string
}

// Arrow joins two steps. From and To are indexes in Steps.Steps.
type Arrow struct {
	From, To int
	// Name is what the arrow means. The legend has each name once.
	Name string
	// Color is the number of a colour, as that of a Series.
	Color  int
	Dashed bool
}

// Sizes in pixels.
const (
	timeWidth   = 70
	boxWidth    = 330
	columnGap   = 90
	columnsTop  = 62
	lineHeight  = 15
	boxPad      = 8
	stepGap     = 12
	arrowLength = 9
	arrowWidth  = 4
	markedColor = "#d55e00"
)

// stepBox is the place of a step in pixels. from and to count the arrows that begin and end there.
type stepBox struct {
	x, y, height       float64
	from, to           int // all arrows of the step
	fromDrawn, toDrawn int // the arrows that are drawn already
}

// columnLeft returns the left edge of a column, in pixels.
func columnLeft(column int) float64 { return timeWidth + float64(column*(boxWidth+columnGap)) }

// boxes returns the places of the steps, and where the last one ends.
func (s *Steps) boxes() (list []stepBox, end float64) {
	list, end = make([]stepBox, len(s.Steps)), columnsTop
	for i, step := range s.Steps {
		lines := 1 + len(step.Lines) + len(step.Marked)
		list[i] = stepBox{x: columnLeft(step.Column), y: end, height: float64(lines*lineHeight + boxPad)}
		end += list[i].height + stepGap
	}
	for _, a := range s.Arrows {
		list[a.From].from++
		list[a.To].to++
	}
	return list, end
}

// SVG draws the picture. It is as wide as its columns, whose texts must fit: about 50 characters.
func (s *Steps) SVG() []byte {
	boxes, end := s.boxes()
	legend := s.legend()
	width := columnLeft(max(1, len(s.Columns))) - columnGap + 16
	height := end + lineHeight*float64(len(s.Notes)+len(legend)) + 2*boxPad
	var d drawing
	d.addf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="%d">`, width, height, fontSize)
	d.addf(`<rect width="%.0f" height="%.0f" fill="white"/>`, width, height)
	d.text(width/2, 20, "middle", fmt.Sprintf(` font-size="%.1f"`, titleSize(s.Title, width)), s.Title)
	for i, name := range s.Columns {
		middle := columnLeft(i) + boxWidth/2
		d.text(middle, columnsTop-16, "middle", ` font-size="13" font-weight="bold"`, name)
		d.addf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#bbbbbb"/>`, middle, float64(columnsTop-8), middle, end-stepGap)
	}
	for i := range s.Steps {
		before := ""
		if i > 0 {
			before = s.Steps[i-1].Time
		}
		s.Steps[i].draw(&d, &boxes[i], before)
	}
	for i := range s.Arrows {
		s.Arrows[i].draw(&d, &boxes[s.Arrows[i].From], &boxes[s.Arrows[i].To])
	}
	y := end + lineHeight
	for _, n := range s.Notes {
		d.text(timeWidth, y, "start", "", n)
		y += lineHeight
	}
	for _, a := range legend {
		a.line(&d, fmt.Sprintf("M%.1f %.1fH%.1f", float64(timeWidth), y-4, float64(timeWidth+30)), timeWidth+30+arrowLength, y-4, 1)
		d.text(timeWidth+50, y, "start", "", a.Name)
		y += lineHeight
	}
	d.addf("</svg>")
	return []byte(d.String())
}

// legend has one arrow of each name.
func (s *Steps) legend() (list []Arrow) {
	seen := make(map[string]bool)
	for _, a := range s.Arrows {
		if a.Name != "" && !seen[a.Name] {
			seen[a.Name] = true
			list = append(list, a)
		}
	}
	return list
}

func (s *Step) draw(d *drawing, b *stepBox, before string) {
	if s.Time != before {
		d.text(timeWidth-10, b.y+lineHeight, "end", "", s.Time)
	}
	d.addf(`<rect x="%.1f" y="%.1f" width="%d" height="%.1f" rx="4" fill="#f4f8fc" stroke="#333333"/>`, b.x, b.y, boxWidth, b.height)
	y := b.y + lineHeight
	d.text(b.x+boxPad, y, "start", ` font-weight="bold"`, s.Title)
	for _, l := range s.Lines {
		y += lineHeight
		d.text(b.x+boxPad, y, "start", "", l)
	}
	for _, l := range s.Marked {
		y += lineHeight
		d.text(b.x+boxPad, y, "start", fmt.Sprintf(` fill="%s" font-family="monospace"`, markedColor), l)
	}
}

// draw draws the arrow between the sides of the two boxes that face each other, or at the right of
// both if they are in one column. The ends of all arrows of a box are distributed over its height.
func (a *Arrow) draw(d *drawing, from, to *stepBox) {
	from.fromDrawn++
	to.toDrawn++
	y1 := from.y + from.height*float64(from.fromDrawn)/float64(from.from+1)
	y2 := to.y + to.height*float64(to.toDrawn)/float64(to.to+1)
	x1, x2, out, in := from.x+boxWidth, to.x, 1.0, 1.0
	switch {
	case to.x < from.x:
		x1, x2, out, in = from.x, to.x+boxWidth, -1, -1
	case to.x == from.x:
		x2, in = to.x+boxWidth, -1
	}
	tip := x2
	x2 -= in * arrowLength
	bend := math.Max(columnGap/2, math.Abs(x2-x1)/2)
	a.line(d, fmt.Sprintf("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", x1, y1, x1+out*bend, y1, x2-in*bend, y2, x2, y2), tip, y2, in)
}

// line draws a path and the arrow's head, whose tip is at x, y. `to` is 1 if the arrow points
// right, and -1 if it points left.
func (a *Arrow) line(d *drawing, path string, x, y, to float64) {
	color, dash := colors[(a.Color%len(colors)+len(colors))%len(colors)], ""
	if a.Dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	d.addf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.4"%s/>`, path, color, dash)
	d.addf(`<path d="M%.1f %.1fL%.1f %.1fL%.1f %.1fZ" fill="%s"/>`, x, y, x-to*arrowLength, y-arrowWidth, x-to*arrowLength, y+arrowWidth, color)
}
