package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired is a word that docs/glossary.md has replaced.
type retired struct {
	// word is a regular expression, without case, for the texts in which it is refused.
	word string
	// instead is what to write.
	instead string
	// below limits the word to folders in which it means the idea that has another term; empty:
	// everywhere.
	below []string
	// allowed are files and folders that may use it.
	allowed []string
}

var retiredWords = []retired{
	{word: `\bwhoever\b`, instead: "the subject: the client, the switch"},
	{word: `\bnobody\b`, instead: "no client, no process"},
	{word: `\bsomebody\b`, instead: "the subject: a client, a process"},
	{word: `\banew\b`, instead: "again"},
	{word: `\bin vain\b`, instead: "without result, and what was tried"},
	{word: `\bin (its|his|their) name\b`, instead: "on behalf of, or the subject itself"},
	{word: `\bof its own accord\b`, instead: "without a request"},
	{word: `\b(client|switch)[’']?s?[’']? own connections?\b|\bthe own connection\b`, instead: "the client's connection, the switch's connections"},
	{word: `\bsisters?\b`, instead: "variants"},
	{word: `\bcables?\b`, instead: "link", below: []string{"topo/container", "topo/rack", "docs"}},
	{word: `\b(are|is|was|were|been) led\b`, instead: "steered, referenced"},
	{word: `\bmend(s|ed)\b`, instead: "restore, fix, repair"},
	{word: `\bdisasters?\b`, instead: "fault"},
	{word: `\baskers?\b`, instead: "requester"},
	{word: `\bunder way\b`, instead: "in flight"},
	{word: `\bvanilla\b`, instead: "published", allowed: []string{"topo/cmd/rdmalab"}},
	{word: `\bmode .?(hard|paper)\b`, instead: "hardened, published", allowed: []string{"topo/cmd/rdmalab"}},
	{word: `\b(former|another|other|earlier|one) (life|lives)\b`, instead: "incarnation"},
	{word: "(?:^|[^-\"`])\\brows?\\b", instead: "flow", below: []string{"swordbox"}},
}

// glossary has every retired word; it may name them, and so may this file.
const glossary = "docs/glossary.md"

// wordless are texts that are not looked at: they list the words, or are made from texts that are
// looked at.
var wordless = []string{
	glossary, "e2e/layering/words_test.go",
	"docs/reference/commands.md", "docs/reference/counters.md", "docs/reference/packages.md",
}

// unclean are the packages and pages that still have retired words. The list only ever becomes
// shorter: with -v the test names those that can leave it.
var unclean = []string{}

// No comment, no text of the program and no page has a word that the glossary has replaced.
func TestRetiredWords(t *testing.T) {
	found := map[string][]string{} // by package or page
	for _, s := range sources(t) {
		if !slices.Contains(wordless, s.path) && !strings.HasSuffix(s.path, "_test.go") {
			for _, text := range prose(t, s.path) {
				found[s.pkg] = append(found[s.pkg], retiredIn(s.path, text)...)
			}
		}
	}
	for _, path := range pages(t) {
		if !slices.Contains(wordless, path) {
			found[path] = append(found[path], retiredIn(path, string(read(t, path)))...)
		}
	}
	for place, wrong := range found {
		switch listed := slices.Contains(unclean, place); {
		case listed && len(wrong) == 0:
			t.Logf("%s is clean: take it out of the list", place)
		case !listed:
			for _, w := range wrong {
				t.Error(w)
			}
		}
	}
	for _, place := range unclean {
		if _, ok := found[place]; !ok {
			t.Logf("%s is not there: take it out of the list", place)
		}
	}
}

// Every retired word stands in the glossary.
func TestGlossaryHasTheRetiredWords(t *testing.T) {
	text := string(read(t, glossary))
	for _, r := range retiredWords {
		if !regexp.MustCompile(`(?i)`+r.word).MatchString(text) && !strings.Contains(r.word, "mode") && !strings.Contains(r.word, "former") {
			t.Errorf("%s does not name %q", glossary, r.word)
		}
	}
}

var expressions = map[string]*regexp.Regexp{}

// expression compiles a word once.
func expression(word string) *regexp.Regexp {
	if expressions[word] == nil {
		expressions[word] = regexp.MustCompile(`(?i)` + word)
	}
	return expressions[word]
}

// retiredIn says which retired words a text of a file has.
func retiredIn(path, text string) []string {
	var out []string
	for _, r := range retiredWords {
		within := func(list []string) bool {
			return slices.ContainsFunc(list, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
		}
		if within(r.allowed) || len(r.below) > 0 && !within(r.below) {
			continue
		}
		if at := expression(r.word).FindStringIndex(text); at != nil {
			near := strings.Join(strings.Fields(text[max(0, at[0]-40):min(len(text), at[1]+30)]), " ")
			out = append(out, path+": "+text[at[0]:at[1]]+" (write: "+r.instead+"; see "+glossary+") in: …"+near+"…")
		}
	}
	return out
}

// prose lists the comments of a Go file, and those of its texts that are more than a name.
func prose(t *testing.T, path string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, read(t, path), parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range f.Comments {
		out = append(out, c.Text())
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Count(lit.Value, " ") > 1 {
			out = append(out, lit.Value)
		}
		return true
	})
	return out
}

// pages lists the Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "out"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			rel, err := filepath.Rel(root, path)
			out = append(out, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil || len(out) == 0 {
		t.Fatal(err, os.ErrNotExist)
	}
	return out
}
