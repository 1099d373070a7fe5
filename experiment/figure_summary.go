package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// summary compares a figure with the authors' numbers in sentences: the overview, the numbers that
// are inputs, the gains over the base series and, if numbers differ much, the reasons that are not in
// the overview. If the authors give no numbers, the reasons follow as notes. The ratios of single
// series are in the table.
func (f *figure) summary(rows []*figureRow, columns []string) (list []string) {
	line, far := f.overview(rows, columns)
	list = append(list, line)
	for _, w := range f.inputs {
		list = append(list, "input: "+w)
	}
	for _, w := range rows {
		for _, base := range rows {
			if base.series == f.base && base.panel == w.panel && base != w {
				if line := w.gain(base, columns, f.gains); line != "" {
					list = append(list, line)
				}
			}
		}
	}
	switch {
	case far && len(f.why) > 0:
		for _, w := range f.why[1:] {
			list = append(list, "why: "+w)
		}
	case line == noNumbers:
		for _, w := range f.why {
			list = append(list, "note: "+w)
		}
	}
	return list
}

// noNumbers is the overview of a figure for which the authors give no numbers. The notes below it,
// if any (figure.why), say what the authors show instead, and how our numbers were measured.
const noNumbers = "the authors give no numbers"

// overview compares a figure with the authors' in one line: the ratios of our numbers to theirs at
// both ends of the series, the difference of shape, crossings if there are any, and the first
// reason of differences. far is true if at least one number differs so much that reasons are given.
func (f *figure) overview(rows []*figureRow, columns []string) (line string, far bool) {
	var first, last, shape []float64
	measured, theirs := false, false
	for _, w := range rows {
		measured = measured || w.measured()
		theirs = theirs || slices.ContainsFunc(w.theirs, func(v float64) bool { return !math.IsNaN(v) })
		if c, ok := w.compare(columns); ok {
			first, last, shape = append(first, c.first), append(last, c.last), append(shape, c.shape)
			far = far || c.far
		}
	}
	switch {
	case !measured:
		return "not measured", false
	case !theirs:
		return noNumbers, false
	case len(first) == 0:
		return "no number of ours stands beside one of the authors", false
	}
	parts := []string{
		fmt.Sprintf("ours ÷ theirs %s at the first point, %s at the last", span(first, "%.2f"), span(last, "%.2f")),
		fmt.Sprintf("shape ±%s %%", span(shape, "%.0f")),
	}
	parts = append(parts, f.crossings(rows, columns)...)
	switch {
	case !far:
		parts = append(parts, fmt.Sprintf("no number differs by more than %.0f %%", 100*(alike-1)))
	case len(f.why) == 0:
		parts = append(parts, "why they differ is not known")
	default:
		parts = append(parts, "why: "+f.why[0])
	}
	return strings.Join(parts, "; "), far
}

// span formats the smallest and the largest of some numbers, or one number if both look the same.
func span(list []float64, format string) string {
	low, high := fmt.Sprintf(format, slices.Min(list)), fmt.Sprintf(format, slices.Max(list))
	if low == high {
		return low
	}
	return low + " to " + high
}

func (w *figureRow) name() string {
	if w.panel == "" {
		return w.series
	}
	return w.panel + ", " + w.series
}

// alike is the largest factor between our number and theirs that needs no explanation.
const alike = 1.15

// comparison summarizes, for one row of a figure's table, our numbers divided by the authors'.
type comparison struct {
	// first and last are the ratios of the first and the last column that has both numbers, mean is
	// the geometric mean of all.
	first, last, mean float64
	// shape is the largest difference between the ratio of a column and mean, in percent. At 0 both
	// curves have the same shape, though one may be higher.
	shape float64
	// far is true if the ratio of at least one column is above the constant `alike` or below
	// 1/`alike`.
	far bool
}

// compare compares our numbers with the authors'. It returns false if no column has both.
func (w *figureRow) compare(columns []string) (c comparison, ok bool) {
	var ratios []float64
	sum := 0.0
	for k := range columns {
		if r := w.ours[k] / w.theirs[k]; r > 0 && !math.IsInf(r, 0) { // false for NaN
			ratios, sum = append(ratios, r), sum+math.Log(r)
			c.far = c.far || r > alike || r < 1/alike
		}
	}
	if len(ratios) == 0 {
		return c, false
	}
	c.first, c.last, c.mean = ratios[0], ratios[len(ratios)-1], math.Exp(sum/float64(len(ratios)))
	for _, r := range ratios {
		c.shape = max(c.shape, 100*(max(r/c.mean, c.mean/r)-1))
	}
	return c, true
}

// gain describes the ratios of our numbers in row w to those in row base: at the named columns, and
// at the last column for which both rows have a number.
func (w *figureRow) gain(base *figureRow, columns, named []string) string {
	var parts []string
	last := -1
	for k := range columns {
		if !math.IsNaN(w.ours[k] / base.ours[k]) {
			last = k
		}
	}
	for k, x := range columns {
		ours, theirs := w.ours[k]/base.ours[k], w.theirs[k]/base.theirs[k]
		if math.IsNaN(ours) || k != last && !slices.Contains(named, x) {
			continue
		}
		part := fmt.Sprintf("at %s %.3g", x, ours)
		if !math.IsNaN(theirs) {
			part += fmt.Sprintf(" (theirs %.3g)", theirs)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("gain over %s, %s: %s", base.series, w.name(), strings.Join(parts, ", "))
}

// crossings says where two series of a panel cross, in our numbers and in the authors'. A crossing
// in our numbers alone is left out unless one of the two series is the base. If a column is a name
// and not a number, the columns have no natural order, and crossings returns nothing.
func (f *figure) crossings(rows []*figureRow, columns []string) (list []string) {
	if slices.ContainsFunc(columns, func(x string) bool { _, err := strconv.ParseFloat(x, 64); return err != nil }) {
		return nil
	}
	for i, a := range rows {
		for _, b := range rows[i+1:] {
			if a.panel != b.panel || a.their == b.their || !a.measured() || !b.measured() {
				continue
			}
			ours, theirs := crossing(a.ours, b.ours, columns), crossing(a.theirs, b.theirs, columns)
			if ours == theirs {
				if ours != "" {
					list = append(list, fmt.Sprintf("crossing, %s and %s: %s, as theirs", a.name(), b.series, ours))
				}
				continue
			}
			if theirs == "" && a.series != f.base && b.series != f.base {
				continue
			}
			list = append(list, fmt.Sprintf("crossing, %s and %s: ours %s, theirs %s", a.name(), b.series, cmp.Or(ours, "never"), cmp.Or(theirs, "never")))
		}
	}
	return list
}

func (w *figureRow) measured() bool {
	return slices.ContainsFunc(w.ours, func(v float64) bool { return !math.IsNaN(v) })
}

// apart is the ratio beyond which one series counts as above another.
const apart = 1.05

// crossing returns the columns between which the lower of two series becomes the higher one; ""
// means that the series do not cross.
func crossing(a, b []float64, columns []string) string {
	before, at := 0, ""
	for k := range columns {
		side := 0
		switch r := a[k] / b[k]; {
		case r > apart:
			side = 1
		case r < 1/apart:
			side = -1
		}
		if side == 0 {
			continue
		}
		if before != 0 && side != before {
			return fmt.Sprintf("between %s and %s", at, columns[k])
		}
		before, at = side, columns[k]
	}
	return ""
}
