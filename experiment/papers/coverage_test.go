package papers

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// writePage makes TestCoverage write docs/papers/coverage.md instead of comparing it.
var writePage = flag.Bool("write", false, "write docs/papers/coverage.md from coverage.txt")

// coverage is a row of coverage.txt.
type coverage struct {
	line                 int
	status, item, remark string
	shown                []string
}

// covered is a paper with its rows.
type covered struct {
	page, title string
	rows        []coverage
}

var statuses = []string{"yes", "part", "no"}

// readCoverage reads the table. Each mistake is a text with its line.
func readCoverage(text string) (papers []covered, wrong []string) {
	bad := func(n int, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("line %d: ", n)+fmt.Sprintf(format, args...))
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if head, ok := strings.CutPrefix(line, "== "); ok {
			page, title, _ := strings.Cut(head, " ")
			papers = append(papers, covered{page: page, title: title})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) != 4 || len(papers) == 0 {
			bad(n, "want a paper before, and STATUS | item | what shows it | remark")
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		c := coverage{line: n, status: cells[0], item: cells[1], remark: cells[3]}
		if cells[2] != "" {
			c.shown = strings.Split(cells[2], "; ")
		}
		switch {
		case !slices.Contains(statuses, c.status):
			bad(n, "status %q: want one of %v", c.status, statuses)
		case c.status != "yes" && c.remark == "":
			bad(n, "a row that is not yes says why")
		case (c.status == "no") != (len(c.shown) == 0):
			bad(n, "a row has what shows it, unless its status is no")
		}
		p := &papers[len(papers)-1]
		p.rows = append(p.rows, c)
	}
	return papers, wrong
}

func (p *covered) count(status string) (n int) {
	for _, r := range p.rows {
		if r.status == status {
			n++
		}
	}
	return n
}

// page returns docs/papers/coverage.md.
func page(papers []covered) string {
	var b strings.Builder
	b.WriteString("# What of each paper is here\n\nEach mechanism, figure, claim and use case of the papers: *yes* is as in the paper, *part* lacks something or does not reproduce a number,\n" +
		"*no* is not here. What shows it is a test (its package and name), a file, or a command. Made from\n" +
		"[a table](../../experiment/papers/coverage.txt), whose tests, files and commands a test looks for.\n\n| paper | rows | yes | part | no |\n| --- | --- | --- | --- | --- |\n")
	for i := range papers {
		p := &papers[i]
		fmt.Fprintf(&b, "| [%s](%s) | %d | %d | %d | %d |\n", p.title, p.page, len(p.rows), p.count("yes"), p.count("part"), p.count("no"))
	}
	for i := range papers {
		p := &papers[i]
		fmt.Fprintf(&b, "\n## %s\n\n| | item | shown by | what is missing, or an input |\n| --- | --- | --- | --- |\n", p.title)
		for _, r := range p.rows {
			var shown []string
			for _, s := range r.shown {
				shown = append(shown, "`"+s+"`")
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.status, r.item, strings.Join(shown, ", "), r.remark)
		}
	}
	return b.String()
}

// missing returns what is wrong with what shows a row; "" if it exists. commands is the reference of
// commands.
func missing(root, shown, commands string) string {
	if args, ok := strings.CutPrefix(shown, "rdmalab "); ok {
		words := strings.Fields(args)
		for n := len(words); n > 0; n-- { // the longest command that the reference has
			if strings.Contains(commands, "rdmalab "+strings.Join(words[:n], " ")) {
				return unknownFlags(words[n:], commands)
			}
		}
		return "there is no such command"
	}
	at, test, isTest := strings.Cut(shown, " ")
	if _, err := os.Stat(filepath.Join(root, at)); err != nil {
		return "there is no " + at
	}
	if !isTest {
		return ""
	}
	files, _ := filepath.Glob(filepath.Join(root, at, "*_test.go")) // the pattern is valid
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(`)
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && declared.Match(b) {
			return ""
		}
	}
	return "there is no such test"
}

func unknownFlags(words []string, commands string) string {
	for _, w := range words {
		if strings.HasPrefix(w, "--") && !strings.Contains(commands, w) {
			return "there is no flag " + w
		}
	}
	return ""
}

// Each row of the table names what shows it, which exists, and the page is made from the table.
func TestCoverage(t *testing.T) {
	root := filepath.Join("..", "..")
	read := func(path ...string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	papers, wrong := readCoverage(read("coverage.txt"))
	for _, w := range wrong {
		t.Error("coverage.txt:", w)
	}
	commands := read(root, "docs", "reference", "commands.md")
	for _, p := range papers {
		if _, err := os.Stat(filepath.Join(root, "docs", "papers", p.page)); err != nil {
			t.Error(err)
		}
		for _, r := range p.rows {
			for _, s := range r.shown {
				if m := missing(root, s, commands); m != "" {
					t.Errorf("coverage.txt: line %d: %s: %s", r.line, s, m)
				}
			}
		}
	}
	const name = "coverage.md"
	if *writePage {
		if err := os.WriteFile(filepath.Join(root, "docs", "papers", name), []byte(page(papers)), 0o644); err != nil { //nolint:gosec // a page that everyone may read
			t.Fatal(err)
		}
	}
	if read(root, "docs", "papers", name) != page(papers) {
		t.Errorf("docs/papers/%s is not what coverage.txt says: go test ./experiment/papers -run Coverage -write", name)
	}
}

// Mistakes of the table are found.
func TestCoverageRefuses(t *testing.T) {
	for _, bad := range []string{
		"yes | x | units |", "== a.md A\nyes | x | units", "== a.md A\nsome | x | units | why", "== a.md A\npart | x | units |",
		"== a.md A\nno | x | units | why", "== a.md A\nyes | x | |",
	} {
		if _, wrong := readCoverage(bad); len(wrong) != 1 {
			t.Errorf("%q: %q", bad, wrong)
		}
	}
	root := filepath.Join("..", "..")
	for shown, ok := range map[string]bool{
		"rdmalab sim x": true, "rdmalab sim --steer both": true, "rdmalab sim --steer2": false, "rdmalab dance": false, "units": true, "unit": false,
		"experiment/papers TestCoverage": true, "experiment/papers TestCover": false,
	} {
		if m := missing(root, shown, "## rdmalab sim\n --steer string"); (m == "") != ok {
			t.Errorf("%s: %q", shown, m)
		}
	}
}
