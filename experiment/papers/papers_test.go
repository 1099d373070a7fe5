package papers

import (
	"math"
	"path"
	"slices"
	"strings"
	"testing"
)

// Every data file can be parsed and has a source, and all its lines have the same number of fields.
func TestEveryFile(t *testing.T) {
	names := slices.Concat(Names("swordbox"), Names("fusee"), Names("extmem"))
	if len(names) < 33 {
		t.Errorf("%d files: %v", len(names), names)
	}
	for _, name := range names {
		f, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		seen := make(map[string]bool)
		for _, r := range f.Rows {
			if key := r.Panel + "/" + r.Series; seen[key] || len(r.Values) != len(f.Columns) {
				t.Errorf("%s: %s occurs twice, or has %d values for %d columns", name, key, len(r.Values), len(f.Columns))
			} else {
				seen[key] = true
			}
		}
	}
}

// A number is found by panel, series and column, or by the nearest column that has one.
func TestAtAndNear(t *testing.T) {
	f, err := Parse("x", []byte("# A title\n# source: s\n# x: threads\n# unit: op/s\n# note: n\npanel,series,7,14,28\n5,none,1,,3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Title != "A title" || f.Source != "s" || f.X != "threads" || f.Unit != "op/s" || len(f.Notes) != 1 || !math.IsNaN(f.Rows[0].Values[1]) {
		t.Errorf("%+v", f)
	}
	if v, ok := f.At("5", "none", "28"); v != 3 || !ok {
		t.Error(v, ok)
	}
	for _, missing := range [][3]string{{"5", "none", "14"}, {"5", "none", "15"}, {"5", "both", "7"}, {"50", "none", "7"}} {
		if v, ok := f.At(missing[0], missing[1], missing[2]); ok {
			t.Errorf("%v has %g", missing, v)
		}
	}
	for x, want := range map[float64]float64{0: 1, 14: 1, 20: 3, 400: 3} {
		if v, ok := f.Near("5", "none", x); v != want || !ok {
			t.Errorf("near %g: %g, want %g", x, v, want)
		}
	}
	if _, ok := f.Near("5", "both", 7); ok {
		t.Error("a number of no series")
	}
}

// A file with a mistake is refused, and the error has its name.
func TestMistakes(t *testing.T) {
	const head = "# t\n# source: s\n# x: n\n# unit: u\n"
	for _, text := range []string{
		"", "panel,series,1\na,b,2\n", "# t\n# source: s\n# x: n\npanel,series,1\na,b,2\n", head, head + "panel,series,1\n", head + "panel,1\na,2\n",
		head + "panel,series,1\na,b,two\n", head + "panel,series,1\na,b,NaN\n", head + "panel,series,1\na,b\n", "# t\n# colour: red\n" + head,
	} {
		if _, err := Parse("wrong.csv", []byte(text)); err == nil || !strings.Contains(err.Error(), "wrong.csv") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Load("swordbox/none"); err == nil {
		t.Error("there is a file none")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("# t\n# source: s\n# x: n\n# unit: u\npanel,series,1\na,b,2\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = Parse("fuzz", text) })
}

// Names lists the data files of a paper.
func Names(paper string) (names []string) {
	entries, err := files.ReadDir(paper)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, path.Join(paper, strings.TrimSuffix(e.Name(), suffix)))
	}
	slices.Sort(names)
	return names
}
