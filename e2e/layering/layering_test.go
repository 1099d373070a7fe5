package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rdmalab/rdmalab/"

// source is one Go file of the module.
type source struct {
	pkg     string // path below the module
	path    string // from the root
	imports []string
	doc     bool // has a package comment
	program bool // is of package main
	locks   bool // imports sync or sync/atomic
	starts  bool // a test that starts goroutines
}

// sources parses the imports of every Go file below the root, without testdata and hidden folders.
func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		mode := parser.ImportsOnly | parser.ParseComments
		if strings.HasSuffix(path, "_test.go") {
			mode = parser.ParseComments // what tests do counts, too
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s := source{pkg: filepath.ToSlash(filepath.Dir(rel)), path: filepath.ToSlash(rel), doc: f.Doc != nil, program: f.Name.Name == "main", starts: concurrent(f)}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			if p, ours := strings.CutPrefix(p, module); ours {
				s.imports = append(s.imports, p)
			}
			s.locks = s.locks || p == "sync" || p == "sync/atomic"
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// concurrent reports whether a file starts goroutines: by a statement, or by the method Go of a
// group of package sync, whose import therefore counts, too.
func concurrent(f *ast.File) (found bool) {
	for _, i := range f.Imports {
		found = found || i.Path.Value == `"sync"`
	}
	ast.Inspect(f, func(n ast.Node) bool {
		_, starts := n.(*ast.GoStmt)
		found = found || starts
		return !found
	})
	return found
}

// judge returns the rule that an import breaks, or "".
func judge(table map[string]row, from, to string) string {
	f, ok := table[from]
	if !ok {
		return from + " has no row in the table: give it a level first"
	}
	t, ok := table[to]
	switch {
	case !ok:
		return to + " has no row in the table: give it a level first"
	case t.level < f.level, t.level == f.level && slices.Contains(f.beside, to):
		return ""
	case t.level == f.level:
		return from + " imports " + to + " of its own level, which its row does not list"
	default:
		return from + " (level " + strconv.Itoa(f.level) + ") imports " + to + " above it (level " + strconv.Itoa(t.level) + ")"
	}
}

func TestImportsGoDown(t *testing.T) {
	seen, used := map[string]bool{}, map[[2]string]bool{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue // tests may import any package
		}
		seen[s.pkg] = true
		if _, ok := table[s.pkg]; !ok {
			t.Errorf("%s: package %s has no row in the table", s.path, s.pkg)
		}
		for _, i := range s.imports {
			used[[2]string{s.pkg, i}] = true
			if wrong := judge(table, s.pkg, i); wrong != "" {
				t.Errorf("%s: %s", s.path, wrong)
			}
		}
	}
	for pkg, r := range table {
		if !seen[pkg] {
			t.Errorf("the table has a row for %s, which is not there", pkg)
		}
		for _, b := range r.beside {
			if !used[[2]string{pkg, b}] {
				t.Errorf("the row of %s lists %s, which it does not import", pkg, b)
			}
		}
	}
}

// Each forbidden import is found.
func TestJudgeRefuses(t *testing.T) {
	h := map[string]row{"a": {level: 0}, "b": {level: 1}, "c": {level: 1, beside: []string{"b"}}}
	for _, c := range []struct {
		from, to string
		ok       bool
	}{{"b", "a", true}, {"a", "b", false}, {"c", "b", true}, {"b", "c", false}, {"b", "x", false}, {"x", "a", false}} {
		if got := judge(h, c.from, c.to); (got == "") != c.ok {
			t.Errorf("judge(%s, %s) = %q, want allowed %v", c.from, c.to, got, c.ok)
		}
	}
}
