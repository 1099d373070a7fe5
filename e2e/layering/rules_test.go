package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A rule of a specification is cited where it is obeyed and in the test that proves it, in one of
// these forms:
//
//	IBTA 9.7.4.1/length     the section of the InfiniBand specification, volume 1, with a word for the rule in it
//	IBTA 9.2                the whole section, which says one thing
//	C9-88, o9-5.2           a compliance statement
//	A17.3.1                 a section of an annex
//
// In code the citation is in a comment. In tests it counts in the comment above a Test or Fuzz
// function, or within it, and in the prose of a scenario script: nowhere else, so that each proof
// has a name. The word is ours; the same rule has the same.
var (
	compliance = regexp.MustCompile(`\b[CcOo]A?\d+-\d+(?:\.\d+)*\b`)
	annex      = regexp.MustCompile(`\bA\d+(?:\.\d+)+(?:/[a-z-]+)?`)
	sections   = regexp.MustCompile(`\bIBTA (?:vol(?:ume|\.) 1, )?(\d+(?:\.\d+)+(?:/[a-z-]+)?(?:(?:,| and) \d+(?:\.\d+)+(?:/[a-z-]+)?)*)`)
	section    = regexp.MustCompile(`\d+(?:\.\d+)+(?:/[a-z-]+)?`)
	specName   = regexp.MustCompile(`\bIBTA\b`)
)

// citations returns the rules that a text cites. wrong is a mention of the specification that cites
// no rule.
func citations(text string) (rules []string, wrong string) {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "//", " ")), " ")
	for _, c := range compliance.FindAllString(text, -1) {
		rules = append(rules, strings.ToUpper(c[:1])+c[1:])
	}
	rules = append(rules, annex.FindAllString(text, -1)...)
	for _, m := range sections.FindAllStringSubmatch(text, -1) {
		rules = append(rules, section.FindAllString(m[1], -1)...)
	}
	left := annex.ReplaceAllString(sections.ReplaceAllString(text, ""), "\x00")
	for _, at := range specName.FindAllStringIndex(left, -1) {
		if rest := strings.TrimPrefix(strings.TrimPrefix(left[at[1]:], " annex"), " "); !strings.HasPrefix(rest, "\x00") && !compliance.MatchString(firstWord(rest)) {
			return rules, left[max(0, at[0]-20):min(len(left), at[1]+30)]
		}
	}
	return rules, ""
}

func firstWord(s string) string { return strings.SplitN(s, " ", 2)[0] }

// book lists for each rule where it is obeyed and which tests prove it.
type book struct {
	obeyed, proved map[string][]string
	wrong          []string
}

func newBook() *book { return &book{obeyed: map[string][]string{}, proved: map[string][]string{}} }

func (b *book) cite(to map[string][]string, where, text string) {
	rules, wrong := citations(text)
	if wrong != "" {
		b.wrong = append(b.wrong, fmt.Sprintf("%s mentions the specification without a section: ...%s...", where, wrong))
	}
	for _, r := range rules {
		if !slices.Contains(to[r], where) {
			to[r] = append(to[r], where)
		}
	}
}

// read adds the citations of a Go file to the book.
func (b *book) read(path string, src []byte) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, src, parser.ParseComments)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(path, "_test.go")
	for _, c := range f.Comments {
		if c.Pos() < f.Package && !test {
			b.cite(b.obeyed, path, c.Text()) // the package comment
			continue
		}
		switch name, isTest := owner(f, c); {
		case !test:
			b.cite(b.obeyed, path, c.Text())
		case isTest:
			b.cite(b.proved, path+" "+name, c.Text())
		default:
			if rules, _ := citations(c.Text()); len(rules) > 0 {
				at := files.Position(c.Pos())
				b.wrong = append(b.wrong, fmt.Sprintf("%s:%d cites %v outside of a test function: name the test that proves it", path, at.Line, rules))
			}
		}
	}
	return nil
}

// owner returns the name of the function that a comment is above or within.
func owner(f *ast.File, c *ast.CommentGroup) (name string, isTest bool) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Doc != c && (c.Pos() < fn.Pos() || c.End() > fn.End()) {
			continue
		}
		return fn.Name.Name, fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz"))
	}
	return "", false
}

// script adds the citations in the prose of a scenario script: lines that begin with #.
func (b *book) script(path, text string) {
	var prose strings.Builder
	for line := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(line, "#"); ok {
			prose.WriteString(p)
		} else {
			prose.WriteString("\n.\n")
		}
	}
	b.cite(b.proved, path, prose.String())
}

