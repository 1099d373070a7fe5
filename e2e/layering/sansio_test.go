package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// seeded are the names of math/rand/v2 that a sans-I/O package may use: types, and functions that
// make a generator from a seed. The other functions draw from the global generator.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

const randomness = "math/rand/v2"

// impure lists the statements of a file that start goroutines, and its uses of global randomness:
// linters, which check imports and calls of package time, do not find these. The coroutines of
// package iter, on which the simulator's threads run, do not count as goroutines: one of them runs
// at a time, until it yields.
func impure(fset *token.FileSet, f *ast.File) (out []string) {
	random := "" // the name of the package in this file
	for _, i := range f.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err != nil || p != randomness {
			continue
		}
		random = path.Base(path.Dir(randomness))
		if i.Name != nil {
			random = i.Name.Name
		}
	}
	refuse := func(n ast.Node, what string) {
		out = append(out, fmt.Sprintf("%v: %s", fset.Position(n.Pos()), what))
	}
	if random == "." {
		refuse(f.Name, "imports "+randomness+" into its own names")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			refuse(n, "starts a goroutine")
		case *ast.SelectorExpr:
			// A name that the file declares has an object; the name of an import has none.
			if x, ok := n.X.(*ast.Ident); ok && x.Name == random && x.Obj == nil && !slices.Contains(seeded, n.Sel.Name) {
				refuse(n, "uses the global "+randomness+"."+n.Sel.Name)
			}
		}
		return true
	})
	return out
}

func TestSansIOWithoutGoroutinesAndGlobalRandomness(t *testing.T) {
	for _, s := range sources(t) {
		if !table[s.pkg].sansIO() || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, s.path, read(t, s.path), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range impure(fset, f) {
			t.Errorf("%s in package %s, which is sans-I/O: pass it in", wrong, s.pkg)
		}
	}
}

// The check refuses planted goroutines and global randomness.
func TestImpureRefuses(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{
		{"import \"math/rand/v2\"\nfunc f(r *rand.Rand) uint64 { return rand.New(rand.NewPCG(1, r.Uint64())).Uint64() }", 0},
		{"import \"math/rand/v2\"\ntype t struct{ rand *rand.Rand }\nfunc (x t) f() int { return x.rand.IntN(2) }", 0},
		{"import \"math/rand/v2\"\nvar source rand.Source\nfunc f(rand *rand.Rand) int { return rand.IntN(2) }", 0},
		{"import \"math/rand/v2\"\nfunc f() int { return rand.IntN(2) }", 1},
		{"import \"math/rand/v2\"\nvar draw = rand.Uint64", 1},
		{"import r \"math/rand/v2\"\nfunc f() int { return r.IntN(2) + r.N(3) }", 2},
		{"import . \"math/rand/v2\"\nfunc f() int { return IntN(2) }", 1},
		{"func f() { go f() }", 1},
		{"func f() { func() { go func() {}() }() }", 1},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x\n"+c.text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := impure(fset, f); len(got) != c.want {
			t.Errorf("%s: refused %q, want %d", c.text, got, c.want)
		}
	}
}
