package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// checker runs Go's type checker on a package with changes. That is quicker than compiling it.
type checker struct {
	set      *token.FileSet
	path     string // the import path
	name     string
	files    map[string]*ast.File // by the file names of find
	imported types.Importer
}

// newChecker reads the package in a folder.
func newChecker(pkg string) (*checker, error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Name,Export,GoFiles,DepOnly,Standard",
		"./"+pkg, "cmp", "os", "strconv", "syscall") // the last ones are for supportSource
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &checker{set: token.NewFileSet(), files: map[string]*ast.File{}}
	exports := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Name, Export string
			GoFiles                  []string
			DepOnly, Standard        bool
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly || p.Standard {
			continue
		}
		c.path, c.name = p.ImportPath, p.Name
		for _, f := range p.GoFiles {
			f = filepath.Join(pkg, f)
			if c.files[f], err = parser.ParseFile(c.set, f, nil, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
		}
	}
	c.imported = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c, nil
}

// check returns the type errors of the package if the contents of some files are replaced. If info
// is not nil, check stores the types of all expressions in it.
func (c *checker) check(replaced map[string][]byte, info *types.Info) []types.Error {
	var all []types.Error
	sources := maps.Clone(c.files)
	for name, src := range replaced {
		var err error
		if sources[name], err = parser.ParseFile(c.set, name, src, parser.SkipObjectResolution); err != nil {
			return []types.Error{{Fset: c.set, Msg: err.Error()}}
		}
	}
	files := slices.Collect(maps.Values(sources))
	conf := types.Config{Importer: c.imported, Sizes: types.SizesFor("gc", "amd64"), Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) {
			all = append(all, e)
		}
	}}
	_, _ = conf.Check(c.path, c.set, files, info) // the function Error has put the errors into all
	return all
}

// compiles reports whether the package compiles with a change.
func (c *checker) compiles(m *mutant) bool {
	return len(c.check(map[string][]byte{m.file: m.source()}, nil)) == 0
}

// place is where an expression is: its bytes in a file.
type place struct {
	file       string
	begin, end int
}

// typed returns the types of the package's expressions, as text that the expression's file can use:
// other packages have their names from the file's imports. A type that the file cannot name is left
// out.
func (c *checker) typed() map[place]string {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	c.check(nil, info)
	named := map[string]map[string]string{} // file, import path: name
	for name, file := range c.files {
		named[name] = map[string]string{}
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if i.Name != nil {
				named[name][path] = i.Name.Name
			} else {
				named[name][path] = filepath.Base(path)
			}
		}
	}
	out := map[place]string{}
	for x, tv := range info.Types {
		begin, end := c.set.Position(x.Pos()), c.set.Position(x.End())
		known := true
		text := types.TypeString(tv.Type, func(p *types.Package) string {
			if p.Path() == c.path {
				return ""
			}
			n := named[begin.Filename][p.Path()]
			known = known && n != ""
			return n
		})
		if b, ok := tv.Type.(*types.Basic); known && (!ok || b.Info()&types.IsUntyped == 0) {
			out[place{begin.Filename, begin.Offset, end.Offset}] = text
			if tv.Value != nil {
				c.inherit(out, x, text)
			}
		}
	}
	return out
}

// inherit gives the parts of a constant expression the type of the expression; the type checker
// leaves the parts untyped.
func (c *checker) inherit(typed map[place]string, x ast.Expr, text string) {
	begin, end := c.set.Position(x.Pos()), c.set.Position(x.End())
	if at := (place{begin.Filename, begin.Offset, end.Offset}); typed[at] == "" {
		typed[at] = text
	}
	switch x := x.(type) {
	case *ast.ParenExpr:
		c.inherit(typed, x.X, text)
	case *ast.UnaryExpr:
		c.inherit(typed, x.X, text)
	case *ast.BinaryExpr:
		if x.Op.Precedence() == token.EQL.Precedence() {
			return // the operands of a comparison have another type than its result
		}
		c.inherit(typed, x.X, text)
		if x.Op != token.SHL && x.Op != token.SHR {
			c.inherit(typed, x.Y, text)
		}
	}
}
