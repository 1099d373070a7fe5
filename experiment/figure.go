package experiment

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
	"github.com/rdmalab/rdmalab/plot"
)

// load is what one measurement runs. Loads are comparable with ==: figures that need the same load
// share its measurement.
type load interface {
	// label names the load in one line.
	label() string
	// effort estimates the processor time of a measurement, in arbitrary units.
	effort() float64
	// measure runs the load on a platform.
	measure(ctx context.Context, p Platform) (outcome, error)
}

// outcome is the result of a load. Fields that do not apply to the kind of load are zero.
type outcome struct {
	store *StoreResult
	// rate is, for a load without a store, in operations a second or, if bits is true, in bits a
	// second.
	rate float64
	bits bool
	// order is the share of requests by their distance in the order of arrival; see Platform.Order.
	order map[int]float64
	// incast, lookups and counting are the results of loads on servers' memory. For a Lookups,
	// added is the median time of a packet minus the median without a lookup. For a Counting, share
	// is the client's rate divided by its rate without counting. For a rednLargest, which compares
	// its two ways Way and Of, share is the largest ratio of a time by Way to the time by Of.
	incast   *IncastResult
	relief   *ReliefResult
	lookups  *LookupsResult
	counting *CountingResult
	// cached and plain are the results of a Cached with and without rules.
	cached, plain *CachedResult
	solo          *OneRMAResult // result of a load of 1RMA NICs
	chain         *RedNResult   // result of a load of programs made of work requests
	added         time.Duration
	share         float64
	// congestion and scene are the results of loads of congestion control.
	congestion *CongestionResult
	scene      *SceneResult
	// seeds are the outcomes of further seeds of the same load.
	seeds []outcome
}

// figure is a figure of a paper: what is measured for it, and how it is shown.
type figure struct {
	// key selects the figure in --figures. title says what the figure shows.
	key, title string
	// data has the authors' numbers; nil if they give none. A number of data times scale has the
	// unit of the figure; a scale of 0 means 1.
	data  *papers.Figure
	scale float64
	// x and unit are the texts at the axes; "" means those of data. format is the format of numbers;
	// "" means %.4g.
	x, unit, format string
	logY            bool // true: the chart has a logarithmic y axis
	named           bool // true: the figure is measured only if --figures names it
	cells           []figureCell
	// base is the series that gains are relative to; "" means that there are no gains. gains are
	// the columns at which the summary prints gains, in addition to the last column.
	base  string
	gains []string
	// why has the reasons why our numbers differ from the authors', the most important one first.
	why []string
	// inputs says which numbers of the figure are inputs: the model was made from them, so that they
	// come out again, and the figure predicts nothing there.
	inputs []string
}

type figureCell struct {
	// panel is the part of the figure, "" if it has only one. series is the curve, a row of the table.
	panel, series string
	// x is the column, as text.
	x string
	// theirs is the authors' number in the unit of the figure, NaN if they give none. their is the
	// authors' name of the series.
	theirs float64
	their  string
	// value reads our number from the outcome of load. If nothing needs to be measured, load is
	// nil, and our number is in the field known, where 0 means that we have none.
	load  load
	value func(*outcome) float64
	known float64
}

// ours returns a cell with a number of ours for which the authors give none.
func ours(panel, series, x string, l load, value func(*outcome) float64) figureCell {
	return figureCell{panel: panel, series: series, x: x, theirs: math.NaN(), load: l, value: value}
}

func (f *figure) add(list ...figureCell) { f.cells = append(f.cells, list...) }

// at returns the authors' number in the unit of the figure; NaN if they give none.
func (f *figure) at(panel, series, column string) float64 {
	return at(f.data, panel, series, column, cmp.Or(f.scale, 1))
}

func (f *figure) axes() (x, unit string) {
	if f.data == nil {
		return f.x, f.unit
	}
	return cmp.Or(f.x, f.data.X), cmp.Or(f.unit, f.data.Unit)
}

// pairs yields all pairs of an element of the slice `as` and one of the slice bs: first the pairs
// with the first element of `as`, in the order of bs, and so on.
func pairs[A, B any](as []A, bs []B) iter.Seq2[A, B] {
	return func(yield func(A, B) bool) {
		for _, a := range as {
			for _, b := range bs {
				if !yield(a, b) {
					return
				}
			}
		}
	}
}

