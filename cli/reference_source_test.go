package cli

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// parsePackage parses the Go files of a package, without tests. folder is relative to the root of
// the module.
func parsePackage(t *testing.T, folder string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(docRoot, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no Go file", folder)
	}
	return files
}

// goField is one field of a struct: its name, its tags and its comment.
type goField struct {
	name, comment string
	tags          reflect.StructTag
}

// goStructs returns the struct types of a package with their fields.
func goStructs(t *testing.T, folder string) map[string][]goField {
	out := map[string][]goField{}
	for _, f := range parsePackage(t, folder) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, fd := range s.Fields.List {
				var tags string
				if fd.Tag != nil {
					tags, _ = strconv.Unquote(fd.Tag.Value) // the parser has accepted the tag
				}
				comment := fd.Comment.Text()
				if fd.Doc != nil {
					comment = fd.Doc.Text()
				}
				for _, name := range fd.Names {
					out[spec.Name.Name] = append(out[spec.Name.Name], goField{name.Name, strings.TrimSpace(comment), reflect.StructTag(tags)})
				}
			}
			return true
		})
	}
	return out
}

// counterTable returns the counters of a struct as a table. A counter has the name of the tag name,
// or its name in JSON; its explanation is the tag help, or the comment.
func counterTable(t *testing.T, prefix string, fields []goField) string {
	t.Helper()
	table := docHead("counter", "meaning")
	for _, f := range fields {
		name, help := f.tags.Get("name"), f.tags.Get("help")
		switch {
		case !ast.IsExported(f.name):
			continue
		case name != "":
		case f.tags.Get("json") != "":
			name, _, _ = strings.Cut(f.tags.Get("json"), ",")
		default:
			name = string(unicode.ToLower(rune(f.name[0]))) + f.name[1:]
		}
		if help == "" {
			help = strings.TrimSuffix(f.comment, ".")
		}
		if help == "" {
			t.Errorf("counter %s has no text: give it the tag help or a comment", name)
		}
		table += docRow("`"+prefix+name+"`", help)
	}
	return table
}

func nicCounters(t *testing.T) string {
	return counterTable(t, "", goStructs(t, "softrnic/metrics")["NIC"])
}

func portCounters(t *testing.T) string {
	return counterTable(t, "", goStructs(t, "topo/hostd")["PortCounters"])
}

func refusalCounters(t *testing.T) string {
	return counterTable(t, "", goStructs(t, "softrnic/ipc/serve")["RefusalCounters"])
}

// programCounters returns the counters of each package of the switch that has counters.
func programCounters(t *testing.T) string {
	var out strings.Builder
	for _, folder := range goPackages(t, "swordbox") {
		all := goStructs(t, folder)
		var names []string
		for name, fields := range all {
			helped := slices.ContainsFunc(fields, func(f goField) bool { return f.tags.Get("help") != "" })
			if helped || name == "Stats" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&out, "### %s: %s\n\n%s\n", folder, name, counterTable(t, "", all[name]))
		}
	}
	return out.String()
}

