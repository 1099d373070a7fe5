// Package papers has the numbers that authors of papers have published, as data files. Each number
// is in one place, with its source. Experiments print them beside the measured numbers.
//
// A file is CSV. Comment lines at its beginning describe it: the first is the title, the others are
// `key: value` with the keys source, x, unit and note (which may occur several times). The header
// has the columns panel and series, and then the values of x; an empty field is a number that the
// authors do not give.
package papers

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed swordbox/*.csv fusee/*.csv extmem/*.csv onerma/*.csv redn/*.csv
var files embed.FS

const suffix = ".csv"

// Figure has the numbers of a figure or table of a paper.
type Figure struct {
	// Name is the path of the data file without its suffix, such as swordbox/fig11.
	Name string
	// Title says what was measured. Source says where the numbers are from.
	Title, Source string
	// X says what varies from column to column. Unit says the unit of the numbers.
	X, Unit string
	// Notes are remarks about some of the numbers.
	Notes []string
	// Columns are the values of X, as text because some are names.
	Columns []string
	Rows    []Row
}

// Row is a series of a figure, in one of its panels.
type Row struct {
	Panel, Series string
	// Values has a number for each column; NaN: the authors give none.
	Values []float64
}

// Load reads a data file by name.
func Load(name string) (*Figure, error) {
	text, err := files.ReadFile(name + suffix)
	if err != nil {
		return nil, fmt.Errorf("there are no published numbers %.60q", name)
	}
	return Parse(name, text)
}

// MustLoad is Load for a constant name; it panics if the file cannot be loaded. A test loads every
// file.
func MustLoad(name string) *Figure {
	f, err := Load(name)
	if err != nil {
		panic("papers: " + err.Error())
	}
	return f
}

// Parse parses the text of a data file. name is used in error messages.
func Parse(name string, text []byte) (*Figure, error) {
	f := &Figure{Name: name}
	body, err := f.head(text)
	if err != nil {
		return nil, err
	}
	in := csv.NewReader(bytes.NewReader(body))
	in.Comment = '#'
	lines, err := in.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(lines) < 2 || len(lines[0]) < 3 || lines[0][0] != "panel" || lines[0][1] != "series" {
		return nil, fmt.Errorf("%s: want a header panel,series,… and at least one line of numbers", name)
	}
	f.Columns = lines[0][2:]
	for _, line := range lines[1:] {
		row := Row{Panel: line[0], Series: line[1]}
		for _, field := range line[2:] {
			v := math.NaN()
			if field != "" {
				if v, err = strconv.ParseFloat(field, 64); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
					return nil, fmt.Errorf("%s: %s %s: %.20q is not a number", name, row.Panel, row.Series, field)
				}
			}
			row.Values = append(row.Values, v)
		}
		f.Rows = append(f.Rows, row)
	}
	return f, nil
}

// head parses the comment lines at the beginning, and returns the rest.
func (f *Figure) head(text []byte) ([]byte, error) {
	scan := bufio.NewScanner(bytes.NewReader(text))
	read := 0
	for scan.Scan() {
		line, comment := strings.CutPrefix(scan.Text(), "#")
		if !comment {
			break
		}
		read += len(scan.Bytes()) + 1
		line = strings.TrimSpace(line)
		if f.Title == "" {
			f.Title = line
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "source":
			f.Source = value
		case "x":
			f.X = value
		case "unit":
			f.Unit = value
		case "note":
			f.Notes = append(f.Notes, value)
		default:
			return nil, fmt.Errorf("%s: the key %.20q is unknown; use source, x, unit or note", f.Name, key)
		}
	}
	if f.Title == "" || f.Source == "" || f.X == "" || f.Unit == "" {
		return nil, fmt.Errorf("%s: title, source, x or unit is missing", f.Name)
	}
	return text[min(read, len(text)):], scan.Err()
}

// At returns the number of a series in a column; false if the authors give none.
func (f *Figure) At(panel, series, column string) (float64, bool) {
	k := slices.Index(f.Columns, column)
	for i := range f.Rows {
		r := &f.Rows[i]
		if k >= 0 && r.Panel == panel && r.Series == series && !math.IsNaN(r.Values[k]) {
			return r.Values[k], true
		}
	}
	return 0, false
}

// Near returns the number of a series in the column whose value of X is nearest to x; false if the
// authors give none for the series.
func (f *Figure) Near(panel, series string, x float64) (v float64, ok bool) {
	best := math.Inf(1)
	for _, c := range f.Columns {
		n, err := strconv.ParseFloat(c, 64)
		if err != nil || math.Abs(n-x) >= best {
			continue
		}
		if found, has := f.At(panel, series, c); has {
			v, ok, best = found, true, math.Abs(n-x)
		}
	}
	return v, ok
}
