package layering

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxFileLines is the hard limit of a Go file.
const maxFileLines = 700

// vagueNames are package names without a meaning.
var vagueNames = []string{"util", "utils", "common", "misc", "types", "helpers"}

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

// forPrograms are packages for programs outside the module, or for tests of another one; no package of the module imports them.
var forPrograms = []string{"softrnic/ipc/remote", "softrnic/wire/layers", "softrnic/wire/onerma/layers", "kube/e2e/lab"}

// A package that only tests import is below e2e. Each other package is a program, or is imported by
// the product.
func TestProductIsWithoutTestTools(t *testing.T) {
	all := sources(t)
	wanted, programs := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		programs[s.pkg] = programs[s.pkg] || s.program || strings.HasPrefix(s.pkg, "compose/examples/") // examples are modules of their own
		for _, i := range s.imports {
			wanted[i] = true
		}
	}
	for pkg := range table {
		if !wanted[pkg] && !programs[pkg] && !strings.HasPrefix(pkg, "e2e/") && !slices.Contains(forPrograms, pkg) {
			t.Errorf("no package of the product imports %s: move it below e2e, or remove it", pkg)
		}
	}
}
