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
	// term is the word as it stands in the glossary: in the column "replaces", or in the list of
	// words of style.
	term string
	// word is a regular expression, without case, for the texts in which it is refused.
	word string
	// instead is what to write.
	instead string
	// planted is a text that must be refused.
	planted string
	// below limits the word to folders in which it means the idea that has another term; empty:
	// everywhere.
	below []string
	// allowed are files and folders that may use it.
	allowed []string
}

var (
	// parsers read the values that earlier versions of the program took.
	parsers = []string{"cli", "sim/scenario/variants_test.go", "rackfile/rules"}
	// rackKey are the files that have the key cable of a rack file.
	rackKey = []string{
		"rackfile", "topo/rack/up.go", "cli/help/capture.md", "e2e/benchrack", "e2e/fixture", "e2e/chaos/memorylink_test.go", "e2e/onerma/onerma_suite_test.go", "e2e/smoke/apply_test.go",
		"docs/reference/rack-file.md", "docs/reference/commands.md", "docs/explain", "docs/troubleshooting.md",
	}
	// machines are the state machines that a shell runs, and the shells.
	machines = []string{"softrnic/engine", "softrnic/transport", "softrnic/device", "sim/simnet", "sim/simrack"}
	// journals are the packages that write the switch's journal, or hand it on.
	journals = []string{"swordbox/journal", "swordbox/apps", "swordbox/staleflows", "swordbox/switchconn", "topo/switchd"}
)

var retiredWords = []retired{
	// style
	{term: "whoever", word: `\bwhoever\b`, instead: "the subject: the client, the switch", planted: "Whoever asks is answered."},
	{term: "nobody", word: `\bnobody\b`, instead: "no client, no process", planted: "nobody’s packet"},
	{term: "somebody", word: `\bsomebody\b`, instead: "the subject: a client, a process", planted: "somebody else"},
	{term: "anew", word: `\banew\b`, instead: "again", planted: "begins anew"},
	{term: "in vain", word: `\bin vain\b`, instead: "without result, and what was tried", planted: "waits in vain"},
	{term: "in its name", word: `\bin (its|his|their) name\b`, instead: "on behalf of, or the subject itself", planted: "answers in its name"},
	{term: "of its own accord", word: `\bof its own accord\b`, instead: "without a request", planted: "ends of its own accord"},
	{term: "sisters", word: `\bsisters?\b`, instead: "variants", planted: "the test and its sisters"},
	{term: "are led", word: `\b(are|is|was|were|been) led\b`, instead: "steered, referenced", planted: "appends are led"},
	{term: "mended", word: `\bmend(s|ed|ing)?\b`, instead: "restore, fix, repair", planted: "until the link is mended", allowed: []string{"cli", "docs/reference/commands.md"}},
	{term: "disaster", word: `\bdisasters?\b`, instead: "fault", planted: "a disaster in a run"},
	{term: "strike", word: `\b(strikes?|struck)\b`, instead: "fault, inject", planted: "the strikes of a plan"},
	// terms
	{term: "asker", word: `\baskers?\b`, instead: "requester", planted: "the asker's number"},
	{term: "under way", word: `\bunder way\b`, instead: "in flight", planted: "requests under way"},
	{term: "cable", word: `\bcables?\b`, instead: "link", planted: "the cable of a host", below: []string{"cli", "cmd", "experiment", "rackfile", "sim", "topo", "swordbox", "clover", "sherman", "store", "compose", "docs", "e2e"}, allowed: append([]string{"e2e/memcable", "cli/help/link.md"}, rackKey...)},
	{term: "freeze", word: `(?:^|[^.\w])(freez(e|es|ing)|froze|frozen)\b`, instead: "hang, hung", planted: "a host that is frozen"},
	{term: "body", word: `\b(a|the|its) bod(y|ies)\b`, instead: "shell", planted: "calls of the body", below: machines},
	{term: "life", word: `\b(former|another|other|earlier|new|first|next|same|one) (life|lives)\b`, instead: "incarnation", planted: "a flow of a former life"},
	{term: "paper", word: `\b(mode .?|in |or )paper\b`, instead: "published", planted: "in mode paper", below: []string{"swordbox", "cli", "cmd", "experiment", "rackfile", "sim", "topo"}, allowed: parsers},
	{term: "vanilla", word: `\bvanilla\b`, instead: "published", planted: "the vanilla store", allowed: parsers},
	{term: "faithful", word: `\bfaithful\b`, instead: "published", planted: "the faithful layout", allowed: parsers},
	{term: "hard", word: `\b(mode .?|in |none in )hard\b`, instead: "hardened", planted: "in mode hard", below: []string{"swordbox", "cli", "cmd", "experiment", "rackfile", "sim", "topo"}, allowed: parsers},
	{term: "sound", word: `\b(mode .?|the )sound\b`, instead: "hardened", planted: "the sound layout", below: []string{"clover", "sherman", "cli", "cmd", "experiment", "rackfile", "sim", "topo"}, allowed: parsers},
	{term: "row", word: "(?:^|[^-\"`])\\brows?\\b", instead: "flow", planted: "the row of a client", below: []string{"swordbox"}, allowed: []string{"swordbox/statestore", "swordbox/telemetry", "topo/switchd/box_test.go"}},
	{term: "former row", word: `\bformer rows?\b`, instead: "stale flow", planted: "a former row"},
	{term: "own connection", word: `\b(client|server)[’']?s?[’']? own connections?\b|\bthe own connection\b`, instead: "the client's connection", planted: "a client's own connection"},
	{term: "the switch's own connection", word: `\bswitch[’']?s?[’']? own connections?\b`, instead: "the switch's connection", planted: "the switch's own connections"},
	{term: "lane", word: `\blanes?\b`, instead: "sequencer", planted: "the lane of a flow", below: []string{"swordbox"}},
	{term: "turned", word: `\bturned (CAS|FAA|atomic|request|WRITE)s?\b`, instead: "replaced", planted: "a turned CAS", below: []string{"swordbox", "cli", "cmd", "experiment", "rackfile", "sim", "topo", "e2e", "docs"}},
	{term: "record", word: `\b(a|an|empty|the|its|switch['’]s|this|no) records?\b`, instead: "journal", planted: "the record of the switch", below: journals},
	{term: "lead", word: `\bleads? (an? |the )?(append|read|request|client)s?\b`, instead: "steer", planted: "leads appends to the newest node", below: []string{"swordbox", "cli", "cmd", "experiment", "rackfile", "sim", "topo", "clover", "e2e", "docs"}},
}

