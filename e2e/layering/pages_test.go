package layering

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxReadme bounds README.md in bytes; longer texts are pages under docs.
const maxReadme = 8 << 10

func TestReadmeIsShort(t *testing.T) {
	if n := len(read(t, "README.md")); n > maxReadme {
		t.Errorf("README.md has %d bytes; %d are the limit: move a part to docs", n, maxReadme)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```$")
)

// Links between pages name files and headings that exist.
func TestLinksLeadSomewhere(t *testing.T) {
	headings := map[string]map[string]bool{}
	of := func(page string) map[string]bool {
		if headings[page] == nil {
			headings[page] = map[string]bool{}
			for _, h := range heading.FindAllStringSubmatch(code.ReplaceAllString(string(read(t, page)), ""), -1) {
				headings[page][slug(h[1])] = true
			}
		}
		return headings[page]
	}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(read(t, page)), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join("..", "..", target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			} else if anchor != "" && !of(target)[anchor] {
				t.Errorf("%s: %s has no heading %q", page, target, anchor)
			}
		}
	}
}

// slug returns the anchor of a heading.
func slug(heading string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(heading) {
		switch {
		case c == ' ':
			b.WriteByte('-')
		case c == '-' || c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		}
	}
	return b.String()
}

// maxArchitecture bounds ARCHITECTURE.md in bytes: reasons and details are pages under docs.
const maxArchitecture = 9_400

var mention = regexp.MustCompile("`((?:softrnic|swordbox|topo|clover|sherman|fusee|store|compose|e2e)(?:/[a-z0-9_.]+)+)`")

// ARCHITECTURE.md is short, and the packages and files that it names exist. The packages' levels are in
// docs/reference/packages.md, which is generated.
func TestArchitecture(t *testing.T) {
	const page = "ARCHITECTURE.md"
	text := string(read(t, page))
	if len(text) > maxArchitecture {
		t.Errorf("%s has %d bytes; %d are the limit: move a part to docs/explain", page, len(text), maxArchitecture)
	}
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join("..", "..", m[1])); err != nil {
			t.Errorf("%s names %s, which is not there", page, m[1])
		}
	}
	for row := range strings.Lines(text) {
		var code strings.Builder
		dir := "" // a bare name is a file of the folder named last
		for _, m := range goFile.FindAllStringSubmatch(row, -1) {
			if strings.Contains(m[1], "/") {
				dir = path.Dir(m[1])
			}
			if b, err := os.ReadFile(filepath.Join("..", "..", dir, path.Base(m[1]))); err == nil {
				code.Write(b)
			} else if dir != "" {
				t.Errorf("%s names %s, which is not in %s: row %s", page, m[1], dir, strings.TrimSpace(row))
			}
		}
		for _, m := range function.FindAllStringSubmatch(row, -1) {
			if code.Len() > 0 && !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?`+m[1]+`[(\[]`).MatchString(code.String()) {
				t.Errorf("%s: no function %s in the files of the row %s", page, m[1], strings.TrimSpace(row))
			}
		}
	}
}

var (
	goFile   = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	function = regexp.MustCompile("`([A-Za-z]+)`")
)
