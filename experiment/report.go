package experiment

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/plot"
)

// Report has the measurements of an experiment as rows of a table.
type Report struct {
	Experiment string `json:"experiment"`
	// Figure names the paper and its figure that the experiment reproduces.
	Figure string `json:"figure"`
	// On is OnSim or OnRack.
	On string `json:"on"`
	// Platform describes the platform on which the experiment ran.
	Platform string `json:"platform"`
	// Interrupted is true if rows are missing because the run was interrupted.
	Interrupted bool     `json:"interrupted,omitempty"`
	Rows        []Row    `json:"rows"`
	columns     []Column // of all rows
	// Parts are the reports of the figures, if the experiment has several. The report itself then
	// has no rows.
	Parts []*Report `json:"parts,omitempty"`
	// Failures says which rows count for nothing, and why.
	Failures []string `json:"failures,omitempty"`
	// Summary says in sentences how the rows compare with the paper's values.
	Summary []string `json:"summary,omitempty"`
	// Chart is the picture of the rows; nil means that there is none.
	Chart *plot.Chart `json:"-"`
	// Watch, if not nil, is informed of each measurement.
	Watch Watcher      `json:"-"`
	ended func(string) // ends the measurement that begin has begun
}

// Watcher is informed of the measurements of a run that takes long.
type Watcher interface {
	// Begin is called before measurement number n of total. The caller calls end with the result of
	// the measurement. Several measurements may run at the same time, and both functions may be
	// called from any goroutine.
	Begin(what string, n, total int) (end func(result string))
}

type Column struct {
	// Key names the column in JSON and CSV, Title in a table.
	Key, Title string
	// Format is the format of numbers in the syntax of package fmt; "" means the shortest that is
	// exact.
	Format string
	// Repeats: a cell of the table is left empty if it and all cells to its left equal those above.
	Repeats bool
}

// Cell is one cell: text, or a number, with the paper's number beside it.
type Cell struct {
	// Text is the value of a cell without a number.
	Text string
	// Value is the number, if Number is set.
	Value  float64
	Number bool
	// Paper is the paper's number; 0 means that the paper has none. Claim is the paper's claim in
	// words.
	Paper float64
	Claim string
}

type Row struct {
	cells   []Cell
	columns []Column
}

func Label(text string) Cell { return Cell{Text: text} }

// Median returns the median of list; NaN if list is empty.
func Median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Num returns a cell with a number for which the paper has none.
func Num(v float64) Cell { return Cell{Value: v, Number: true} }

// Beside returns a cell with a measured number and that of the paper; 0 means that the paper has
// none.
func Beside(v, paper float64) Cell { return Cell{Value: v, Number: true, Paper: paper} }

func None() Cell { return Cell{} }

// Theirs returns a cell for a value that was not measured, with the paper's number; 0 means that
// the paper has none either.
func Theirs(paper float64) Cell { return Cell{Paper: paper} }

// unlessZero returns a cell with a number, or without value if the number is 0.
func unlessZero(v float64) Cell {
	if v == 0 {
		return None()
	}
	return Num(v)
}

func (r *Report) Columns(list ...Column) { r.columns = list }

func (r *Report) Add(cells ...Cell) {
	if len(cells) != len(r.columns) {
		panic(fmt.Sprintf("experiment %s: %d cells for %d columns", r.Experiment, len(cells), len(r.columns)))
	}
	r.Rows = append(r.Rows, Row{cells, r.columns})
}

// fail notes that a row counts for nothing.
func (r *Report) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// line adds a line that must hold to the summary, and is a failure if it does not.
func (r *Report) line(name string, ok bool, format string, args ...any) {
	text := name + ": " + fmt.Sprintf(format, args...)
	if ok {
		r.Summary = append(r.Summary, text+"; holds")
		return
	}
	r.Summary = append(r.Summary, text+"; DOES NOT HOLD")
	r.fail("%s", text)
}

// Err returns an error if rows of the report or of its parts count for nothing.
func (r *Report) Err() error {
	list := slices.Clone(r.Failures)
	for _, p := range r.Parts {
		list = append(list, p.Failures...)
	}
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.Join(list, "\n"))
}

// begin tells the watcher that a measurement begins.
func (r *Report) begin(n, total int, format string, args ...any) {
	if r.Watch != nil {
		r.ended = r.Watch.Begin(fmt.Sprintf(format, args...), n, total)
	}
}

// end tells the watcher the result of the measurement.
func (r *Report) end(format string, args ...any) {
	if r.ended != nil {
		r.ended(fmt.Sprintf(format, args...))
	}
}

func (w *Row) Cell(key string) Cell {
	for i, c := range w.columns {
		if c.Key == key {
			return w.cells[i]
		}
	}
	return Cell{}
}

// cellJSON is a cell with a number in JSON, without value if only the paper has a number.
type cellJSON struct {
	Value *float64 `json:"value,omitempty"`
	Paper float64  `json:"paper,omitempty"`
	Claim string   `json:"paperSays,omitempty"`
}

