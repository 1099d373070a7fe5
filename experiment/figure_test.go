package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment/papers"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/swordbox/chipcost"
)

// fakePlatform answers each load of Clover with a throughput that depends on the number of threads,
// and counts the loads.
type fakePlatform struct {
	Platform
	mu    sync.Mutex
	loads map[Clover]int
	fail  func(Clover) error
	// of makes the result of a load; nil: it depends on the number of clients alone.
	of func(Clover) StoreResult
}

func (*fakePlatform) On() string       { return OnSim }
func (*fakePlatform) Describe() string { return "fake" }

func (p *fakePlatform) Clover(_ context.Context, l Clover) (StoreResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loads == nil {
		p.loads = make(map[Clover]int)
	}
	p.loads[l]++
	out := StoreResult{Result: kv.Result{Failed: 1, Span: 1e9}}
	out.Ops[kv.KindRead] = uint64(l.Clients) * 1e6
	if p.of != nil {
		out = p.of(l)
	}
	if p.fail != nil {
		return out, p.fail(l)
	}
	return out, nil
}

// fakeFigure is a figure with one series whose numbers depend on the number of threads.
func fakeFigure(series string, theirs func(threads int) float64) figure {
	f := figure{key: "x", title: "a title", unit: "Mops", base: unsteered}
	for _, n := range []int{28, 7, 14} {
		f.cells = append(f.cells, figureCell{
			panel: "p", series: series, their: series, x: fmt.Sprint(n), theirs: theirs(n), load: Clover{Clients: n}, value: (*outcome).mops,
		})
	}
	return f
}

// A figure's table has our number beside the authors' in each cell, in the order of the columns,
// with the failed operations and the ratios.
func TestFigureTable(t *testing.T) {
	p := new(fakePlatform)
	f := fakeFigure("s", func(n int) float64 { return 2 * float64(n) })
	f.cells = append(f.cells, figureCell{panel: "p", series: "theirs alone", x: "7", theirs: 5}, figureCell{panel: "p", series: "known", x: "7", known: 3, theirs: math.NaN()})
	done, err := measureAll(t.Context(), p, nil, loads([]figure{f, f}))
	if err != nil || len(p.loads) != 3 {
		t.Fatalf("%v: %v", err, p.loads)
	}
	for l, n := range p.loads {
		if n != 1 {
			t.Errorf("%v was measured %d times", l, n)
		}
	}
	var b strings.Builder
	r := f.report(p, done)
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"PANEL  SERIES        7 (PAPER)  14 (PAPER)  28 (PAPER)  FAILED  OURS/THEIRS: FIRST  LAST  MEAN  SHAPE ±%\n",
		"p      s             7 (14)     14 (28)     28 (56)     3       0.50                0.50  0.50  0\n",
		"       theirs alone  - (5)      -           -           0       -                   -     -     -\n",
		"       known         3          -           -           0       -                   -     -     -\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in\n%s", want, b.String())
		}
	}
	// The marks of the first colour are circles, those of others closed paths.
	svg := string(r.Chart.SVG())
	if marks := strings.Count(svg, "<circle") + strings.Count(svg, `Z" fill="`); marks != 3*2+2+3*4 {
		t.Errorf("%d marks", marks)
	}
}

// A failed measurement ends the others; the table has the numbers of those that ended before.
func TestFailedMeasurement(t *testing.T) {
	broken := errors.New("broken")
	p := &fakePlatform{fail: func(l Clover) error {
		if l.Clients == 14 {
			return broken
		}
		return nil
	}}
	f := fakeFigure("s", func(int) float64 { return 1 })
	done, err := measureAll(t.Context(), p, nil, loads([]figure{f}))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "14 clients") || len(done) == 3 {
		t.Errorf("%v, %d results", err, len(done))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := measureAll(ctx, p, nil, loads([]figure{f})); !errors.Is(err, context.Canceled) || len(done) != 0 {
		t.Errorf("%v, %d results", err, len(done))
	}
}