// goPackages lists the folders below a folder that have Go files other than tests, relative to
// docRoot.
func goPackages(t *testing.T, below string) []string {
	t.Helper()
	seen := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(docRoot, below), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "out" || d.Name() != ".." && strings.HasPrefix(d.Name(), ".") && path != docRoot):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			rel, err := filepath.Rel(docRoot, filepath.Dir(path))
			seen[filepath.ToSlash(rel)] = true
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for p := range seen {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// packagesTable returns a table of every package with its level and the first sentence of its
// comment.
func packagesTable(t *testing.T) string {
	levels := houseLevels(t)
	all := goPackages(t, ".")
	slices.SortStableFunc(all, func(a, b string) int { return levels[a] - levels[b] })
	table := docHead("level", "package", "what it is")
	for _, folder := range all {
		level, ok := levels[folder]
		if !ok {
			t.Errorf("%s has no row in the layering table", folder)
		}
		var text string
		for _, f := range parsePackage(t, folder) {
			if f.Doc != nil && (text == "" || strings.HasPrefix(f.Doc.Text(), "Package ")) {
				text = new(doc.Package).Synopsis(f.Doc.Text())
			}
		}
		name := "[`" + folder + "`](../../" + folder + ")"
		for _, prefix := range []string{"Package " + filepath.Base(folder) + " ", "Command " + filepath.Base(folder) + " "} {
			text = strings.TrimPrefix(text, prefix)
		}
		table += docRow("L"+strconv.Itoa(level), name, strings.TrimSuffix(text, "."))
	}
	return table
}

// houseLevels reads the levels of the packages from the layering table.
func houseLevels(t *testing.T) map[string]int {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(docRoot, "e2e/layering/table_test.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string]int{}
	ast.Inspect(f, func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isText := kv.Key.(*ast.BasicLit)
		value, isRoom := kv.Value.(*ast.CompositeLit)
		if !isText || !isRoom {
			return true
		}
		folder, err := strconv.Unquote(key.Value)
		if err != nil {
			return true
		}
		for _, e := range value.Elts {
			if e, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(e.Key) == "level" {
				levels[folder], _ = strconv.Atoi(e.Value.(*ast.BasicLit).Value)
			}
		}
		return true
	})
	if len(levels) < 50 {
		t.Fatalf("the layering table has %d packages", len(levels))
	}
	return levels
}

// rackFile is the package of rack files; its comment describes every key.
const rackFile = "rackfile"

// rackTable returns the table of one section of a rack file, made from the annotated rack file in
// the comment of package spec.
func rackTable(section string) func(t *testing.T) string {
	return func(t *testing.T) string {
		table := docHead("key", "example", "meaning")
		for _, k := range rackKeys(t)[section] {
			if k.example == "" {
				k.text = strings.TrimSpace(k.text + " See below.")
			} else {
				k.example = "`" + k.example + "`"
			}
			table += docRow("`"+k.name+"`", k.example, k.text)
		}
		return table
	}
}

// rackKey is one line of the annotated rack file.
type rackKey struct{ name, example, text string }

// rackKeys parses the annotated rack file, by section.
func rackKeys(t *testing.T) map[string][]rackKey {
	t.Helper()
	out := map[string][]rackKey{}
	var text string
	for _, f := range parsePackage(t, rackFile) {
		if f.Doc != nil {
			text += f.Doc.Text()
		}
	}
	type open struct {
		indent int
		name   string
	}
	sections := []open{{-1, "rack"}}
	for line := range strings.Lines(text) {
		body, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		if !ok {
			continue
		}
		indent := len(body) - len(strings.TrimLeft(body, " -"))
		code, about, _ := strings.Cut(strings.TrimLeft(body, " -"), "# ")
		key, value, ok := strings.Cut(code, ":")
		if !ok {
			t.Fatalf("%s: no key in %q", rackFile, line)
		}
		for sections[len(sections)-1].indent >= indent {
			sections = sections[:len(sections)-1]
		}
		section := sections[len(sections)-1].name
		value = strings.TrimSpace(value)
		out[section] = append(out[section], rackKey{key, value, strings.TrimSpace(about)})
		if value == "" {
			sections = append(sections, open{indent, key})
		}
	}
	return out
}

// rulesTable returns a table of the keys of a rule, which package rules describes.
func rulesTable(*testing.T) string {
	table := docHead("key", "example", "meaning")
	for _, f := range rules.Fields() {
		table += docRow("`"+f.Key+"`", "`"+f.Example+"`", f.Doc)
	}
	return table
}

// The page about rack files describes every action of rules.
func TestEveryActionIsDescribed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docRoot, "docs/reference/rack-file.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range rules.Actions() {
		if !strings.Contains(string(page), "\n| `"+action+"` | ") {
			t.Errorf("docs/reference/rack-file.md does not say what action %s does", action)
		}
	}
}

