package experiment

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func sample() *Report {
	r := &Report{Experiment: "x", Figure: "fig. 1", On: OnSim, Platform: "a model"}
	r.Columns(Column{Key: "series", Title: "SERIES", Repeats: true}, Column{Key: "clients", Title: "CLIENTS"}, Column{Key: "mops", Title: "Mops", Format: "%.2f"},
		Column{Key: "first", Title: "FIRST"})
	r.Add(Label("a"), Num(1), Num(0.5), None())
	r.Add(Label("a"), Num(64), Beside(2.99, 3), Cell{Value: 3, Number: true, Claim: "<4"})
	return r
}

// A table has the paper's values in parentheses, and reports missing rows.
func TestTable(t *testing.T) {
	r := sample()
	r.Interrupted = true
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	want := "x on sim: fig. 1\na model\n" +
		"SERIES  CLIENTS  Mops (PAPER)  FIRST (PAPER)\n" +
		"a       1        0.50          -\n" +
		"        64       2.99 (3)      3 (<4)\n" +
		"interrupted: rows are missing\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// CSV has the paper's values in separate columns.
func TestCSV(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if want := "series,clients,mops,mops_paper,first,first_paper\na,1,0.5,,,\na,64,2.99,3,3,<4\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestReportSurvivesJSON(t *testing.T) {
	text, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if c := r.Rows[1].Cell("mops"); c.Value != 2.99 || c.Paper != 3 || r.Rows[0].Cell("series").Text != "a" || r.Rows[1].Cell("first").Claim != "<4" {
		t.Errorf("%s came back as %+v", text, r)
	}
}

// Every experiment has descriptions, and refuses parameters that it cannot use.
func TestEveryExperimentExplainsItself(t *testing.T) {
	for _, e := range All() {
		if e.Short == "" || e.Long() == "" || e.Figure == "" || e.Sim+e.Rack == "" || e.Cost == "" {
			t.Errorf("%s lacks something: %+v", e.Name, e)
		}
		for _, on := range []string{OnSim, OnRack} {
			for _, quick := range []bool{false, true} {
				body := e.New()
				body.Flags(pflag.NewFlagSet(e.Name, pflag.ContinueOnError))
				if err := body.Check(Place{On: on, Hosts: 4, Quick: quick}); err != nil {
					t.Errorf("%s on %s, quick %v: %v", e.Name, on, quick, err)
				}
			}
		}
	}
	for _, bad := range []struct{ name, flag, value string }{
		{"cas-one-word", "clients", "0"},
		{"cas-one-word", "clients", "100000"},
		{"cas-one-word", "iters", "-5"},
		{"cas-one-word", "series", "moon"},
		{"cas-one-word", "series", "as-is"},
		{"one-lock", "span", "-1s"},
		{"write-contention", "steer", "left"},
		{"write-contention", "writes", "101"},
		{"write-contention", "share-qp", "-1"},
		{"steering-gain", "rows", "9"},
		{"steering-gain", "clients", "-1"},
		{"tree-locks", "zipf", "-1"},
	} {
		all := All()
		e := all[slices.IndexFunc(all, func(e Experiment) bool { return e.Name == bad.name })]
		body, fs := e.New(), pflag.NewFlagSet(e.Name, pflag.ContinueOnError)
		body.Flags(fs)
		if err := fs.Set(bad.flag, bad.value); err != nil {
			t.Fatal(err)
		}
		if err := body.Check(Place{On: OnSim}); err == nil || !strings.Contains(err.Error(), "--"+bad.flag) {
			t.Errorf("%s --%s %s: %v", bad.name, bad.flag, bad.value, err)
		}
	}
}

// The paper's throughput for a number of clients is the value at the nearest number of clients in
// the paper.
func TestNearestOfThePaper(t *testing.T) {
	for _, c := range []struct {
		clients int
		want    float64
	}{{8, 0.554788}, {64, 1.312144}, {240, 1.22673}, {400, 1.257288}} {
		if got := paperMops(50, steerNone, c.clients); got != c.want {
			t.Errorf("%d clients: %g, want %g", c.clients, got, c.want)
		}
	}
}