// MarshalJSON writes a row as an object: labels as strings, numbers as cellJSON. It leaves out
// cells without a value.
func (w Row) MarshalJSON() ([]byte, error) {
	out := make(map[string]any, len(w.cells))
	for i, c := range w.cells {
		switch {
		case c.Number:
			out[w.columns[i].Key] = cellJSON{&c.Value, c.Paper, c.Claim}
		case c.Paper != 0:
			out[w.columns[i].Key] = cellJSON{Paper: c.Paper}
		case c.Text != "":
			out[w.columns[i].Key] = c.Text
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote, for programs that read reports.
func (w *Row) UnmarshalJSON(b []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for key, raw := range in {
		var c Cell
		if json.Unmarshal(raw, &c.Text) != nil {
			var n cellJSON
			if err := json.Unmarshal(raw, &n); err != nil {
				return fmt.Errorf("cell %s: %w", key, err)
			}
			if c = (Cell{Paper: n.Paper, Claim: n.Claim}); n.Value != nil {
				c.Value, c.Number = *n.Value, true
			}
		}
		w.columns, w.cells = append(w.columns, Column{Key: key}), append(w.cells, c)
	}
	return nil
}

func (c *Column) number(v float64) string {
	if c.Format == "" {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprintf(c.Format, v)
}

func (c *Column) text(l *Cell) string {
	switch {
	case !l.Number && l.Paper != 0:
		return "- (" + strconv.FormatFloat(l.Paper, 'g', 4, 64) + ")"
	case !l.Number && l.Text == "":
		return "-"
	case !l.Number:
		return l.Text
	case l.Claim != "":
		return c.number(l.Value) + " (" + l.Claim + ")"
	case l.Paper != 0:
		return c.number(l.Value) + " (" + strconv.FormatFloat(l.Paper, 'g', 4, 64) + ")"
	}
	return c.number(l.Value)
}

// hasPaper reports whether any row has a paper's value in a column.
func (r *Report) hasPaper(column int) bool {
	return slices.ContainsFunc(r.Rows, func(w Row) bool {
		return w.cells[column].Paper != 0 || w.cells[column].Claim != ""
	})
}

// WriteTable prints the report as tables for a reader. The paper's values are in parentheses.
func (r *Report) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s on %s: %s\n%s\n", r.Experiment, r.On, r.Figure, r.Platform); err != nil {
		return err
	}
	for _, part := range r.Parts {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", part.Experiment, part.Figure); err != nil {
			return err
		}
		if err := part.writeRows(w); err != nil {
			return err
		}
	}
	if err := r.writeRows(w); err != nil || !r.Interrupted {
		return err
	}
	_, err := fmt.Fprintln(w, "interrupted: rows are missing")
	return err
}

func (r *Report) writeRows(w io.Writer) error {
	if len(r.columns) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	titles := make([]string, len(r.columns))
	for i, c := range r.columns {
		if titles[i] = c.Title; r.hasPaper(i) {
			titles[i] += " (PAPER)"
		}
	}
	fmt.Fprintln(t, strings.Join(titles, "\t"))
	var above []string
	for i := range r.Rows {
		line := make([]string, len(r.columns))
		for k := range r.columns {
			line[k] = r.columns[k].text(&r.Rows[i].cells[k])
		}
		shown := slices.Clone(line)
		for k := 0; k < len(line) && above != nil && r.columns[k].Repeats && line[k] == above[k]; k++ {
			shown[k] = ""
		}
		above = line
		fmt.Fprintln(t, strings.TrimRight(strings.Join(shown, "\t"), "\t"))
	}
	for _, line := range r.Summary {
		fmt.Fprintln(t, line)
	}
	return t.Flush()
}

// WriteCSV writes the rows as CSV for a plot: each column for which a paper has values is followed
// by a column with these values. Each part has a header of its own, and an empty line separates it
// from the next.
func (r *Report) WriteCSV(w io.Writer) error {
	for i, part := range r.Parts {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := part.WriteCSV(w); err != nil {
			return err
		}
	}
	if len(r.columns) == 0 {
		return nil
	}
	out := csv.NewWriter(w)
	var head []string
	for i, c := range r.columns {
		if head = append(head, c.Key); r.hasPaper(i) {
			head = append(head, c.Key+"_paper")
		}
	}
	_ = out.Write(head) // out.Error returns this error, too
	for i := range r.Rows {
		var line []string
		for k := range r.columns {
			c := &r.Rows[i].cells[k]
			value, paper := c.Text, c.Claim
			if c.Number {
				value = strconv.FormatFloat(c.Value, 'g', 6, 64)
			}
			if c.Paper != 0 {
				paper = strconv.FormatFloat(c.Paper, 'g', -1, 64)
			}
			if line = append(line, value); r.hasPaper(k) {
				line = append(line, paper)
			}
		}
		_ = out.Write(line)
	}
	out.Flush()
	return out.Error()
}
