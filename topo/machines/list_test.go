package machines

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Only folders of clients count, of names that racks may have.
func TestList(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"b.client", "a.client", "a", "c", "x.y.client", ".client", "d.client.lock"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file.client"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if names, err := listIn(root); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := listIn(filepath.Join(root, "none")); err != nil || len(names) != 0 {
		t.Errorf("without a folder: %v, %v", names, err)
	}
}
