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

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store/kv"
)

// fakePlatform answers each load of Clover with a throughput that depends on the number of threads,
// and counts the loads.
type fakePlatform struct {
	Platform
	mu    sync.Mutex
	loads map[Clover]int
	fail  func(Clover) error
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
			panel: "p", series: series, their: series, x: fmt.Sprint(n), theirs: theirs(n), load: Clover{Clients: n}, value: mops,
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
	if svg := string(r.Chart.SVG()); strings.Count(svg, "<circle") != 3*2+2+3*4 {
		t.Errorf("%d marks", strings.Count(svg, "<circle"))
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

// The summary has our gains beside the authors', crossings, and reasons only if numbers differ.
func TestSummary(t *testing.T) {
	columns := []string{"7", "280", "392"}
	base := &figureRow{series: unsteered, their: unsteered, ours: []float64{1, 1, 2}, theirs: []float64{1, 1, 2}}
	steered := &figureRow{series: "both", their: "both", ours: []float64{1, 30, 40}, theirs: []float64{0.5, 32, 45}}
	f := figure{base: unsteered, gains: []string{"280"}, why: []string{"because"}}
	got := f.summary([]*figureRow{base, steered}, columns)
	want := []string{
		"gain over Clover, both: at 280 30 (theirs 32), at 392 20 (theirs 22.5)",
		"crossing, Clover and both: ours never, theirs between 7 and 280",
		"why: because",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	steered.ours[0], steered.theirs[0] = 0.5, 0.5
	if got := f.summary([]*figureRow{base, steered}, columns); len(got) != 2 || !strings.HasSuffix(got[1], "as theirs") {
		t.Errorf("got %q", got)
	}
}

// No two loads of the figures are the same, and the longest come first, so that only short ones run
// while some processors are idle.
func TestLoadsAreOrdered(t *testing.T) {
	list := loads(swordbox(false))
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
		if f.title == "" || f.unit == "" || f.x == "" || (theirs == 0) != (f.key == "metadata") || f.base != "" && len(f.why) == 0 {
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
		if f.title == "" || f.unit == "" || f.x == "" || (theirs == 0) != (f.key == "links" || f.key == "switch") || (measured == 0) != (f.key == "20") ||
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
