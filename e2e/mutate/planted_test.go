package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Every planted bug can be planted: its text occurs once, and the file with the bug parses. What
// must notice it exists.
func TestPlantedBugsCanBePlanted(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	bugs, err := readBugs(bugsFolder)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range bugs {
		p := &bugs[i]
		if names[p.name] {
			t.Errorf("%s is there twice", p.name)
		}
		names[p.name] = true
		m, err := p.mutant()
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), p.file, m.source(), 0); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		pkg, test, _ := strings.Cut(p.by, " ")
		test, _, _ = strings.Cut(test, "/") // behind it are patterns of subtests
		if pkg != "sim" && !hasTest(t, pkg, test) {
			t.Errorf("%s: there is no %s", p.name, p.by)
		}
	}
}

// A text keeps its own line feeds, and an archive with a part of a bug is refused.
func TestArchivesOfBugs(t *testing.T) {
	const whole = "-- bug: b --\nstore TestB\n-- was: store/b.go --\n\tif x {\n\n-- is --\n\n"
	bugs, err := bugsOf(txtar.Parse([]byte(whole)))
	want := planted{name: "b", file: filepath.Join("store", "b.go"), was: "\tif x {\n", is: "", by: "store TestB"}
	if err != nil || len(bugs) != 1 || bugs[0] != want {
		t.Errorf("%v\n%+v\nwant\n%+v", err, bugs, want)
	}
	for _, bad := range []string{"-- bug: b --\nx\n", "-- was: f --\nx\n-- bug: b --\ny\n-- is --\nz\n", whole + "-- is --\n"} {
		if bugs, err := bugsOf(txtar.Parse([]byte(bad))); err == nil {
			t.Errorf("%q has bugs %+v", bad, bugs)
		}
	}
	if _, err := readBugs(t.TempDir()); err == nil {
		t.Error("an empty folder has bugs")
	}
}

// Only a failure that shows the bug catches it: neither a search without result, nor another
// failure than the table expects, nor a program that does not run.
func TestAPlantedBugIsCaughtByItsFailure(t *testing.T) {
	const (
		order     = "FAIL clover seed 7: history of key 3 is not linearizable:\n  0s client 1 GET\n  replay: rdmalab sim clover --seed 7 -v\n"
		undecided = "FAIL clover seed 9: history of key 3 with 80 operations: %w in 20 states\n  replay: rdmalab sim clover --seed 9 -v\n"
	)
	open := strings.ReplaceAll(undecided, "%w", kv.ErrUndecided.Error())
	for _, tc := range []struct {
		printed, text string
		want          bool
	}{
		{order, "", true},
		{order, "not linearizable", true},
		{order, "nodes held", false},
		{open, "", false},
		{open, "history", false},
		{open + order, "not linearizable", true},
		{"50 of 50 seeds\n" + order + open, "", true},
		{"unknown flag: --mix\n", "", false},
		{"", "", false},
	} {
		if got := caught(tc.printed, tc.text); got != tc.want {
			t.Errorf("text %q: caught %v, want %v, by:\n%s", tc.text, got, tc.want, tc.printed)
		}
	}
}

func hasTest(t *testing.T, pkg, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "func "+test+"(") {
			return true
		}
	}
	return false
}
