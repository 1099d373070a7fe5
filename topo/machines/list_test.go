package machines

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Only folders and locks of clients count, of names that racks may have.
func TestList(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"b.client", "a.client", "a", "c", "x.y.client", ".client", "d.client.lock"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"file.client", "a.client.lock", "e.client.lock", "f.lock"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := listIn(root); err != nil || !slices.Equal(names, []string{"a", "b", "e"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := listIn(filepath.Join(root, "none")); err != nil || len(names) != 0 {
		t.Errorf("without a folder: %v, %v", names, err)
	}
}

// What an up leaves that was killed before it wrote the rack's description is removed; a rack that is up
// stays, also if its up is still at work.
func TestClear(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	paths := rackfile.Paths{Dir: filepath.Join(root, "x.client")}
	cleared := func(want bool) {
		t.Helper()
		if found, err := clearAt(t.Context(), paths); err != nil || found != want {
			t.Errorf("found %v, %v; want %v", found, err, want)
		}
	}
	gone := func() {
		t.Helper()
		if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something is left: %v", err)
		}
	}
	cleared(false)
	gone()

	release, err := rack.Lock(t.Context(), paths)
	if err != nil || release(false) != nil {
		t.Fatal(err)
	}
	cleared(true)
	gone()

	if err := errors.Join(os.MkdirAll(filepath.Join(paths.Dir, "ssh"), 0o700), os.WriteFile(paths.Secret(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	cleared(true)
	gone()

	if release, err = rack.Lock(t.Context(), paths); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if found, err := clearAt(ctx, paths); found || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while an up is at work: found %v, %v", found, err)
	}
	if err := errors.Join(os.Mkdir(paths.Dir, 0o700), os.WriteFile(paths.Spec(), nil, 0o600), release(false)); err != nil {
		t.Fatal(err)
	}
	cleared(false)
	if _, err := os.Stat(paths.Spec()); err != nil {
		t.Error(err)
	}
}
