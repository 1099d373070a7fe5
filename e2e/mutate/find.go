package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// mutant is one change of a file: text replaces the bytes from begin to end.
type mutant struct {
	file       string
	src        []byte
	line       int
	in         string // the function
	kind       string
	what       string // the whole expression, for key
	begin, end int
	text       string
	from, to   int // the whole expression or statement
}

// old returns the text that is replaced.
func (m *mutant) old() string { return string(m.src[m.begin:m.end]) }

// source returns the whole file with the change.
func (m *mutant) source() []byte {
	return []byte(string(m.src[:m.begin]) + m.text + string(m.src[m.end:]))
}

// key identifies the change, also if lines of the file have moved.
func (m *mutant) key() string {
	return fmt.Sprintf("%s %s: %s %s", m.file, m.in, m.kind, oneLine(m.what))
}

// String describes the change and its place.
func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s: %s → %s", m.file, m.line, m.in, m.kind, oneLine(m.old()), oneLine(m.text))
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if s == "" {
		return "nothing"
	}
	return s
}

// find lists the changes of a package's files in the order of the source.
func find(pkg string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		found, err := inFile(f, src)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is nothing to change")
	}
	return all, nil
}

// finder collects the possible changes of one file.
type finder struct {
	set  *token.FileSet
	file string
	src  []byte
	in   string
	out  []mutant
	// around is the binary expression that an operand belongs to. The description of a changed
	// constant names this expression.
	around map[ast.Expr]*ast.BinaryExpr
	// unused are constants whose value no caller uses; they are not changed.
	unused map[ast.Expr]bool
}

// inFile lists the possible changes of one file. It lists none for a file with a build tag.
func inFile(name string, src []byte) ([]mutant, error) {
	f := &finder{set: token.NewFileSet(), file: name, src: src, around: map[ast.Expr]*ast.BinaryExpr{}, unused: map[ast.Expr]bool{}}
	tree, err := parser.ParseFile(f.set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, c := range tree.Comments {
		if c.Pos() < tree.Package && strings.HasPrefix(c.List[0].Text, "//go:build") {
			return nil, nil
		}
	}
	for _, d := range tree.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		f.in = fn.Name.Name
		ast.Inspect(fn.Body, f.visit)
	}
	return f.out, nil
}

// add adds a change of the bytes between two positions.
func (f *finder) add(kind string, begin, end token.Pos, text string) {
	b, e := f.set.Position(begin), f.set.Position(end)
	f.out = append(f.out, mutant{file: f.file, src: f.src, line: b.Line, in: f.in, kind: kind, what: string(f.src[b.Offset:e.Offset]), begin: b.Offset, end: e.Offset, text: text, from: b.Offset, to: e.Offset})
}

// text is the source of a node.
func (f *finder) text(n ast.Node) string {
	return string(f.src[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

// swaps has the operators that are replaced, and by what.
var swaps = map[token.Token]struct{ kind, to string }{
	token.LSS: {"bound", "<="}, token.LEQ: {"bound", "<"}, token.GTR: {"bound", ">="}, token.GEQ: {"bound", ">"},
	token.EQL: {"equality", "!="}, token.NEQ: {"equality", "=="},
	token.LAND: {"logic", "||"}, token.LOR: {"logic", "&&"},
	token.ADD: {"arithmetic", "-"}, token.SUB: {"arithmetic", "+"},
}

// visit adds the changes of one node.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond)
		if f.text(n.Cond) == "err != nil" {
			for _, s := range n.Body.List {
				if r, ok := s.(*ast.ReturnStmt); ok {
					f.beside(r, "err")
				}
			}
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			f.negate(n.Cond)
		}
	case *ast.BinaryExpr:
		f.around[n.X], f.around[n.Y] = n, n
		if s, ok := swaps[n.Op]; ok {
			f.add(s.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), s.to)
			m := &f.out[len(f.out)-1]
			m.what, m.from, m.to = f.text(n), f.set.Position(n.Pos()).Offset, f.set.Position(n.End()).Offset
		}
	case *ast.ReturnStmt:
		f.beside(n, "false")
	case *ast.BasicLit:
		if n.Kind == token.INT && !f.unused[n] {
			if v, err := strconv.ParseUint(n.Value, 0, 63); err == nil {
				f.add("constant", n.Pos(), n.End(), strconv.FormatUint(v+1, 10))
				if whole := f.around[n]; whole != nil {
					f.out[len(f.out)-1].what += " in " + f.text(whole)
				}
			}
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			f.add("constant", n.Pos(), n.End(), other)
		}
	case *ast.BlockStmt:
		for _, s := range n.List {
			f.remove(s)
		}
	case *ast.CaseClause:
		for _, s := range n.Body {
			f.remove(s)
		}
	}
	return true
}

// beside marks the constants 0 that n returns together with an error or with false. By convention
// no caller uses them. no is the text of a last result that means failure, in addition to errors.
func (f *finder) beside(n *ast.ReturnStmt, no string) {
	if len(n.Results) < 2 {
		return
	}
	last := f.text(n.Results[len(n.Results)-1])
	if last != no && !failure.MatchString(last) {
		return
	}
	for _, r := range n.Results[:len(n.Results)-1] {
		if l, ok := r.(*ast.BasicLit); ok && l.Value == "0" {
			f.unused[l] = true
		}
	}
}

// failure matches expressions that are an error other than nil: calls of functions such as opError,
// postErr, errors.New and fmt.Errorf, and package variables such as ErrClosed.
var failure = regexp.MustCompile(`^(\w*[eE]rr(or)?(f|s\.New)?\(|fmt\.Errorf\(|(\w+\.)?[eE]rr[A-Z]\w*$)`)

func (f *finder) negate(cond ast.Expr) {
	f.add("condition", cond.Pos(), cond.End(), "!("+f.text(cond)+")")
}

// remove adds the removal of a statement, if it is of a kind without which the package can compile.
func (f *finder) remove(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if instrument(s.X) {
			return
		}
	case *ast.IncDecStmt:
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	case *ast.BranchStmt:
	default:
		return
	}
	f.add("statement", s.Pos(), s.End(), "")
}

// instrument reports whether x is a call of the coverage instrument (saw, sawAnswer, …). Such a
// function is empty without the build tag qpcover, so no test can notice that the call is missing.
func instrument(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	return strings.HasPrefix(name, "saw")
}
