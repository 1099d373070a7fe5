package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// ratesBody is the experiment memory-rates. In the simulator it is a figure. On a rack it measures
// the switch and native RDMA in turns, because the speed of the machine changes.
type ratesBody struct {
	figuresBody
	rounds int
	rack   bool
}

const (
	defaultRounds = 9
	quickRounds   = 3
	maxRounds     = 1000
)

func (b *ratesBody) Flags(fs *pflag.FlagSet) {
	b.figuresBody.Flags(fs)
	fs.Lookup("figures").Hidden = true // this experiment has only one figure
	fs.IntVar(&b.rounds, "rounds", defaultRounds, fmt.Sprintf("on a rack: how often each rate is measured, 1 to %d", maxRounds))
}

func (b *ratesBody) Check(at Place) error {
	if b.rounds < 1 || b.rounds > maxRounds {
		return fmt.Errorf("--rounds %d: want 1 to %d", b.rounds, maxRounds)
	}
	if b.rack = at.On == OnRack; at.Quick {
		b.rounds = min(b.rounds, quickRounds)
	}
	return b.figuresBody.Check(at)
}

func (b *ratesBody) Run(ctx context.Context, p Platform, r *Report) error {
	if !b.rack {
		return b.figuresBody.Run(ctx, p, r)
	}
	for _, c := range b.choices {
		r.Platform += "\n  choice: " + c
	}
	directions := []string{Store, Load}
	pairs := make(ratePairs)
	var err error
measuring:
	for round := range b.rounds {
		for i, d := range directions {
			n := 2*(round*len(directions)+i) + 1
			var pair ratePair
			l := BufferRate{Direction: d, Mode: Hardened, Bytes: memoryFrame, Entry: memoryEntry, Depth: memoryDepth}
			if pair.ours, err = b.one(ctx, p, r, l, n); err != nil {
				break measuring
			}
			if pair.native, err = b.one(ctx, p, r, BufferRate{Direction: d, Native: true, Bytes: memoryFrame}, n+1); err != nil {
				break measuring
			}
			pairs[d] = append(pairs[d], pair)
		}
	}
	pairs.report(r, directions)
	return err
}

// one measures a load. n is the number of the measurement among all 4*rounds, for the progress
// report.
func (b *ratesBody) one(ctx context.Context, p Platform, r *Report, l BufferRate, n int) (float64, error) {
	r.begin(n, 4*b.rounds, "%s", l.label())
	rate, err := p.BufferRate(ctx, l)
	if err != nil {
		r.end("%v", err)
		return 0, fmt.Errorf("%s: %w", l.label(), err)
	}
	r.end("%.3g Gb/s", rate/1e9)
	return rate, nil
}

// ratePair has two rates that were measured one after the other, in bits a second.
type ratePair struct{ ours, native float64 }

// ratePairs has the pairs of each direction.
type ratePairs map[string][]ratePair

// report adds a row to r for each direction: the medians of the rates and of the ratios of each pair,
// and the least and the largest ones.
func (p ratePairs) report(r *Report, directions []string) {
	var columns []Column
	for _, c := range []Column{{Key: "switch", Title: "SWITCH Gb/s", Format: "%.3g"}, {Key: "native", Title: "NATIVE Gb/s", Format: "%.3g"}, {Key: "ratio", Title: "RATIO (PAPER)", Format: "%.2f"}} {
		columns = append(columns, c, Column{Key: c.Key + "_least", Title: "LEAST", Format: c.Format}, Column{Key: c.Key + "_most", Title: "MOST", Format: c.Format})
	}
	r.Columns(append([]Column{{Key: "frames", Title: "FRAMES"}, {Key: "rounds", Title: "ROUNDS"}}, columns...)...)
	data := papers.MustLoad("extmem/rates")
	for _, d := range directions {
		list := p[d]
		if len(list) == 0 {
			continue
		}
		paper := 0.0
		if d == Load { // the authors have no native rate of WRITEs
			paper = at(data, "", "switch", d, 1) / at(data, "", "native", d, 1)
		}
		row := []Cell{Label(d), Num(float64(len(list)))}
		for i, of := range []func(p ratePair) float64{
			func(p ratePair) float64 { return p.ours / 1e9 },
			func(p ratePair) float64 { return p.native / 1e9 },
			func(p ratePair) float64 { return p.ours / p.native },
		} {
			values := make([]float64, len(list))
			for k := range list {
				values[k] = of(list[k])
			}
			middle := Num(Median(values))
			if i == 2 {
				middle.Paper = paper
			}
			row = append(row, middle, Num(slices.Min(values)), Num(slices.Max(values)))
		}
		r.Add(row...)
	}
}
