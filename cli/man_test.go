package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestManPages(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if _, err := run(t, "man", dir, "--date", "2026-01-31"); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(filepath.Join(dirs[0], "rdmalab*.1"))
	if err != nil || len(names) < 60 {
		t.Errorf("%d pages, %v", len(names), err)
	}
	for _, name := range names {
		page, err := os.ReadFile(name)
		same, serr := os.ReadFile(filepath.Join(dirs[1], filepath.Base(name)))
		if err != nil || serr != nil || !bytes.Equal(page, same) || !bytes.HasPrefix(page, []byte(".nh\n.TH \"RDMALAB")) || !bytes.Contains(page, []byte(".SH SYNOPSIS")) {
			t.Errorf("%s: %v, %v\n%.200s", name, err, serr, page)
		}
	}
	if _, err := run(t, "man", t.TempDir(), "--date", "today"); err == nil || !isUse(err) {
		t.Errorf("a wrong date: %v", err)
	}
}
