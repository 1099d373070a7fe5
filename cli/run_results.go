package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/plot"
	"github.com/rdmalab/rdmalab/plot/export"
	"github.com/rdmalab/rdmalab/store/kv"
)

// record is a line of a file of results: one run of a sweep.
type record struct {
	At    time.Time `json:"at"`
	Round int       `json:"round"`
	// Flags holds all flags of the run that decide what is measured, whether they were typed or
	// have their defaults.
	Flags  map[string]string `json:"flags"`
	Build  versionInfo       `json:"build"`
	Report *runReport        `json:"report,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// key returns a text that is different for each run of a sweep.
func (r *record) key() string { return fmt.Sprint(r.Round, r.Flags) } // maps are printed in the order of their keys

// maxResults bounds a file of results in bytes.
const maxResults = 256 << 20

// readRecords reads the runs of a file that have not failed.
func readRecords(name string) ([]record, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxResults {
		return nil, fmt.Errorf("%s: want a file of `rdmalab run sweep`, of at most %d MiB", name, maxResults>>20)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	list, err := parseRecords(name, data)
	list = slices.DeleteFunc(list, func(r record) bool { return r.Error != "" || r.Report == nil })
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s has no result", name)
	}
	return list, err
}

func parseRecords(name string, data []byte) (list []record, err error) {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		var r record
		if err := json.Unmarshal(text, &r); err != nil || r.Flags == nil {
			if !bytes.HasSuffix(text, []byte("\n")) {
				break // the sweep was killed while it wrote this line
			}
			return nil, fmt.Errorf("%s, line %d: no result of `rdmalab run sweep`", name, line)
		}
		list = append(list, r)
	}
	return list, nil
}

// measure is a number that compare and plot can show: its name on the command line, its title in
// their output, and the function that takes it from a report.
type measure struct {
	name, title string
	of          func(r *runReport) float64
}

// latency returns the measure for a percentile of one kind of operations. Its value is NaN if there
// are none.
func latency(kind, p string, of func(l *kv.Latency) float64) measure {
	return measure{name: kind + "-" + p, title: kind + " " + p + ", usec", of: func(r *runReport) float64 {
		for i := range r.Latencies {
			if r.Latencies[i].Kind == kind {
				return of(&r.Latencies[i])
			}
		}
		return math.NaN()
	}}
}

// measures lists what compare and plot can show. The first is the default of plot.
func measures() []measure {
	list := []measure{
		{"ops", "operations a second", func(r *runReport) float64 { return r.Throughput }},
		{"rtts", "round trips an operation", func(r *runReport) float64 { return r.RTTsPerOp }},
		{"packets", "packets an operation", func(r *runReport) float64 { return r.PacketsPerOp }},
		{"bytes", "bytes an operation", func(r *runReport) float64 { return r.BytesPerOp }},
	}
	for _, kind := range []string{"read", "update", "insert", "scan", "read-modify-write", "delete", "queue"} {
		list = append(list, latency(kind, "p50", func(l *kv.Latency) float64 { return l.P50 }), latency(kind, "p99", func(l *kv.Latency) float64 { return l.P99 }))
	}
	for _, p := range kv.Phases() {
		list = append(list, measure{strings.ReplaceAll(p.String(), " ", "-"), p.String() + ", usec an operation", func(r *runReport) float64 {
			if len(r.Breakdown) == 0 {
				return math.NaN()
			}
			return r.phaseUsec(p)
		}})
	}
	return list
}

func findMeasure(name string) (measure, error) {
	var names []string
	for _, m := range measures() {
		if m.name == name {
			return m, nil
		}
		names = append(names, m.name)
	}
	return measure{}, fmt.Errorf("unknown measure %.30q: %swant one of %s", name, nearest.Meant(name, names), strings.Join(names, " "))
}

// varying lists the flags whose values differ between runs. It leaves out the flag named `except`.
func varying(except string, lists ...[]record) (names []string) {
	first, seen := map[string]string{}, map[string]bool{}
	for _, list := range lists {
		for i := range list {
			for name, v := range list[i].Flags {
				if was, ok := first[name]; !ok {
					first[name] = v
				} else if was != v && name != except && !seen[name] {
					seen[name] = true
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

func (r *record) label(names []string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n + " " + cmp.Or(r.Flags[n], "-")
	}
	return strings.Join(parts, ", ")
}

// group collects the values of a measure by label, the text of the named flags' values. labels has
// the labels in the order of their first runs.
func group(list []record, names []string, m measure) (labels []string, values map[string][]float64) {
	values = map[string][]float64{}
	for i := range list {
		l := list[i].label(names)
		if _, ok := values[l]; !ok {
			labels = append(labels, l)
			values[l] = nil
		}
		if v := m.of(list[i].Report); !math.IsNaN(v) {
			values[l] = append(values[l], v)
		}
	}
	return labels, values
}

func compareCmd() *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:   "compare A [B]",
		Short: "Compare the results of two sweeps, or show those of one",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var lists [][]record
			for _, name := range args {
				list, err := readRecords(name)
				if err != nil {
					return asUse(err)
				}
				lists = append(lists, list)
			}
			return compare(cmd, args, lists, names)
		},
	}
	cmd.Flags().StringSliceVar(&names, "measure", []string{"ops", "read-p50", "read-p99", "update-p99"}, "measures to compare, of the list above, separated by commas")
	return cmd
}

func compare(cmd *cobra.Command, files []string, lists [][]record, names []string) error {
	flags := varying("", lists...)
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(w, "MEASURE\tRUN")
	for _, f := range files {
		_, _ = fmt.Fprintf(w, "\t%s\tMIN-MAX (N)", f)
	}
	if len(files) == 2 {
		_, _ = fmt.Fprint(w, "\tRATIO")
	}
	_, _ = fmt.Fprintln(w)
	for _, name := range names {
		m, err := findMeasure(name)
		if err != nil {
			return asUse(err)
		}
		var values []map[string][]float64
		var order []string
		for _, list := range lists {
			labels, v := group(list, flags, m)
			for _, l := range labels {
				if !slices.Contains(order, l) {
					order = append(order, l)
				}
			}
			values = append(values, v)
		}
		for _, l := range order {
			if !slices.ContainsFunc(values, func(v map[string][]float64) bool { return len(v[l]) > 0 }) {
				continue
			}
			_, _ = fmt.Fprintf(w, "%s\t%s", m.title, cmp.Or(l, "all"))
			for _, v := range values {
				_, _ = fmt.Fprint(w, "\t"+summary(v[l]))
			}
			if len(values) == 2 {
				_, _ = fmt.Fprint(w, "\t"+ratio(experiment.Median(values[1][l]), experiment.Median(values[0][l])))
			}
			_, _ = fmt.Fprintln(w)
		}
	}
	return w.Flush()
}

// summary returns two columns: the median, and the range with the number of values.
func summary(list []float64) string {
	if len(list) == 0 {
		return "-\t-"
	}
	return fmt.Sprintf("%s\t%s-%s (%d)", number(experiment.Median(list)), number(slices.Min(list)), number(slices.Max(list)), len(list))
}

func number(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, 2-int(math.Log10(max(1, x)))), 64)
}

func ratio(b, a float64) string {
	if math.IsNaN(a) || math.IsNaN(b) || a == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", b/a)
}

func plotCmd() *cobra.Command {
	var out, x, y string
	cmd := &cobra.Command{
		Use:   "plot FILE -w PICTURE.svg [--x FLAG] [--y MEASURE]",
		Short: "Draw the results of a sweep as a picture",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := pictureFile(out); err != nil {
				return err
			}
			list, err := readRecords(args[0])
			if err != nil {
				return asUse(err)
			}
			m, err := findMeasure(y)
			if err != nil {
				return asUse(err)
			}
			chart, err := chartOf(list, x, m)
			if err != nil {
				return asUse(err)
			}
			return writePicture(out, chart.SVG())
		},
	}
	cmd.Flags().StringVar(&x, "x", "clients", "the flag of rdmalab run ycsb whose values are on the x axis")
	cmd.Flags().StringVar(&y, "y", "ops", "the measure on the y axis, one of those that rdmalab run compare --help lists")
	cmd.Flags().StringVarP(&out, "write", "w", "", "picture to write: its suffix is .svg, .pdf or .png (required)")
	_ = cmd.MarkFlagRequired("write") // the flag exists
	writesFile(cmd, "write")
	return cmd
}

// pictureFile refuses names of pictures in formats that export does not write.
func pictureFile(name string) error {
	if export.Known(name) {
		return nil
	}
	return badUse("-w %s: write a name with one of the suffixes %s, like -w %s.pdf", name, strings.Join(export.Formats, " "), strings.TrimSuffix(name, filepath.Ext(name)))
}

// writePicture writes an SVG picture to a file, in the format of the file's suffix.
func writePicture(name string, svg []byte) error {
	picture, err := export.Picture(name, svg)
	if err != nil {
		return err
	}
	return os.WriteFile(name, picture, 0o644)
}

// chartOf draws the medians of a measure over the values of flag x. If the values are not numbers,
// the axis has their names.
func chartOf(list []record, x string, m measure) (*plot.Chart, error) {
	var names []string
	numeric := true
	for i := range list {
		v, ok := list[i].Flags[x]
		if !ok {
			return nil, fmt.Errorf("--x %.30q is no flag of run", x)
		}
		if !slices.Contains(names, v) {
			names = append(names, v)
		}
		_, err := strconv.ParseFloat(v, 64)
		numeric = numeric && err == nil
	}
	others := varying(x, list)
	panel := plot.Panel{}
	labels, _ := group(list, others, m)
	for n, label := range labels {
		s := plot.Series{Name: cmp.Or(label, m.title), Color: n}
		for i, name := range names {
			own := slices.DeleteFunc(slices.Clone(list), func(r record) bool { return r.Flags[x] != name || r.label(others) != label })
			_, values := group(own, others, m)
			p := plot.Point{X: float64(i), Y: experiment.Median(values[label])}
			if numeric {
				p.X, _ = strconv.ParseFloat(name, 64) // no error: all values of x are numbers
			}
			s.Points = append(s.Points, p)
			if rounds := values[label]; len(rounds) > 1 {
				s.Bars = append(s.Bars, plot.Bar{X: p.X, Low: slices.Min(rounds), High: slices.Max(rounds)})
			}
		}
		slices.SortFunc(s.Points, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
		panel.Series = append(panel.Series, s)
	}
	c := &plot.Chart{Title: m.title, X: x, Y: m.title, Panels: []plot.Panel{panel}}
	if !numeric {
		c.Names = names
	}
	return c, nil
}
