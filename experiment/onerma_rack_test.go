package experiment

import (
	"context"
	"strings"
	"testing"
	"time"
)

// trips is a rack whose every time is a round trip.
type trips struct{ Platform }

func (trips) On() string       { return OnRack }
func (trips) Describe() string { return "" }

func (trips) OneRMA(_ context.Context, l OneRMA) (OneRMAResult, error) {
	r := &OneRMARack{RTT: 20 * time.Microsecond, FileRTT: 4 * time.Millisecond, InTrip: float64(l.Slots)}
	if l.Kind == SoloCrash {
		r.Phases[1] = PhaseGETs{Median: 2, P99: 3, Max: 1000, Failed: 7}
	}
	return OneRMAResult{Median: 1, P99: 2, Rack: r}, nil
}

// On a rack, the experiment has other figures, all of them with numbers, and always the one with the unit.
func TestOneRMAFiguresOfRack(t *testing.T) {
	for _, keys := range [][]string{nil, {"fig9"}, {"rtt", "fig11"}} {
		b := &oneRMABody{figuresBody{all: oneRMA, choices: oneRMAChoices, keys: keys}}
		if err := b.Check(Place{On: OnRack, Hosts: 2, Quick: true}); err != nil {
			t.Fatal(err)
		}
		r := oneRMAFigures.Report(trips{})
		if err := b.Run(t.Context(), trips{}, r); err != nil {
			t.Fatal(err)
		}
		if want := "figure rtt"; len(r.Parts) < 2 || r.Parts[0].Experiment != want || r.Parts[1].Experiment == want {
			t.Errorf("%v: the first figures are not %s and another one", keys, want)
		}
		text := new(strings.Builder)
		for _, p := range r.Parts {
			if err := p.WriteTable(text); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(text.String(), "not measured\n") {
			t.Errorf("%v:\n%s", keys, text)
		}
		if keys != nil && keys[0] == "fig9" && !strings.Contains(text.String(), "longest, rtt of the rack file  0.0     5.0     0.0") {
			t.Errorf("%s", text)
		}
		if crash := keys == nil || keys[0] == "fig9"; (r.Err() != nil) != crash || crash && !strings.Contains(r.Err().Error(), "7 GETs failed") {
			t.Errorf("%v: failed GETs: %v", keys, r.Err())
		}
		if !strings.Contains(text.String(), "\nnote: the round trip of the authors' testbed is 5 us;") {
			t.Errorf("what the authors say is missing:\n%s", text)
		}
		if !strings.Contains(text.String(), "1RMA    20.0    40.0") {
			t.Errorf("the unit in microseconds is missing:\n%s", text)
		}
	}
	b := &oneRMABody{figuresBody{all: oneRMA, keys: []string{"fig16d"}}}
	if err := b.Check(Place{On: OnRack}); err == nil || !strings.Contains(err.Error(), "rtt fig8 fig9") {
		t.Error(err)
	}
}

// Without --figures, a rack has the figures for which its 1RMA NICs have the parameters. The round trip
// is measured only for figures whose unit it is.
func TestOneRMAFiguresInSlowMotion(t *testing.T) {
	for want, c := range map[string]struct {
		slow bool
		keys []string
	}{
		"rtt fig8 fig9 fig11 fig12 fig13 fig14": {},
		"fig10 fig15 fig16":                     {slow: true},
		"fig16":                                 {keys: []string{"fig16"}},
		"rtt fig14 fig15":                       {slow: true, keys: []string{"fig15", "fig14"}},
	} {
		b := &oneRMABody{figuresBody{all: oneRMA, keys: c.keys}}
		if err := b.Check(Place{On: OnRack, Slow: c.slow}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(figureKeys(b.list), " "); got != want {
			t.Errorf("%v: %s, want %s", c, got, want)
		}
	}
	for _, f := range oneRMASlow(false) {
		for i := range f.cells {
			if l := f.cells[i].load.(OneRMA); !l.Slow() || l.Span < 100*OneRMARTT {
				t.Errorf("%s: %s", f.key, l.label())
			}
		}
	}
	if l := (OneRMA{Kind: SoloSlots}); l.Slow() || SlowMotion(20*time.Millisecond) != 4000 {
		t.Error("figure 11 is not in slow motion, in which 20 ms stand for 5 us")
	}
}