// The comparison of a row has the ratios at both ends and how much its shape differs from the
// authors'.
func TestComparison(t *testing.T) {
	nan := math.NaN()
	w := figureRow{ours: []float64{nan, 2, 1, 4, 0}, theirs: []float64{1, 1, 1, 1, nan}}
	c, ok := w.compare([]string{"1", "2", "3", "4", "5"})
	if !ok || c.first != 2 || c.last != 4 || math.Abs(c.mean-2) > 1e-9 || math.Abs(c.shape-100) > 1e-9 || !c.far {
		t.Errorf("%+v %v", c, ok)
	}
	if _, ok := (&figureRow{ours: []float64{1}, theirs: []float64{nan}}).compare([]string{"1"}); ok {
		t.Error("there is nothing to compare")
	}
	same := figureRow{ours: []float64{1, 1.1}, theirs: []float64{1, 1}}
	if c, _ := same.compare([]string{"1", "2"}); c.far {
		t.Errorf("%+v", c)
	}
}

// The summary has an overview in one line, what is an input, our gains beside the authors', and reasons
// only if numbers differ.
func TestSummary(t *testing.T) {
	columns := []string{"7", "280", "392"}
	base := &figureRow{series: unsteered, their: unsteered, ours: []float64{1, 1, 2}, theirs: []float64{1, 1, 2}}
	steered := &figureRow{series: "both", their: "both", ours: []float64{1, 30, 40}, theirs: []float64{0.5, 32, 45}}
	f := figure{base: unsteered, gains: []string{"280"}, why: []string{"because", "and because"}, inputs: []string{"column 7"}}
	got := f.summary([]*figureRow{base, steered}, columns)
	want := []string{
		"ours ÷ theirs 1.00 to 2.00 at the first point, 0.89 to 1.00 at the last; shape ±0 to 69 %; " +
			"crossing, Clover and both: ours never, theirs between 7 and 280; why: because",
		"input: column 7",
		"gain over Clover, both: at 280 30 (theirs 32), at 392 20 (theirs 22.5)",
		"why: and because",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	steered.ours[0], steered.theirs[0] = 0.5, 0.5
	if got := f.summary([]*figureRow{base, steered}, columns); len(got) != 3 || !strings.HasSuffix(got[0], ", as theirs; no number differs by more than 15 %") {
		t.Errorf("got %q", got)
	}
}

// Every figure's summary begins with a line that compares it as a whole, also if there is one series,
// nothing differs, or only one side has numbers.
func TestOverview(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		rows []*figureRow
		why  []string
		want string
	}{
		{[]*figureRow{{ours: []float64{1.1, 1}, theirs: []float64{1, 1}}}, nil, "ours ÷ theirs 1.10 at the first point, 1.00 at the last; shape ±5 %; no number differs by more than 15 %"},
		{[]*figureRow{{ours: []float64{3, nan}, theirs: []float64{1, 1}}}, nil, "ours ÷ theirs 3.00 at the first point, 3.00 at the last; shape ±0 %; why they differ is not known"},
		{[]*figureRow{{ours: []float64{nan, nan}, theirs: []float64{1, 1}}}, []string{"because"}, "not measured"},
		{[]*figureRow{{ours: []float64{1, 1}, theirs: []float64{nan, nan}}}, nil, "the authors give no numbers"},
		{[]*figureRow{{ours: []float64{1, nan}, theirs: []float64{nan, 1}}}, []string{"because"}, "no number of ours stands beside one of the authors"},
	} {
		f := figure{why: tc.why}
		if got := f.summary(tc.rows, []string{"1", "2"}); !slices.Equal(got, []string{tc.want}) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	// If the authors give shapes alone, notes say which.
	f := figure{why: []string{"curves", "hosts"}}
	got := f.summary([]*figureRow{{ours: []float64{1}, theirs: []float64{nan}}}, []string{"1"})
	if want := []string{noNumbers, "note: curves", "note: hosts"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// A figure without any measurement has the line, too, so summary.txt names every figure.
	for _, f := range swordbox(false) {
		if got := f.report(new(fakePlatform), nil).Summary; len(got) == 0 {
			t.Errorf("figure %s has no summary", f.key)
		}
	}
}

// No two loads of the figures are the same, and the longest come first, so that only short ones run
// while some processors are idle.
func TestLoadsAreOrdered(t *testing.T) {
	list := longestFirst(loads(swordbox(false)))
	labels := make(map[string]bool)
	for i, l := range list {
		if labels[l.label()] {
			t.Errorf("%s is measured twice", l.label())
		}
		labels[l.label()] = true
		if i > 0 && l.effort() > list[i-1].effort() {
			t.Errorf("%s comes after %s, which takes less", l.label(), list[i-1].label())
		}
		if c, ok := l.(Clover); ok && c.Writes == 100 && c.Switch.Steer == steerWrite {
			t.Errorf("%s: without READs it is the same as with steered READs", l.label())
		}
	}
	if first, ok := list[0].(Clover); !ok || first.Clients < 300 {
		t.Errorf("the first load is %s", list[0].label())
	}
}

// A figure with a load whose operations failed, or that was not in steady state, makes the report
// fail, which says which load it was and why. With --quick only failed operations do.
func TestFiguresOfUnsteadyLoadsFail(t *testing.T) {
	result := func(first, second, failed uint64) StoreResult {
		r := StoreResult{Result: kv.Result{Span: time.Second, Halves: [2]uint64{first, second}, Failed: failed, FirstError: "retries exceeded"}}
		r.Ops[kv.KindUpdate] = first + second
		return r
	}
	for name, c := range map[string]struct {
		res   StoreResult
		quick bool
		want  string
	}{
		"steady":         {result(1e6, 1.05e6, 0), false, ""},
		"slower":         {result(1e6, 8e5, 0), false, "not steady: 1000000 operations in the first half, 800000 in the second"},
		"slower, quick":  {result(1e6, 8e5, 0), true, ""},
		"failed, quick":  {result(1e6, 1e6, 3), true, "3 operations failed: retries exceeded"},
		"none succeeded": {result(0, 0, 0), false, "not steady: no operation succeeded"},
	} {
		p := &fakePlatform{of: func(Clover) StoreResult { return c.res }}
		l := Clover{Clients: 7, Writes: 50}
		b := figuresBody{quick: c.quick, list: []figure{{key: "k", x: "clients", unit: "Mops"}}}
		b.list[0].add(ours("", "s", "7", l, (*outcome).mops))
		var r Report
		if err := b.Run(t.Context(), p, &r); err != nil {
			t.Fatal(err)
		}
		switch err := r.Err(); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), l.label())):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every figure of the paper has cells with numbers of the authors, and loads; --quick has fewer.
func TestSwordboxFigures(t *testing.T) {
	all, quick := swordbox(false), swordbox(true)
	for i := range all {
		f := &all[i]
		theirs := 0
		for k := range f.cells {
			if c := &f.cells[k]; !math.IsNaN(c.theirs) {
				theirs++
			}
		}
		// The authors do not say how many requests their metadata server answers.
		if x, unit := f.axes(); f.title == "" || unit == "" || x == "" || (theirs == 0) != (f.key == "metadata") || f.base != "" && len(f.why) == 0 {
			t.Errorf("figure %s lacks something: %d numbers of the authors", f.key, theirs)
		}
	}
	if n, m := len(loads(all)), len(loads(quick)); m == 0 || m > n/2 {
		t.Errorf("%d loads, %d with --quick", n, m)
	}
	for _, bad := range []string{"0", "eleven"} {
		b := &figuresBody{all: swordbox}
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		b.Flags(fs)
		if err := fs.Set("figures", bad); err != nil {
			t.Fatal(err)
		}
		if err := b.Check(Place{On: OnSim}); err == nil || !strings.Contains(err.Error(), "--figures") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// --for sets how long all loads of Clover are counted, and those of no other store.
func TestSwordboxFiguresFor(t *testing.T) {
	b := swordboxBody{figures: figuresBody{all: swordbox}}
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	b.Flags(fs)
	if err := errors.Join(fs.Parse([]string{"--for", "10ms"}), b.Check(Place{On: OnSim})); err != nil {
		t.Fatal(err)
	}
	clover := 0
	for _, l := range loads(b.figures.list) {
		switch l := l.(type) {
		case Clover:
			if clover++; l.Warm != DefaultWarm || l.Run != 10*time.Millisecond {
				t.Errorf("%s: counted from %v for %v", l.label(), l.Warm, l.Run)
			}
		case Sherman:
			if l.Run == 10*time.Millisecond {
				t.Errorf("%s: counted for %v", l.label(), l.Run)
			}
		}
	}
	if clover < 100 {
		t.Errorf("%d loads of Clover", clover)
	}
	for _, bad := range []swordboxBody{{run: -1}, {run: 1, figures: figuresBody{quick: true}}} {
		bad.figures.all = swordbox
		if err := bad.Check(Place{On: OnSim, Quick: bad.figures.quick}); err == nil || !strings.Contains(err.Error(), "--for") {
			t.Errorf("%v: %v", bad.run, err)
		}
	}
}

// Figures whose numbers the model was made from say so.
func TestFiguresNameTheirInputs(t *testing.T) {
	for name, c := range map[string]struct {
		all    []figure
		inputs string
	}{
		"SwordBox":        {swordbox(false), "1 2 3 4 verbs 10 11"},
		"RedN":            {redn(false), "table1 7 8 table3 table5 14 15 16 nicmemory"},
		"1RMA":            {oneRMA(false), "fig15 classes"},
		"external memory": {memory(false), "incast counters recirculate netcache netcache-writes"},
	} {
		var got []string
		for i := range c.all {
			if len(c.all[i].inputs) > 0 {
				got = append(got, c.all[i].key)
			}
		}
		if s := strings.Join(got, " "); s != c.inputs {
			t.Errorf("%s: figures %s, want %s", name, s, c.inputs)
		}
	}
}

// Each of the authors' latencies stands beside a measurement: of published and of hardened steering,
// or of no steering.
func TestEveryLatencyOfTheAuthorsIsMeasured(t *testing.T) {
	data, f := papers.MustLoad("swordbox/fig13"), latencyFigure(false)
	kinds := map[string]string{"none": unsteered, "write": "write steered", "both": "write+read steered"}
	for _, r := range data.Rows {
		for _, writes := range data.Columns {
			v, ok := data.At(r.Panel, r.Series, writes)
			if !ok {
				continue
			}
			want := 2
			if r.Series == "none" {
				want = 1
			}
			n := 0
			for i := range f.cells {
				if c := &f.cells[i]; c.panel == r.Panel && c.their == kinds[r.Series] && c.x == writes && c.theirs == v*1e-3 && c.load != nil {
					n++
				}
			}
			if n != want {
				t.Errorf("%s, %s, %s %% writes: the authors have %g us, and %d measurements stand beside it, want %d", r.Panel, r.Series, writes, v*1e-3, n, want)
			}
		}
	}
}

// Every figure of FUSEE's paper from 10 to 21 is there, each number of the authors that is shown
// stands in a data file, and only the figures that the list names are without a load. --quick has
// fewer loads.
func TestFuseeFigures(t *testing.T) {
	all := fusee(false)
	for n := 10; n <= 21; n++ {
		if !slices.ContainsFunc(all, func(f figure) bool { return f.key == fmt.Sprint(n) }) {
			t.Errorf("there is no figure %d", n)
		}
	}
	for i := range all {
		f := &all[i]
		theirs, measured := 0, 0
		for k := range f.cells {
			c := &f.cells[k]
			if !math.IsNaN(c.theirs) {
				theirs++
			}
			if c.load != nil {
				measured++
			}
		}
		if x, unit := f.axes(); f.title == "" || unit == "" || x == "" || (theirs == 0) != (f.key == "links" || f.key == "switch") || (measured == 0) != (f.key == "20") ||
			theirs > 0 && measured > 0 && len(f.why) == 0 {
			t.Errorf("figure %s lacks something: %d numbers of the authors, %d loads", f.key, theirs, measured)
		}
	}
	if n, m := len(loads(all)), len(loads(fusee(true))); m == 0 || m > n*2/3 {
		t.Errorf("%d loads, %d with --quick", n, m)
	}
	labels := make(map[string]bool)
	for _, l := range loads(all) {
		if labels[l.label()] {
			t.Errorf("%s is measured twice", l.label())
		}
		labels[l.label()] = true
	}
}

// Figure 8 has the figures of `switch budget`, of which TestBudgetIsFigure8 of topo/switchd has
// the same copy.
func TestChipFigureIsTheBudget(t *testing.T) {
	uses, err := chipUses()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, u := range uses {
		got[u.Part] = fmt.Sprintf("%.2f %.2f %.2f", u.SRAM, u.Units, u.Tables)
	}
	for part, want := range map[string]string{"steer": "109.90 2.08 9.38", "hot": "1.67 0.00 1.04", "count": "1.15 16.67 2.08"} {
		if got[part] != want {
			t.Errorf("part %s takes %s, want %s", part, got[part], want)
		}
	}
}

// Figure 8 has the authors' lines and our parts in common rows, and says why numbers differ and why
// some are not there.
func TestChipFigure(t *testing.T) {
	f := chipFigure()
	var b strings.Builder
	r := f.report(new(fakePlatform), nil)
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"tracking (theirs: + connection tracking) - (6.84) - (5.89) - (12.5) 10.1 (3.44) - (3.65) 27.08 (18.75) 5.729 (15.62)",
		"steer published (theirs: + read steering) - (9.98) - (9.94) - (23.61) 51.56 (18.61) - (30.09) 66.67 (44.44) 7.812 (29.17)",
		"steer (theirs: + read steering) - (9.98) - (9.94) - (23.61) 109.9 (18.61) - (30.09) 2.083 (44.44) 9.375 (29.17)",
		"(theirs: + write steering) - (7.25) - (4.74) - (16.96) - (9.64) - (14.88) - (28.57) - (19.64)",
		"hardened - - - 231.4 - 170.8 17.71",
		"ours ÷ theirs 2.77 to 5.91 at the first point, 0.27 to 0.37 at the last; shape ±216 to 1223 %; why: published steering has",
		"why: exact crossbar, hash bits, gateways and map RAM are results of a compiler",
		"why: no number of ours: ", "why: no number of theirs: ",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "crossing,") {
		t.Errorf("lines over resources do not cross:\n%s", b.String())
	}
	uses, err := chipUses()
	if err != nil {
		t.Fatal(err)
	}
	for part := range chipPairs {
		if !slices.ContainsFunc(uses, func(u chipcost.Use) bool { return u.Part == part }) {
			t.Errorf("there is no part %s", part)
		}
	}
}

// A run in which free nodes become fewer could not go on for ever.
func TestFreeNodesOfASteadyRun(t *testing.T) {
	for _, c := range []struct {
		first, second uint64
		steady        bool
	}{{5000, 5000, true}, {5000, 4801, true}, {5000, 4799, false}, {4000, 6000, true}, {5000, 0, false}} {
		r := StoreResult{Nodes: &Nodes{All: 10000, FreeFirst: c.first, FreeSecond: c.second}}
		r.Ops[kv.KindUpdate] = 1000
		if why := r.unsteady(); (why == "") != c.steady {
			t.Errorf("%d and %d free nodes: %q", c.first, c.second, why)
		}
	}
}