// glossary has every retired word; it may name them, and so may this file.
const glossary = "docs/glossary.md"

// wordless are files that are not checked: they list the words, or are made from files that are
// checked.
var wordless = []string{
	glossary, "e2e/layering/words_test.go",
	"docs/reference/commands.md", "docs/reference/counters.md", "docs/reference/packages.md",
}

// No comment, no text, no declared name and no page has a word that the glossary has replaced.
func TestRetiredWords(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(wordless, s.path) {
			continue
		}
		for _, text := range prose(t, s.path, read(t, s.path)) {
			for _, wrong := range retiredIn(s.path, text) {
				t.Error(wrong)
			}
		}
	}
	for _, path := range pages(t) {
		if slices.Contains(wordless, path) {
			continue
		}
		for _, wrong := range retiredIn(path, oneLine(string(read(t, path)))) {
			t.Error(wrong)
		}
	}
}

// Each retired word is refused where it is planted: in a comment of the product and of a test, in a
// text, and where the whole plant is made into a name. It is not refused in allowed folders.
func TestPlantedRetiredWords(t *testing.T) {
	refused := func(path, source string, r *retired) bool {
		return slices.ContainsFunc(prose(t, path, []byte("package p\n"+source)), func(text string) bool { return refuses(r, path, text) })
	}
	for i := range retiredWords {
		r := &retiredWords[i]
		folder := "softrnic"
		if len(r.below) > 0 {
			folder = r.below[0]
		}
		for what, source := range map[string]string{
			"a comment":      "\n// F does: " + r.planted + "\nfunc F() {}\n",
			"a comment late": "\nvar x = 1 // " + r.planted + "\n",
			"a text":         "\nvar x = \"it is " + r.planted + "\"\n",
			"a split line":   "\n// F does:\n// " + strings.ReplaceAll(r.planted, " ", "\n// ") + "\nfunc F() {}\n",
		} {
			for _, file := range []string{"/p.go", "/p_test.go"} {
				if !refused(folder+file, source, r) {
					t.Errorf("%q in %s of %s is not refused", r.planted, what, folder+file)
				}
			}
		}
		for _, a := range r.allowed {
			if refused(a, "\n// "+r.planted+"\nvar x int\n", r) {
				t.Errorf("%q is refused in %s", r.planted, a)
			}
		}
	}
	for word, source := range map[string]string{
		"disaster": "type storeDisaster int",
		"strike":   "func f() { for nextStrike := range 3 { print(nextStrike) } }",
		"freeze":   "const treeClientFreeze = 1",
		"mended":   "var maxMends, MEND int",
		"asker":    "func f(x struct{ newAsker int }) {}",
		"nobody":   "func (t *T) TestNobodyOvertakes(n int) {}",
		"life":     "func TestRulesOfAFormerLife() {}",
		"whoever":  "func f() { whoever_asks := 1; print(whoever_asks) }",
	} {
		i := slices.IndexFunc(retiredWords, func(r retired) bool { return r.term == word })
		if !refused("softrnic/p_test.go", source, &retiredWords[i]) {
			t.Errorf("%s in %q is not refused", word, source)
		}
	}
	freeze := slices.IndexFunc(retiredWords, func(r retired) bool { return r.term == "freeze" })
	if !refused("softrnic/client_freeze_test.go", "", &retiredWords[freeze]) || refused("softrnic/p.go", "// the file cgroup.freeze stops a host", &retiredWords[freeze]) {
		t.Error("the name of a file is not looked at, or a file of the kernel is refused")
	}
}

