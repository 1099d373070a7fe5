package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// summary compares a figure with the authors' numbers in sentences: gains over the base series, and
// where series cross. The ratios of single series are in the table.
func (f *figure) summary(rows []*figureRow, columns []string) (list []string) {
	far := false
	for _, w := range rows {
		if c, ok := w.compare(columns); ok {
			far = far || c.far
		}
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
	list = append(list, f.crossings(rows, columns)...)
	if far {
		for _, w := range f.why {
			list = append(list, "why: "+w)
		}
	}
	return list
}

// name names the row in a sentence.
func (w *figureRow) name() string {
	if w.panel == "" {
		return w.series
	}
	return w.panel + ", " + w.series
}

// alike is how far a ratio may be from 1, as a factor, before it needs an explanation.
const alike = 1.15

// comparison has the ratios of our numbers in a row to the authors' numbers.
type comparison struct {
	// first and last are the ratios of the first and the last column that has both numbers, mean is
	// the geometric mean of all.
	first, last, mean float64
	// shape is the largest difference between the ratio of a column and mean, in percent. At 0 both
	// curves have the same shape, though one may be higher.
	shape float64
	// far: at least one ratio differs from 1 by more than alike.
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

// gain describes the ratios to the base series at the named columns and at the last one.
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

// crossings says where two series of a panel cross, in the authors' numbers; if one of the series
// is the base, also in ours.
func (f *figure) crossings(rows []*figureRow, columns []string) (list []string) {
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
			list = append(list, fmt.Sprintf("crossing, %s and %s: ours %s, theirs %s", a.name(), b.series, orNever(ours), orNever(theirs)))
		}
	}
	return list
}

// measured reports whether the row has a number of ours.
func (w *figureRow) measured() bool {
	return slices.ContainsFunc(w.ours, func(v float64) bool { return !math.IsNaN(v) })
}

func orNever(s string) string {
	if s == "" {
		return "never"
	}
	return s
}

// apart is the smallest ratio at which one series counts as above another.
const apart = 1.05

// crossing returns the columns between which the lower of two series becomes the higher one; "":
// they do not cross.
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
