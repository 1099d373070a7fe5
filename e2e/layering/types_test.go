package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxMethods and maxFields bound a type. A type that needs more has more than one responsibility.
const (
	maxMethods = 40
	maxFields  = 20
)

// large lists the types that may be larger, each with its bounds and the reason. A type that has
// become smaller leaves the list.
var large = map[string]bound{
	"softrnic/metrics.NIC":       {fields: 61, why: "a counter a field, with the names that operators know"},
	"softrnic/wire/mad.REQ":      {methods: 4, fields: 25, why: "the fields of the message, one by one"},
	"swordbox/cloversteer.Stats": {fields: 31, why: "a counter a field"},
	"swordbox/conntrack.Stats":   {fields: 24, why: "a counter a field"},
	"swordbox/serialize.Stats":   {fields: 33, why: "a counter a field"},
}

// bound is the size that a type may have.
type bound struct {
	methods, fields int
	why             string
}

// sizes counts methods and fields of every struct and every type with methods in the files, by
// "package.Type". Test files do not count.
func sizes(files map[string]*ast.File) map[string]bound {
	out := map[string]bound{}
	for path, f := range files {
		pkg := filepath.ToSlash(filepath.Dir(path)) + "."
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					continue
				}
				b := out[pkg+receiver(d.Recv.List[0].Type)]
				b.methods++
				out[pkg+receiver(d.Recv.List[0].Type)] = b
			case *ast.GenDecl:
				for _, s := range d.Specs {
					ts, ok := s.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if st, ok := ts.Type.(*ast.StructType); ok {
						b := out[pkg+ts.Name.Name]
						for _, field := range st.Fields.List {
							b.fields += max(1, len(field.Names))
						}
						out[pkg+ts.Name.Name] = b
					}
				}
			}
		}
	}
	return out
}

// receiver names the type of a method's receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// tooLarge lists the types that exceed their bounds, and the rows of large that are no longer
// needed.
func tooLarge(found, large map[string]bound) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		is := found[name]
		may, listed := large[name]
		if !listed {
			may = bound{methods: maxMethods, fields: maxFields}
		}
		if is.methods > may.methods || is.fields > may.fields {
			out = append(out, fmt.Sprintf("%s has %d methods and %d fields; the bounds are %d and %d: split it by responsibility",
				name, is.methods, is.fields, may.methods, may.fields))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(large)) {
		switch is, may := found[name], large[name]; {
		case is.methods <= maxMethods && is.fields <= maxFields:
			out = append(out, name+" is within the bounds of every type: take its row out of the list")
		case may.why == "":
			out = append(out, name+" is listed without a reason")
		}
	}
	return out
}

func TestTypesAreSmall(t *testing.T) {
	files := map[string]*ast.File{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), s.path, read(t, s.path), 0)
		if err != nil {
			t.Fatal(err)
		}
		files[s.path] = f
	}
	for _, wrong := range tooLarge(sizes(files), large) {
		t.Error(wrong)
	}
}

// The check finds types that exceed the bound, with and without a row in large, and rows that are
// not needed.
func TestLargeTypesAreFound(t *testing.T) {
	var src strings.Builder
	src.WriteString("package p\ntype Wide struct {\n")
	for i := range maxFields + 1 {
		fmt.Fprintf(&src, "f%d int\n", i)
	}
	src.WriteString("}\ntype Busy[T any] struct{ a, b int }\n")
	for i := range maxMethods + 1 {
		fmt.Fprintf(&src, "func (b *Busy[T]) M%d() {}\n", i)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "p/p.go", src.String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	found := sizes(map[string]*ast.File{"p/p.go": f})
	for _, c := range []struct {
		large map[string]bound
		want  string
	}{
		{nil, "p.Busy has 41 methods and 2 fields; p.Wide has 0 methods and 21 fields"},
		{map[string]bound{"p.Wide": {fields: 21, why: "a wire format"}}, "p.Busy has 41"},
		{map[string]bound{"p.Wide": {fields: 22, why: "x"}, "p.Busy": {methods: 41, fields: 2}}, "p.Busy is listed without"},
		{map[string]bound{"p.Wide": {fields: 30, why: "x"}, "p.Busy": {methods: 50, fields: 9, why: "x"}, "p.Gone": {why: "x"}}, "p.Gone is within"},
	} {
		got := tooLarge(found, c.large)
		for i, want := range strings.Split(c.want, "; ") {
			if len(got) != strings.Count(c.want, ";")+1 || !strings.HasPrefix(got[i], want) {
				t.Errorf("%v: got %q, want %q", c.large, got, c.want)
			}
		}
	}
}