// faultKinds returns a table of the kinds of faults with their help in `rdmalab inject`.
func faultKinds(t *testing.T) string {
	long := manualOf("rdmalab inject").long
	table := docHead("kind", "on the command line", "what it does")
	for _, kind := range fault.Kinds() {
		var use, what string
		for line := range strings.Lines(long) {
			words := strings.Fields(line)
			if line, ok := strings.CutPrefix(line, "  "+string(kind)); ok && len(words) > 0 && words[0] == string(kind) {
				amount, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
				if text == "" {
					amount, text = "", amount
				}
				use, what = strings.TrimSpace(string(kind)+" "+amount), strings.TrimSpace(text)
			}
		}
		if what == "" {
			t.Errorf("the help of inject does not say what %s does", kind)
		}
		table += docRow("`"+string(kind)+"`", "`rdmalab inject "+use+"`", what)
	}
	return table
}

// faultRule returns tables of the fields of a fault rule: their names in JSON and their comments in
// the code.
func faultRule(t *testing.T) string {
	all := goStructs(t, "softrnic/fault")
	var out strings.Builder
	for _, s := range []struct{ title, name, prefix string }{{"The rule", "Rule", ""}, {"What it selects", "Match", "match."}} {
		fmt.Fprintf(&out, "### %s\n\n%s", s.title, docHead("key", "meaning"))
		for _, f := range all[s.name] {
			key, _, _ := strings.Cut(f.tags.Get("json"), ",")
			out.WriteString(docRow("`"+s.prefix+key+"`", f.comment))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func faultClasses(*testing.T) string { return "`" + strings.Join(fault.Classes(), "` `") + "`" }

func faultLimits(*testing.T) string {
	return docHead("limit", "value") +
		docRow("longest `delay` and `jitter`", fault.MaxDelay.String()) +
		docRow("slowest `rate`", fault.FormatRate(fault.MinRate)) +
		docRow("fastest `rate`", fault.FormatRate(fault.MaxRate))
}

// Every key that the parser of rack files accepts is described, and every key that is described is
// accepted.
func TestEveryRackKeyIsDescribed(t *testing.T) {
	described := rackKeys(t)
	for section, file := range map[string]string{
		"rack":   "zzz: 1\n",
		"switch": "switch: {zzz: 1}\nhosts: [{name: a, role: memory}]\n",
		"rules":  "switch: {rules: [{zzz: 1}]}\nhosts: [{name: a, role: memory}]\n",
		"hosts":  "hosts: [{zzz: 1}]\n",
		"quota":  "hosts: [{name: a, role: memory, quota: {zzz: 1}}]\n",
		"faults": "faults: [{zzz: 1}]\nhosts: [{name: a, role: memory}]\n",
		"match":  "faults: [{link: a, kind: loss, match: {zzz: 1}}]\nhosts: [{name: a, role: memory}]\n",
	} {
		_, err := rackfile.Parse([]byte(file))
		if err == nil {
			t.Fatalf("%s: the key zzz is known", section)
		}
		m := knownKeys.FindStringSubmatch(err.Error())
		if m == nil {
			t.Fatalf("%s: %v does not list the keys", section, err)
		}
		known := strings.Split(m[1], ", ")
		var have []string
		for _, k := range described[section] {
			have = append(have, k.name)
			if k.text == "" && k.example != "" {
				t.Errorf("%s: %s has no explanation", section, k.name)
			}
		}
		slices.Sort(known)
		slices.Sort(have)
		if !slices.Equal(known, have) {
			t.Errorf("%s: the parser knows %v, the comment of package spec describes %v", section, known, have)
		}
	}
}

var knownKeys = regexp.MustCompile(`(?m)unknown key.*known keys: ([A-Za-z0-9, ]+)$`)
