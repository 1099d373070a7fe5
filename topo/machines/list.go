package machines

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
)

// List returns the names of the racks whose client this machine is, also of those of which an up that was
// killed has left only the client's folder, or its lock.
func List() ([]string, error) { return listIn(rackfile.StateRoot) }

func listIn(root string) (names []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		name, lock := strings.CutSuffix(e.Name(), rackfile.LockSuffix)
		name, client := strings.CutSuffix(name, rackfile.ClientSuffix)
		if client && lock != e.IsDir() && rackfile.CheckName(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Clear removes what an up that was killed early has left of a rack's client: a folder without a description,
// or the lock. It reports whether there was something. It waits for an up that is at work, and a rack that
// is up stays.
func Clear(ctx context.Context, name string) (found bool, err error) {
	if os.Getenv(rackfile.EnvSlice) != "" {
		return false, nil
	}
	return clearAt(ctx, rackfile.ClientOf(name))
}

func clearAt(ctx context.Context, paths rackfile.Paths) (found bool, err error) {
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, fs.ErrNotExist)
	}
	if there(paths.Spec()) || !there(paths.Dir) && !there(paths.Lock()) {
		return false, nil
	}
	err = locked(ctx, paths, func() error {
		if there(paths.Spec()) {
			return nil
		}
		found = true
		return os.RemoveAll(paths.Dir)
	})
	return found, err
}
