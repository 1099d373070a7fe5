package layering

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxScreen is how many lines the page of a top-level folder may have.
const maxScreen = 40

// parts are what the page of a top-level folder says, in this order.
var parts = []string{"**In:** ", "**Out:** ", "**Read first:** [", "**The caller's duties:** "}

var matters = regexp.MustCompile("(?m)^- `([a-z0-9/]+)\\.([A-Z][A-Za-z0-9]*)`: .+$")

// Each top-level folder has a page of one screen. It says what comes in and out, which file to read
// first, and what the caller must do; the types that it names are there.
func TestFoldersSayWhatTheyAre(t *testing.T) {
	for _, folder := range slices.Concat(floors...) {
		for _, wrong := range page(folder, read(t, folder+"/README.md"), declared) {
			t.Errorf("%s/README.md: %s", folder, wrong)
		}
	}
}

// page returns what is wrong with the page of a folder. declares reports whether a package has a
// type.
func page(folder string, text []byte, declares func(pkg, name string) bool) (wrong []string) {
	if n := bytes.Count(text, []byte("\n")); n > maxScreen {
		wrong = append(wrong, fmt.Sprintf("it has %d lines; one screen has %d", n, maxScreen))
	}
	if !bytes.HasPrefix(text, []byte("# "+folder+"\n")) {
		wrong = append(wrong, "its heading is not the name of the folder")
	}
	rest := text
	for _, p := range parts {
		_, after, ok := bytes.Cut(rest, []byte("\n"+p))
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%q is missing, or in another place", p))
			continue
		}
		rest = after
	}
	for _, m := range matters.FindAllSubmatch(text, -1) {
		if pkg, name := string(m[1]), string(m[2]); !strings.HasPrefix(pkg+"/", folder+"/") || !declares(pkg, name) {
			wrong = append(wrong, fmt.Sprintf("%s has no type %s", pkg, name))
		}
	}
	return wrong
}

// declared reports whether a package declares a type.
func declared(pkg, name string) bool {
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*.go"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(path string) bool {
		src, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(src, []byte(name)) {
			return false
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		return err == nil && slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			g, ok := d.(*ast.GenDecl)
			return ok && slices.ContainsFunc(g.Specs, func(s ast.Spec) bool {
				ts, ok := s.(*ast.TypeSpec)
				return ok && ts.Name.Name == name
			})
		})
	})
}

// What is missing on a page is found.
func TestPagesOfFoldersAreChecked(t *testing.T) {
	good := "# a\n\nIt is a.\n\n**In:** x\n\n**Out:** y\n\n**Read first:** [a/b.go](b.go).\n\n- `a/b.T`: it\n\n**The caller's duties:** none\n"
	has := func(pkg, name string) bool { return path.Base(pkg) == "b" && name == "T" }
	if wrong := page("a", []byte(good), has); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
	for _, change := range [][2]string{
		{"# a\n", "# b\n"},
		{"**In:**", "In:"},
		{"**Out:** y\n\n", ""},
		{"b.T", "b.U"},
		{"a/b.T", "c/b.T"},
		{"It is a.", strings.Repeat("\n", maxScreen)},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if wrong := page("a", []byte(bad), has); len(wrong) != 1 {
			t.Errorf("%q for %q: %q", change[1], change[0], wrong)
		}
	}
}