// judge lists rules without test and tests without rule.
func (b *book) judge() []string {
	out := slices.Clone(b.wrong)
	for _, r := range slices.Sorted(maps.Keys(b.obeyed)) {
		if len(b.proved[r]) == 0 {
			out = append(out, fmt.Sprintf("%s, cited in %s, has no test", r, strings.Join(b.obeyed[r], ", ")))
		}
	}
	for _, r := range slices.Sorted(maps.Keys(b.proved)) {
		if len(b.obeyed[r]) == 0 {
			out = append(out, fmt.Sprintf("%s, cited in %s, is not cited where it is obeyed", r, strings.Join(b.proved[r], ", ")))
		}
	}
	return out
}

// ruled are the packages that obey a specification: each must cite it.
var ruled = []string{"softrnic/wire", "softrnic/wire/mad", "softrnic/mem", "softrnic/cq", "softrnic/transport", "softrnic/cm", "softrnic/engine"}

// Every rule has its test, and every test of a rule its rule. With -v the book is printed.
func TestCitedRulesAreTested(t *testing.T) {
	b := newBook()
	for _, s := range sources(t) {
		if strings.HasPrefix(s.pkg, "softrnic") && s.pkg != "softrnic/wire/dissect" {
			if err := b.read(s.path, read(t, s.path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pkg := range []string{"softrnic/transport", "softrnic/cm"} { // files whose functions run them
		scripts, err := filepath.Glob(filepath.Join("..", "..", pkg, "testdata", "*.txt"))
		if err != nil || len(scripts) == 0 {
			t.Fatalf("%s: no scripts: %v", pkg, err)
		}
		for _, path := range scripts {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b.script(pkg+"/testdata/"+filepath.Base(path), string(text))
		}
	}
	for _, wrong := range b.judge() {
		t.Error(wrong)
	}
	for _, pkg := range ruled {
		if !slices.ContainsFunc(slices.Collect(maps.Values(b.obeyed)), func(at []string) bool {
			return slices.ContainsFunc(at, func(p string) bool { return filepath.ToSlash(filepath.Dir(p)) == pkg })
		}) {
			t.Errorf("%s cites no rule", pkg)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(b.obeyed)) {
		t.Logf("%-24s obeyed in %s\n%34sproved by %s", r, strings.Join(b.obeyed[r], ", "), "", strings.Join(b.proved[r], ", "))
	}
}

// The check refuses the citations by which a rule could seem to be proven.
func TestRulesCannotBeFooled(t *testing.T) {
	code := "// Package p. IBTA 9.7.4.1/length.\npackage p\n\n// F obeys C9-88 (IBTA 9.2).\nfunc F() {\n\t// A17.3.1\n}\n"
	good := "package p\n\n// It does (IBTA 9.7.4.1/length, 9.2, C9-88).\nfunc TestF(t *testing.T) {\n\t// A17.3.1\n}\n"
	for name, c := range map[string]struct{ code, test, script, want string }{
		"all is proved":           {code, good, "", ""},
		"no test":                 {code, "package p\n", "", "9.2, cited in p.go, has no test"},
		"a helper":                {code, strings.ReplaceAll(good, "TestF", "helper"), "", "outside of a test function"},
		"a method named Test":     {code, strings.ReplaceAll(good, "func TestF", "func (s *suite) TestF"), "", "outside of a test function"},
		"a variable":              {code, "package p\n\n// C9-88\nvar x int\n", "", "outside of a test function"},
		"the head of a file":      {code, "// C9-88\n\npackage p\n", "", "outside of a test function"},
		"a string":                {code, "package p\n\nfunc TestF() { _ = \"C9-88 A17.3.1 IBTA 9.2\" }\n", "", "C9-88, cited in p.go, has no test"},
		"another rule":            {code, strings.ReplaceAll(good, "/length", "/order"), "", "9.7.4.1/length, cited in p.go, has no test"},
		"a part of a number":      {code, strings.ReplaceAll(good, "9.2", "9.2.1"), "", "9.2, cited in p.go, has no test"},
		"a section for its rule":  {code, strings.ReplaceAll(good, "/length", ""), "", "9.7.4.1/length, cited in p.go, has no test"},
		"a test without rule":     {"package p\n", good, "", "is not cited where it is obeyed"},
		"a specification at last": {code + "\n// as IBTA says\nvar y int\n", good, "", "without a section"},
		"a script":                {code, "package p\n", "# C9-88, IBTA 9.7.4.1/length\n# and 9.2, A17.3.1.\n", ""},
		"what a script does":      {code, "package p\n", "post a C9-88 IBTA 9.7.4.1/length and 9.2 A17.3.1\n", "9.2, cited in p.go, has no test"},
	} {
		b := newBook()
		for path, src := range map[string]string{"p.go": c.code, "p_test.go": c.test} {
			if err := b.read(path, []byte(src)); err != nil {
				t.Fatal(name, err)
			}
		}
		b.script("p.txt", c.script)
		got := b.judge()
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