// at returns the authors' number of a data file, multiplied by scale; NaN if they give none.
func at(f *papers.Figure, panel, series, column string, scale float64) float64 {
	if v, ok := f.At(panel, series, column); ok {
		return v * scale
	}
	return math.NaN()
}

// ours returns the number that this project measured for a cell, or NaN if there is none.
func (c *figureCell) ours(done map[load]outcome) float64 {
	if c.load == nil {
		return cmp.Or(c.known, math.NaN())
	}
	o, ok := done[c.load]
	if !ok {
		return math.NaN()
	}
	mean, _, _ := o.mean(c.value)
	return mean
}

// figureRow is a series of a panel; their is the authors' name of it. ours and theirs have a number
// for each column of the figure, NaN if there is none. store is true if a load ran clients of a
// store; failed counts their operations that failed.
type figureRow struct {
	panel, series, their string
	ours, theirs         []float64
	failed               uint64
	store                bool
}

// namedValue is a number of an outcome, with the name of its panel or series.
type namedValue struct {
	name  string
	value func(*outcome) float64
}

// columns lists the values of x in the order in which the cells have them. If all are numbers, they
// are sorted.
func (f *figure) columns() (list []string) {
	for i := range f.cells {
		if !slices.Contains(list, f.cells[i].x) {
			list = append(list, f.cells[i].x)
		}
	}
	slices.SortStableFunc(list, func(a, b string) int {
		x, errX := strconv.ParseFloat(a, 64)
		y, errY := strconv.ParseFloat(b, 64)
		if errX != nil || errY != nil {
			return 0
		}
		return cmp.Compare(x, y)
	})
	return list
}

func (f *figure) rows(done map[load]outcome) (rows []*figureRow) {
	columns := f.columns()
	for i := range f.cells {
		c := &f.cells[i]
		k := slices.IndexFunc(rows, func(r *figureRow) bool { return r.panel == c.panel && r.series == c.series })
		if k < 0 {
			k = len(rows)
			rows = append(rows, &figureRow{
				panel: c.panel, series: c.series, their: c.their, ours: nothing(len(columns)), theirs: nothing(len(columns)),
			})
		}
		r, x := rows[k], slices.Index(columns, c.x)
		r.ours[x], r.theirs[x] = c.ours(done), c.theirs
		if o, ok := done[c.load]; ok && o.store != nil {
			r.store = true
			r.failed += o.store.failures()
			for i := range o.seeds {
				r.failed += o.seeds[i].store.failures()
			}
		}
	}
	return rows
}

func nothing(n int) []float64 { return slices.Repeat([]float64{math.NaN()}, n) }

// judge makes the report fail if operations of a load have failed, or if its run was not in steady
// state. In a load with steps, clients come and go.
func (f *figure) judge(r *Report, quick bool, done map[load]outcome) {
	one := []figure{*f}
	for _, l := range loads(one) {
		o, ok := done[l]
		for _, o := range append([]outcome{o}, o.seeds...) {
			if ok && o.store != nil {
				o.store.judge(r, quick || len(o.store.Steps) > 1, l.label())
			}
			if why := o.failure(); why != "" {
				r.fail("%s: %s", l.label(), why)
			}
		}
	}
}

// failure says which operations of a load without a store have failed; "" means that none has.
// Operations that a protocol refuses, and that are tried again, have not failed.
func (o *outcome) failure() string {
	switch {
	case o.lookups != nil && o.lookups.Wrong+o.lookups.Lost > 0:
		return fmt.Sprintf("%d packets were changed in a wrong way, %d were lost", o.lookups.Wrong, o.lookups.Lost)
	case o.cached != nil && o.cached.bad()+o.plain.bad() != "":
		return fmt.Sprintf("with cache: %q; without: %q", o.cached.bad(), o.plain.bad())
	case o.scene != nil:
		return unsteadyScene(o.scene)
	case o.solo != nil && o.solo.Rack != nil:
		failed := 0.0
		for i := range o.solo.Rack.Phases {
			failed += o.solo.Rack.Phases[i].Failed
		}
		if failed > 0 {
			return fmt.Sprintf("%.0f GETs failed", failed)
		}
	}
	return ""
}

