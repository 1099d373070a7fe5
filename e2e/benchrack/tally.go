package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// tally collects the figures of all rounds.
type tally struct {
	rows []*row // in the order in which their first values were added
	// note says what limits the meaning of the figures; "" means nothing.
	note string
}

// row has the values of one measure, one for each round.
type row struct {
	name, unit, base string
	values           []float64
}

// add adds a value of the current round. The value of its base must have been added before, in the
// same round.
func (t *tally) add(name, unit, base string, v float64) {
	r := t.row(name)
	if r == nil {
		r = &row{name: name, unit: unit, base: base}
		t.rows = append(t.rows, r)
	}
	r.values = append(r.values, v)
}

func (t *tally) row(name string) *row {
	for _, r := range t.rows {
		if r.name == name {
			return r
		}
	}
	return nil
}

// ratios returns r's values divided by those of its base, round by round; nil if the base was not
// measured.
func (t *tally) ratios(r *row) []float64 {
	base := t.row(r.base)
	if base == nil {
		return nil
	}
	n := min(len(r.values), len(base.values))
	ratios := make([]float64, n)
	for i := range ratios {
		ratios[i] = r.values[i] / base.values[i]
	}
	return ratios
}

// print writes a table: the median, the smallest and the largest value of each measure, and the
// median of its ratios.
func (t *tally) print(w io.Writer) {
	if t.note != "" {
		fmt.Fprintln(w, t.note)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "MEASURE\tROUNDS\tMEDIAN\tMIN\tMAX\tRATIO\tTO")
	for _, r := range t.rows {
		scale, unit := 1.0, r.unit
		switch r.unit {
		case "sec/op":
			scale, unit = 1e6, "us"
		case "B/s":
			scale, unit = 8e-9, "Gb/s"
		case "msgs/s":
			scale, unit = 1e-6, "M/s"
		case "ops/s":
			scale, unit = 1e-3, "k ops/s"
		}
		ratio, to := "-", "-"
		if rs := t.ratios(r); len(rs) > 0 {
			ratio, to = fmt.Sprintf("%.2f", middle(rs)), r.base
		}
		fmt.Fprintf(tw, "%s\t%d\t%.4g %s\t%.4g\t%.4g\t%s\t%s\n", r.name, len(r.values),
			scale*middle(r.values), unit, scale*slices.Min(r.values), scale*slices.Max(r.values), ratio, to)
	}
	tw.Flush()
}

// middle returns the median; for an even number of values, the mean of the two in the middle.
func middle(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// benchmarks returns every figure as a line of a Go benchmark, which is what benchstat reads.
func (t *tally) benchmarks() []byte {
	var b bytes.Buffer
	if t.note != "" {
		fmt.Fprintf(&b, "note: %s\n", t.note)
	}
	for _, r := range t.rows {
		for _, v := range r.values {
			fmt.Fprintf(&b, "BenchmarkRack/%s 1 %g %s\n", r.name, v, r.unit)
		}
		for _, v := range t.ratios(r) {
			fmt.Fprintf(&b, "BenchmarkRack/%s 1 %g ratio\n", r.name, v)
		}
	}
	return b.Bytes()
}
