package experiment

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each file of help texts describes an experiment, or is a part of such a text.
func TestEveryHelpFileIsUsed(t *testing.T) {
	var texts strings.Builder
	names := make([]string, 0, len(All()))
	for _, e := range All() {
		text, err := helpFiles.ReadFile("help/" + e.Name + ".md")
		if err != nil {
			t.Errorf("%s has no description: %v", e.Name, err)
		}
		names = append(names, e.Name)
		texts.Write(text)
	}
	files, err := helpFiles.ReadDir("help")
	if err != nil || len(files) < len(names) {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".md"); !f.IsDir() && !slices.Contains(names, name) {
			t.Errorf("help/%s describes no experiment", f.Name())
		}
	}
	shared, err := helpFiles.ReadDir("help/shared")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range shared {
		if !strings.Contains(texts.String(), `{{template "`+f.Name()+`"}}`) {
			t.Errorf("%s is a part of no text", filepath.Join("help/shared", f.Name()))
		}
	}
}

// The lists of a text are in it, one line for each entry.
func TestHelpHasItsLists(t *testing.T) {
	for _, e := range All() {
		if e.Lists == nil {
			continue
		}
		for name, list := range e.Lists() {
			if text := e.Long() + "\n"; len(list) == 0 || !strings.Contains(text, "\n  "+strings.Join(list, "\n  ")+"\n") {
				t.Errorf("%s: list %s is not in\n%s", e.Name, name, text)
			}
		}
	}
}