func (f *figure) report(p Platform, done map[load]outcome) *Report {
	_, unit := f.axes()
	r := &Report{Experiment: "figure " + f.key, Figure: f.title + "; " + unit, On: p.On(), Rows: []Row{}}
	rows, columns := f.rows(done), f.columns()
	panels := slices.ContainsFunc(rows, func(w *figureRow) bool { return w.panel != "" })
	stores := slices.ContainsFunc(rows, func(w *figureRow) bool { return w.store })
	var list []Column
	if panels {
		list = append(list, Column{Key: "panel", Title: "PANEL", Repeats: true})
	}
	list = append(list, Column{Key: "series", Title: "SERIES"})
	for _, x := range columns {
		list = append(list, Column{Key: x, Title: x, Format: cmp.Or(f.format, "%.4g")})
	}
	if stores {
		list = append(list, Column{Key: "failed", Title: "FAILED"})
	}
	compared := slices.ContainsFunc(rows, func(w *figureRow) bool { _, ok := w.compare(columns); return ok })
	if compared {
		list = append(list, comparisonColumns...)
	}
	r.Columns(list...)
	for _, w := range rows {
		var cells []Cell
		if panels {
			cells = append(cells, Label(w.panel))
		}
		cells = append(cells, Label(w.series))
		for k := range columns {
			cells = append(cells, cellOf(w.ours[k], w.theirs[k]))
		}
		if stores {
			cells = append(cells, Num(float64(w.failed)))
		}
		if c, ok := w.compare(columns); ok {
			cells = append(cells, Num(c.first), Num(c.last), Num(c.mean), Num(c.shape))
		} else if compared {
			cells = append(cells, None(), None(), None(), None())
		}
		r.Add(cells...)
	}
	r.Chart, r.Summary = f.chart(rows, columns), f.summary(rows, columns)
	return r
}

var comparisonColumns = []Column{
	{Key: "ratioFirst", Title: "OURS/THEIRS: FIRST", Format: "%.2f"},
	{Key: "ratioLast", Title: "LAST", Format: "%.2f"},
	{Key: "ratioMean", Title: "MEAN", Format: "%.2f"},
	{Key: "shapePercent", Title: "SHAPE ±%", Format: "%.0f"},
}

// cellOf returns a cell with our number beside the authors'. NaN stands for a number that is not
// known.
func cellOf(ours, theirs float64) Cell {
	if math.IsNaN(theirs) {
		theirs = 0
	}
	if math.IsNaN(ours) {
		return Theirs(theirs)
	}
	return Beside(ours, theirs)
}

// chart draws the rows. Our series are solid lines. The authors' are dashed, in the colour of the
// first of our series that is compared with them.
func (f *figure) chart(rows []*figureRow, columns []string) *plot.Chart {
	x, unit := f.axes()
	c := &plot.Chart{Title: "Figure " + f.key + ": " + f.title, X: x, Y: unit, LogY: f.logY}
	xs := make([]float64, len(columns))
	for i, x := range columns {
		v, err := strconv.ParseFloat(x, 64)
		if err != nil {
			c.Names = columns
			break
		}
		xs[i] = v
	}
	for i := range c.Names {
		xs[i] = float64(i)
	}
	var names []string
	for _, w := range rows {
		color := slices.Index(names, w.series)
		if color < 0 {
			color, names = len(names), append(names, w.series)
		}
		k := slices.IndexFunc(c.Panels, func(p plot.Panel) bool { return p.Title == w.panel })
		if k < 0 {
			k, c.Panels = len(c.Panels), append(c.Panels, plot.Panel{Title: w.panel})
		}
		p := &c.Panels[k]
		if line := lineOf(w.series, color, false, xs, w.ours); len(line.Points) > 0 {
			p.Series = append(p.Series, line)
		}
		name := cmp.Or(w.their, w.series)
		if !strings.HasPrefix(name, "authors") {
			name = "authors: " + name
		}
		drawn := slices.ContainsFunc(p.Series, func(s plot.Series) bool { return s.Name == name })
		if line := lineOf(name, color, true, xs, w.theirs); len(line.Points) > 0 && !drawn {
			p.Series = append(p.Series, line)
		}
	}
	return c
}

