package experiment

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// ratesPlatform is a rack whose rates are listed, by direction and whether they are native.
type ratesPlatform struct {
	Platform
	rates map[string][]float64
	asked []string
}

func (*ratesPlatform) On() string       { return OnRack }
func (*ratesPlatform) Describe() string { return "fake" }

func (p *ratesPlatform) BufferRate(_ context.Context, l BufferRate) (float64, error) {
	key := l.Direction
	if l.Native {
		key += " native"
	}
	p.asked = append(p.asked, key)
	list := p.rates[key]
	if len(list) == 0 {
		return 0, errors.New("the rack is down")
	}
	p.rates[key] = list[1:]
	return list[0] * 1e9, nil
}

// On a rack the switch and native RDMA take turns. The ratio is that of the rates of one turn, and its
// median is reported with the least and the largest one.
func TestRatesTakeTurns(t *testing.T) {
	p := &ratesPlatform{rates: map[string][]float64{
		"store": {6, 2, 9, 4}, "store native": {10, 4, 10, 8}, "load": {1, 3, 2, 4}, "load native": {2, 2, 2, 2},
	}}
	b := memoryRates.New().(*ratesBody)
	b.rounds = 4
	if err := b.Check(Place{On: OnRack}); err != nil {
		t.Fatal(err)
	}
	r := memoryRates.Report(p)
	if err := b.Run(t.Context(), p, r); err != nil {
		t.Fatal(err)
	}
	if want := []string{"store", "store native", "load", "load native"}; !slices.Equal(p.asked[:4], want) || !slices.Equal(p.asked[12:], want) {
		t.Errorf("measured %q", p.asked)
	}
	want := [][]float64{{4, 5, 2, 9, 9, 4, 10, 0.55, 0.5, 0.9}, {4, 2.5, 1, 4, 2, 2, 2, 1.25, 0.5, 2}}
	if len(r.Rows) != len(want) {
		t.Fatalf("%d rows", len(r.Rows))
	}
	for i, row := range r.Rows {
		for k, v := range want[i] {
			if got := row.cells[k+1].Value; got < v-1e-9 || got > v+1e-9 {
				t.Errorf("row %d, column %s: %g, want %g", i, row.columns[k+1].Key, got, v)
			}
		}
		if paper := row.Cell("ratio").Paper; (paper != 0) != (row.Cell("frames").Text == Load) {
			t.Errorf("row %d: the paper's ratio is %g", i, paper)
		}
	}
	p.rates["load"] = []float64{1}
	p.rates["store"], p.rates["store native"], p.rates["load native"] = []float64{5, 5}, []float64{5, 5}, []float64{2}
	r = memoryRates.Report(p)
	if err := b.Run(t.Context(), p, r); err == nil || len(r.Rows) != 2 || r.Rows[0].Cell("rounds").Value != 2 || r.Rows[1].Cell("rounds").Value != 1 {
		t.Errorf("%v; %+v", err, r.Rows)
	}
	for _, n := range []int{0, maxRounds + 1} {
		if b.rounds = n; b.Check(Place{On: OnRack}) == nil {
			t.Errorf("%d rounds are taken", n)
		}
	}
}
