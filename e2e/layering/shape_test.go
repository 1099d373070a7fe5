package layering

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Bounds of what a type reaches through embedding. A call must say where it goes: a type that needs
// much of another one has it as a named field.
const (
	// maxReach bounds the methods of a type and of all types of its package that it embeds.
	maxReach = 40
	// maxDepth bounds how deep types with methods of one package embed each other.
	maxDepth = 1
)

// shapes returns what breaks a rule, as lines "rule package.Name", of one package without its tests.
// It knows the types of this package alone, so it needs no other.
func shapes(pkg string, files []*ast.File, fset *token.FileSet) (out []string) {
	conf := types.Config{IgnoreFuncBodies: true, FakeImportC: true, Importer: nothingElse{}, Error: func(error) {}}
	p, _ := conf.Check(pkg, fset, files, nil) // what it says of other packages is no matter
	for _, name := range p.Scope().Names() {
		said := func(rule string) { out = append(out, rule+" "+pkg+"."+name) }
		switch o := p.Scope().Lookup(name).(type) {
		case *types.TypeName:
			t, ok := o.Type().(*types.Named)
			if !ok || o.IsAlias() {
				continue
			}
			methods := map[*types.Func]bool{}
			depth := reach(t, p, methods, map[*types.Named]bool{})
			if len(methods) > maxReach {
				said("reach")
			}
			if depth > maxDepth {
				said("depth")
			}
			if s, ok := t.Underlying().(*types.Struct); ok && s.NumFields() == 1 && t.NumMethods() > 0 && pointed(s.Field(0).Type(), p) != nil {
				said("carrier")
			}
		case *types.Func:
			in := o.Type().(*types.Signature).Params()
			if in.Len() == 0 {
				continue
			}
			if t := pointed(in.At(0).Type(), p); t != nil && t.NumMethods() > 0 && !generic(o.Signature(), t) {
				said("function")
			}
		}
	}
	return out
}

// reach adds the methods of a type and of those that it embeds, and returns how deep types with
// methods are embedded.
func reach(t *types.Named, p *types.Package, methods map[*types.Func]bool, seen map[*types.Named]bool) (depth int) {
	if seen[t] || t.Obj().Pkg() != p {
		return 0
	}
	seen[t] = true
	for m := range t.Origin().Methods() {
		methods[m] = true
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return 0
	}
	for f := range s.Fields() {
		e := named(f.Type())
		if !f.Embedded() || e == nil || e.Obj().Pkg() != p {
			continue
		}
		before := len(methods)
		below := reach(e, p, methods, seen)
		if len(methods) > before || e.NumMethods() > 0 {
			depth = max(depth, 1+below)
		}
	}
	return depth
}

// generic reports whether a function of a *t has type parameters besides those of t. A method cannot
// have any, so such a function may remain one.
func generic(f *types.Signature, t *types.Named) bool {
	of := slices.Collect(t.TypeArgs().Types())
	for own := range f.TypeParams().TypeParams() {
		if !slices.Contains(of, types.Type(own)) {
			return true
		}
	}
	return false
}

// named returns the named type of T or *T, or nil.
func named(t types.Type) *types.Named {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, _ := t.(*types.Named)
	return n
}

// pointed returns the struct type T of the package if t is *T, or nil.
func pointed(t types.Type, p *types.Package) *types.Named {
	n := named(t)
	if _, ok := t.(*types.Pointer); !ok || n == nil || n.Obj().Pkg() != p {
		return nil
	}
	return n
}

// nothingElse is an importer that has no package.
type nothingElse struct{}

func (nothingElse) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

func TestCallsSayWhereTheyGo(t *testing.T) {
	fset, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, s.path, read(t, s.path), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		packages[s.pkg] = append(packages[s.pkg], f)
	}
	var found []string
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		found = append(found, shapes(pkg, packages[pkg], fset)...)
	}
	slices.Sort(found)
	found = slices.Compact(found) // files for several systems may have one function each
	for _, x := range found {
		t.Error(advice(x))
	}
}

// advice says what to do about something that breaks a rule.
func advice(line string) string {
	rule, name, _ := strings.Cut(line, " ")
	return name + map[string]string{
		"reach":    fmt.Sprintf(" reaches more than %d methods through what it embeds: make parts of it named fields", maxReach),
		"depth":    fmt.Sprintf(" embeds types with methods more than %d deep: make them named fields", maxDepth),
		"carrier":  " has methods, and one field, a pointer to a type of its package: give that type the methods, or the parts they need",
		"function": " is a function of a pointer to a type of its package: make it a method",
	}[rule]
}

// Each shape is found, and its neighbours are not.
func TestShapesAreFound(t *testing.T) {
	var many strings.Builder
	for i := range maxReach {
		fmt.Fprintf(&many, "func (b *base) m%d() {}\n", i)
	}
	for _, c := range []struct{ src, want string }{
		{"type base struct{ n int }\n" + many.String(), ""},
		{"type base struct{ n int }\n" + many.String() + "type over struct{ base; k int }\nfunc (o over) one() {}", "reach p.over"},
		{"type base struct{ n int }\n" + many.String() + "type over struct{ base base; k int }\nfunc (o over) one() {}", ""},
		{"type a struct{}\nfunc (a) f() {}\ntype b struct{ a; n int }\ntype c struct{ *b; n int }", "depth p.c"},
		{"type a struct{ n int }\ntype b struct{ a; n int }\ntype c struct{ *b; n int }", ""},
		{"type a struct{ n int }\ntype c struct{ *a }\nfunc (c) f() {}", "carrier p.c"},
		{"type a struct{ n int }\ntype c struct{ it *a }\nfunc (c) f() {}", "carrier p.c"},
		{"type a struct{ n int }\ntype c struct{ it *a }", ""},
		{"type c struct{ it *x.T }\nfunc (c) f() {}", ""},
		{"type a struct{ n int }\nfunc (a) f() {}\nfunc g(v *a) {}", "function p.g"},
		{"type a[T any] struct{ n T }\nfunc (a[T]) f() {}\nfunc g[T any](v *a[T]) {}", "function p.g"},
		{"type a struct{ n int }\nfunc (a) f() {}\nfunc g[T any](v *a) (t T) { return t }", ""},
		{"type a[T any] struct{ n T }\nfunc (a[T]) f() {}\nfunc g[K, T any](v *a[T], k K) {}", ""},
		{"type a[T any] struct{ n T }\nfunc (a[T]) f() {}\nfunc g(v *a[int]) {}", "function p.g"},
		{"type a struct{ n int }\nfunc (a) f() {}\ntype b[T any] struct{ n T }\nfunc g(v *a, w b[int]) b[int] { return w }", "function p.g"},
		{"type a struct{ n int }\nfunc (a) f() {}\nfunc g(v a) {}\nfunc h(n int, v *a) {}", ""},
		{"type a struct{ n int }\nfunc g(v *a) {}", ""},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "p.go", "package p\n"+c.src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(shapes("p", []*ast.File{f}, fset), ", "); got != c.want {
			t.Errorf("%s\ngives %q, want %q", c.src[max(0, len(c.src)-120):], got, c.want)
		}
	}
	if !strings.HasPrefix(advice("reach p.x"), "p.x reaches") {
		t.Error(advice("reach p.x"))
	}
}
