package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
)

// swordboxFigures measures the figures of the SwordBox paper.
var swordboxFigures = Experiment{
	Name:     "swordbox-figures",
	Short:    "every figure of the SwordBox paper, each number beside the authors'",
	Figure:   "the measured figures of the SwordBox paper, and measurements of its authors that the paper does not show",
	Examples: []string{"--figures 4,11 --out figures"},
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(swordbox)}
	},
	Sim: "two hours of processor time, with --quick 2 min", Cost: "connectx5-dpdk",
	New: func() Body { return &swordboxBody{figures: figuresBody{all: swordbox}} },
}

// swordboxBody measures figures of the SwordBox paper. All loads of Clover that are measured in steady
// state count operations for the time `run`; 0 means DefaultRun.
type swordboxBody struct {
	figures figuresBody
	run     time.Duration
}

func (b *swordboxBody) Flags(fs *pflag.FlagSet) {
	b.figures.Flags(fs)
	fs.DurationVar(&b.run, "for", 0, fmt.Sprintf("how long operations of Clover are counted (default %v; not with --quick)", DefaultRun))
}

func (b *swordboxBody) Check(at Place) error {
	switch {
	case b.run < 0:
		return errors.New("--for: want a time like 40ms")
	case b.run > 0 && at.Quick:
		return errors.New("--quick and --for contradict each other: use one of them")
	}
	if err := b.figures.Check(at); err != nil || b.run == 0 {
		return err
	}
	for _, f := range b.figures.list {
		for i := range f.cells {
			if l, ok := f.cells[i].load.(Clover); ok {
				l.Run = b.run
				f.cells[i].load = l
			}
		}
	}
	return nil
}

func (b *swordboxBody) Run(ctx context.Context, p Platform, r *Report) error {
	return b.figures.Run(ctx, p, r)
}

// figuresBody is an experiment that measures the figures of a paper, with its parameters.
type figuresBody struct {
	// all lists the figures. choices are the assumptions of the simulator's model that the report
	// lists. If onRack is not nil, its fields all and choices replace these two on a rack.
	all     func(quick bool) []figure
	choices []string
	onRack  *figuresBody
	keys    []string // value of --figures; none means all figures
	list    []figure // the figures to measure
	quick   bool
}

func (b *figuresBody) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&b.keys, "figures", nil, "figures to measure, separated by commas (default: all that fit one rack)")
}

func (b *figuresBody) Check(at Place) error {
	if at.On == OnRack && b.onRack != nil {
		b.all, b.choices = b.onRack.all, b.onRack.choices
	}
	all := b.all(at.Quick)
	b.list, b.quick = b.list[:0], at.Quick
	for _, key := range b.keys {
		if !slices.ContainsFunc(all, func(f figure) bool { return f.key == key }) {
			return fmt.Errorf("--figures %.40q: %sthere are %s", key, nearest.Meant(key, figureKeys(all)), strings.Join(figureKeys(all), " "))
		}
	}
	for _, f := range all {
		if len(b.keys) == 0 && !f.named || slices.Contains(b.keys, f.key) {
			b.list = append(b.list, f)
		}
	}
	return nil
}

func figureKeys(list []figure) (keys []string) {
	for i := range list {
		keys = append(keys, list[i].key)
	}
	return keys
}

// titles lists figures for a help text.
func titles(all func(quick bool) []figure) []string {
	return lines(all(false), func(_ int, f figure) string { return fmt.Sprintf("%-10s %s", f.key, f.title) })
}

// Run measures the loads of the figures. If it fails, the figures have the numbers that were
// measured before.
func (b *figuresBody) Run(ctx context.Context, p Platform, r *Report) error {
	for _, c := range b.choices {
		r.Platform += "\n  choice: " + c
	}
	done, err := measureAll(ctx, p, r.Watch, loads(b.list))
	for i := range b.list {
		part := b.list[i].report(p, done)
		b.list[i].judge(part, b.quick, done)
		r.Parts = append(r.Parts, part)
	}
	return err
}

// longestFirst returns the loads sorted by effort: those that take longest come first, so that all
// processors have work until shortly before the end.
func longestFirst[L load](loads []L) []L {
	return slices.SortedStableFunc(slices.Values(loads), func(a, b L) int { return cmp.Compare(b.effort(), a.effort()) })
}

// measureAll runs loads, several at a time in the simulator. It returns the results of those that
// succeeded, and the first error.
func measureAll[L load](ctx context.Context, p Platform, w Watcher, loads []L) (map[load]outcome, error) {
	list := longestFirst(loads)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu    sync.Mutex // guards the variables below
		next  int
		done  = make(map[load]outcome)
		first error
	)
	take := func() (load, int) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(list) || ctx.Err() != nil {
			return nil, 0
		}
		next++
		return list[next-1], next
	}
	put := func(l load, o outcome, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			done[l] = o
			return
		}
		if first == nil {
			first = fmt.Errorf("%s: %w", l.label(), err)
		}
		cancel()
	}
	workers := 1
	if p.On() == OnSim {
		workers = max(1, runtime.GOMAXPROCS(0))
	}
	var wg sync.WaitGroup
	for range min(workers, len(list)) {
		wg.Go(func() {
			for l, n := take(); l != nil; l, n = take() {
				end := func(string) {}
				if w != nil {
					end = w.Begin(l.label(), n, len(list))
				}
				o, err := l.measure(ctx, p)
				if err == nil {
					end(o.text())
				} else {
					end(err.Error())
				}
				put(l, o, err)
			}
		})
	}
	wg.Wait()
	if first == nil {
		first = ctx.Err()
	}
	return done, first
}

// text formats an outcome for the progress report.
func (o *outcome) text() string {
	switch {
	case o.order != nil:
		return fmt.Sprintf("%.3g%% in order", 100*o.order[1])
	case o.bits:
		return fmt.Sprintf("%.3g Gb/s", o.gbps())
	case o.incast != nil:
		return fmt.Sprintf("%d bytes have arrived, the last at %v", o.incast.Arrived, o.incast.Last)
	case o.solo != nil && o.solo.Rack != nil && o.solo.Ramp+o.solo.Fair > 0:
		return fmt.Sprintf("line rate after %.3g RTT, fair share after %.3g", o.solo.Ramp, o.solo.Fair)
	case o.solo != nil && o.solo.Rack != nil:
		return fmt.Sprintf("median %.3g RTT, %.3g in a round trip", o.solo.Median, o.solo.Rack.InTrip)
	case o.chain != nil:
		return fmt.Sprintf("mean %v, %.3g Mops", o.chain.Mean, o.chain.Rate/1e6)
	case o.lookups != nil:
		return fmt.Sprintf("median %v, %.3g Mops", o.lookups.Median, o.lookups.Rate/1e6)
	case o.counting != nil:
		return fmt.Sprintf("%d of %d counted, %.3g FETCH_ADDs a second", o.counting.Counted, o.counting.Sent, o.counting.Adds)
	}
	out := fmt.Sprintf("%.3g Mops", o.mops())
	if o.store != nil {
		if n := o.store.failures(); n > 0 {
			out += fmt.Sprintf(", %d operations failed", n)
		}
	}
	return out
}
