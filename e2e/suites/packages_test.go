package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inModule runs a test in the module's folder, where the Makefile runs the program.
func inModule(t *testing.T) {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
}

// Each package with tests is run by `test`, by a row of the table that needs more than root, or by make check.
func TestEveryPackageIsTested(t *testing.T) {
	inModule(t)
	ctx := t.Context()
	all, err := list(ctx, "", "./...")
	if err != nil {
		t.Fatal(err)
	}
	withRace, err := raced(ctx)
	if err != nil {
		t.Fatal(err)
	}
	specs, err := onRacks(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run := slices.Concat(plain(), withRace, specs, folders(checked), folders(apart))
	names := map[string]bool{}
	for _, p := range all {
		name := "./" + p.name()
		names[name] = true
		n := 0
		for _, r := range run {
			if r == name {
				n++
			}
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && n != 1 {
			t.Errorf("%s is tested %d times", name, n)
		}
	}
	for _, name := range slices.Concat(run, folders(firstOfTwo), folders(secondOfTwo), folders(longest)) {
		if !names[name] {
			t.Errorf("%s is no package", name)
		}
	}
	for _, name := range slices.Concat(folders(firstOfTwo), folders(secondOfTwo)) {
		if !slices.Contains(specs, name) {
			t.Errorf("%s is no suite on racks", name)
		}
	}
	for _, name := range folders(longest) {
		if !slices.Contains(plain(), name) {
			t.Errorf("%s has the race detector", name)
		}
	}
}

func TestUnracedFindsTestsByName(t *testing.T) {
	inModule(t)
	names, err := unraced(t.Context())
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		if _, err := os.Stat(n); err != nil || strings.Contains(n, "simrack") {
			t.Error(n, err)
		}
	}
}

func TestRowsName(t *testing.T) {
	inModule(t)
	for name, s := range suites {
		packages, err := s.tested(t.Context())
		if s.again != "" {
			continue
		}
		if err != nil || len(packages) == 0 {
			t.Errorf("%s: %v, %v", name, packages, err)
		}
		for _, p := range packages {
			if _, err := os.Stat(filepath.Join(s.dir, p)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