// lineOf makes a line of those numbers that are known.
func lineOf(name string, color int, dashed bool, xs, ys []float64) plot.Series {
	s := plot.Series{Name: name, Color: color, Dashed: dashed}
	for i, y := range ys {
		if !math.IsNaN(y) {
			s.Points = append(s.Points, plot.Point{X: xs[i], Y: y})
		}
	}
	return s
}

// loads lists the loads of figures, each once.
func loads(figures []figure) (list []load) {
	seen := make(map[load]bool)
	for i := range figures {
		for k := range figures[i].cells {
			if l := figures[i].cells[k].load; l != nil && !seen[l] {
				seen[l] = true
				list = append(list, l)
			}
		}
	}
	return list
}

func (l Clover) label() string {
	steer := "not steered"
	if l.Switch.Steer != "" {
		steer = fmt.Sprintf("steer %s, %s", l.Switch.Steer, l.Switch.Mode0())
	}
	out := fmt.Sprintf("Clover, %d clients, %g%% writes, Zipf %g, %s", l.Clients, l.Writes, l.Zipf, steer)
	if l.Switch.Hot > 0 {
		out += fmt.Sprintf(", %d keys", l.Switch.Hot)
	}
	if l.Value > 0 {
		out += fmt.Sprintf(", values of %d bytes", l.Value)
	}
	if l.Servers > 1 {
		out += fmt.Sprintf(", %d servers", l.Servers)
	}
	return out
}

// effort is the number of clients times the number and the length of the runs, because simulating a
// request takes about the same time for all loads. Steering multiplies it by a factor that falls
// from 1.5 for reads alone to 0.8 for writes alone.
func (l Clover) effort() float64 {
	each := float64(cmp.Or(l.Warm+l.Run, DefaultWarm+DefaultRun)) / float64(DefaultWarm+DefaultRun)
	if l.Switch.Steer != "" {
		each *= 1.5 - 0.7*l.Writes/100
	}
	return each * float64(l.Clients)
}

func (l Clover) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Clover(ctx, l)
	return outcome{store: &res}, err
}

func (l Sherman) label() string {
	name := "Sherman"
	if l.Step == "" && l.Locks != "" {
		return l.name()
	}
	if l.Step != "" {
		name = l.Step + ", " + l.Workload.Name
	}
	return fmt.Sprintf("%s, %d clients, %g%% writes, Zipf %g", name, l.Clients, 100*l.Workload.Update, l.Zipf)
}

func (l Sherman) effort() float64 { return float64(l.Clients) }

func (l Sherman) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Sherman(ctx, l)
	return outcome{store: &res}, err
}

func (l Fusee) label() string {
	out := fmt.Sprintf("FUSEE, %d clients, workload %s, Zipf %g", l.Clients, l.Workload.Name, l.Zipf)
	if l.Value > 0 {
		out += fmt.Sprintf(", values of %d bytes, %d servers, replicas %d and %d", l.Value, l.Servers, l.Replicas, l.IndexReplicas)
	}
	switch {
	case l.NoCache:
		out += ", no cache"
	case l.Threshold > 0:
		out += fmt.Sprintf(", threshold %.2g", l.Threshold)
	}
	if l.Switch.Action != "" {
		out += ", atomics replaced, misses: " + cmp.Or(l.Switch.Misses, "server")
	}
	if l.Own {
		out += ", own keys"
	}
	if l.Visit.Guests > 0 {
		out += fmt.Sprintf(", %d guests", l.Visit.Guests)
	}
	return out
}

func (l Fusee) effort() float64 { return float64(l.Clients + l.Visit.Guests) }

func (l Fusee) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Fusee(ctx, l)
	return outcome{store: &res}, err
}

func (l Words) label() string {
	how := "not replaced"
	if l.Switch.Action == ReplaceAtomics {
		how = "replaced, " + l.Switch.Mode0()
	}
	return fmt.Sprintf("CAS on one word, %d clients, %s", l.Clients, how)
}

func (l Words) effort() float64 { return 0.1 * float64(l.Clients) }

func (l Words) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Words(ctx, l)
	return outcome{rate: res.CAS}, err
}

// mops returns the rate of an outcome in millions of operations a second.
func (o *outcome) mops() float64 {
	if o.store != nil {
		return o.store.Throughput() / 1e6
	}
	return o.rate / 1e6
}
