package layering

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxFileLines is the hard limit of a Go file.
const maxFileLines = 700

// vagueNames are package names that say nothing.
var vagueNames = []string{"util", "utils", "common", "misc", "types", "helpers"}

// citation is a rule of the InfiniBand specification as code and tests cite it.
var citation = regexp.MustCompile(`\b[Cc]9-\d+(\.\d+)*\b`)

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(read(t, s.path), []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines; %d is the limit: split it by idea", s.path, n, maxFileLines)
		}
	}
}

func TestPackagesAreNamedAndExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, s := range sources(t) {
		explained[s.pkg] = explained[s.pkg] || s.doc
		if slices.Contains(vagueNames, filepath.Base(s.pkg)) {
			t.Errorf("%s: the name of the package says nothing", s.pkg)
		}
	}
	for pkg, ok := range explained {
		if !ok {
			t.Errorf("%s has no package comment: say what it is, its contract, what it does not do", pkg)
		}
	}
}

// A rule that the code obeys is cited where it is obeyed and in the test that proves it.
func TestCitedRulesAreTested(t *testing.T) {
	cited, tested := map[string]string{}, map[string]bool{}
	for _, s := range sources(t) {
		for _, rule := range citation.FindAllString(string(read(t, s.path)), -1) {
			rule = strings.ToUpper(rule)
			if strings.HasSuffix(s.path, "_test.go") {
				tested[rule] = true
			} else {
				cited[rule] = s.path
			}
		}
	}
	scripts, err := filepath.Glob(filepath.Join("..", "..", "softrnic", "*", "testdata", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range citation.FindAllString(string(b), -1) {
			tested[strings.ToUpper(rule)] = true
		}
	}
	for rule, where := range cited {
		if !tested[rule] {
			t.Errorf("%s cites %s, but no test does", where, rule)
		}
	}
}