// The words that the test refuses are those that the glossary lists, and no others.
func TestGlossaryHasTheRetiredWords(t *testing.T) {
	text := string(read(t, glossary))
	var listed []string
	for line := range strings.Lines(text) {
		if cells := strings.Split(strings.TrimSpace(line), "|"); len(cells) == 6 {
			listed = append(listed, strings.Split(cells[4], ",")...)
		}
	}
	_, style, _ := strings.Cut(text, "are retired as well:")
	style, _, _ = strings.Cut(style, ".\n")
	listed = append(listed, strings.Split(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(style, ""), ",")...)
	have := map[string]bool{}
	for _, word := range listed {
		word = strings.Join(strings.Fields(word), " ")
		have[word] = true
		if word != "" && !strings.HasPrefix(word, "--") && word != "replaces" && !slices.ContainsFunc(retiredWords, func(r retired) bool { return r.term == word }) {
			t.Errorf("%s calls %q replaced, and no test refuses it", glossary, word)
		}
	}
	for _, r := range retiredWords {
		if !have[r.term] {
			t.Errorf("%s does not name %q", glossary, r.term)
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

// retiredIn returns a message for each retired word in a text of a file.
func retiredIn(path, text string) []string {
	var out []string
	for i := range retiredWords {
		r := &retiredWords[i]
		if !refuses(r, path, text) {
			continue
		}
		at := expression(r.word).FindStringIndex(text)
		near := text[max(0, at[0]-40):min(len(text), at[1]+30)]
		out = append(out, path+": "+text[at[0]:at[1]]+" (write: "+r.instead+"; see "+glossary+") in: …"+near+"…")
	}
	return out
}

// refuses reports whether a text has a word and is where the word is refused.
func refuses(r *retired, path, text string) bool {
	within := func(list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
	}
	return !within(r.allowed) && (len(r.below) == 0 || within(r.below)) && expression(r.word).MatchString(text)
}

// prose lists the texts of a Go file: its comments, its string literals of more than one word, and
// the words of its name and of the names that it declares.
func prose(t *testing.T, path string, source []byte) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{split(strings.TrimSuffix(filepath.Base(path), ".go"))}
	for _, c := range f.Comments {
		out = append(out, oneLine(c.Text()))
	}
	declares := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				out = append(out, split(id.Name))
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text := oneLine(n.Value); n.Kind == token.STRING && strings.Contains(text, " ") {
				out = append(out, text)
			}
		case *ast.FuncDecl:
			declares(n.Name)
		case *ast.TypeSpec:
			declares(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declares(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				declares(id)
			}
		case *ast.LabeledStmt:
			declares(n.Label)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				declares(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declares(n.Key, n.Value)
			}
		}
		return true
	})
	return out
}

// oneLine replaces line breaks, so that a term may be broken over two lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// wordOfName is one word of a name in camel case or with underscores.
var wordOfName = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+|[0-9]+`)

// split lists the words of a name, in lower case: maxMends is "max mends".
func split(name string) string {
	name = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`).ReplaceAllString(name, "$1 $2")
	return strings.ToLower(strings.Join(wordOfName.FindAllString(name, -1), " "))
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
