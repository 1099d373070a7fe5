package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every planted bug can be planted: its text occurs once, and the file with the bug parses. What
// must notice it exists.
func TestPlantedBugsCanBePlanted(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	names := map[string]bool{}
	for i := range plantedBugs {
		p := &plantedBugs[i]
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
		if pkg, test, _ := strings.Cut(p.by, " "); pkg != "sim" && !hasTest(t, pkg, test) {
			t.Errorf("%s: there is no %s", p.name, p.by)
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
