package insim

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
)

// bound is a line of testdata/steering-gain.csv.
type bound struct {
	row, steering string
	least, most   float64
}

func steeringBounds(t *testing.T) (list []bound) {
	t.Helper()
	f, err := os.Open("testdata/steering-gain.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	lines, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[1:] {
		b := bound{row: l[0], steering: l[1]}
		var errs [2]error
		b.least, errs[0] = strconv.ParseFloat(l[2], 64)
		if b.most, errs[1] = strconv.ParseFloat(l[3], 64); errs[0] != nil || errs[1] != nil || b.least >= b.most {
			t.Fatalf("line %v: %v", l, errs)
		}
		list = append(list, b)
	}
	return list
}

// Each row of steering-gain is in steady state for 200 ms of virtual time, and has the throughput
// that it had when testdata/steering-gain.csv was written. This takes an hour or so, with
// RDMALAB_LONG; without it, the numbers are read.
func TestSteeringRowsDoNotChange(t *testing.T) {
	bounds := steeringBounds(t)
	rows := make(map[string][]bound)
	for _, b := range bounds {
		rows[b.row] = append(rows[b.row], b)
	}
	for row, list := range rows {
		if len(list) != 3 {
			t.Errorf("row %s has %d bounds: want one each for none, hardened and published", row, len(list))
		}
		if os.Getenv("RDMALAB_LONG") == "" {
			continue
		}
		t.Run("row"+row, func(t *testing.T) {
			t.Parallel()
			e := named("steering-gain")
			place := experiment.Place{On: experiment.OnSim}
			r, err := runWith(t.Context(), &e, &Sim{Cost: model(t, e.Cost)}, place, map[string]string{"rows": row, "for": "200ms", "switch": "line rate"})
			if err == nil {
				err = r.Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range outside(r, list) {
				t.Error(wrong)
			}
		})
	}
}

// outside returns what of a report is not within its bounds.
func outside(r *experiment.Report, list []bound) (wrong []string) {
	for _, b := range list {
		i := slices.IndexFunc(r.Rows, func(w experiment.Row) bool { return w.Cell("steer").Text == b.steering })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("row %s, %s was not measured", b.row, b.steering))
			continue
		}
		if mops := r.Rows[i].Cell("mops").Value; !(mops >= b.least && mops <= b.most) {
			wrong = append(wrong, fmt.Sprintf("row %s, %s: %.4g Mops, want %.4g to %.4g", b.row, b.steering, mops, b.least, b.most))
		}
	}
	return wrong
}

// A report with a number that is too low or too high, or without a number, is not within its bounds.
func TestNumbersOutsideTheirBounds(t *testing.T) {
	list := []bound{{"1", "none", 1, 2}, {"1", "hardened", 30, 40}}
	for _, c := range []struct {
		none, hardened float64
		wrong          int
	}{{1.5, 35, 0}, {1, 40, 0}, {0.9, 35, 1}, {2.1, 41, 2}, {math.NaN(), 35, 1}, {1.5, 0, 1}} {
		var r experiment.Report
		r.Columns(experiment.Column{Key: "steer"}, experiment.Column{Key: "mops"})
		r.Add(experiment.Label("none"), experiment.Num(c.none))
		r.Add(experiment.Label("hardened"), experiment.Num(c.hardened))
		if wrong := outside(&r, list); len(wrong) != c.wrong {
			t.Errorf("%g and %g Mops: %q", c.none, c.hardened, wrong)
		}
	}
	if wrong := outside(new(experiment.Report), list); len(wrong) != 2 {
		t.Errorf("no rows: %q", wrong)
	}
}
