package hostd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// sysfs is the folder with the files by which unmodified RDMA programs find the NIC and see the state
// of its port. The NICs of a host share the folder, and each changes its own files (uverbs.Place.Own).
// shown has the contents that were written last, by name.
type sysfs struct {
	dir   string
	at    uverbs.Place
	shown map[string]string
}

// write makes the folder have the files that `files` maps to their contents, the symbolic links that
// `links` maps to their targets, and no others. A program that reads a file meanwhile reads all of the
// former content or all of the new one.
func (t *sysfs) write(files, links map[string]string) error {
	if err := t.change(files, links); err != nil {
		return fmt.Errorf("files of the NIC: %w", err)
	}
	return nil
}

func (t *sysfs) change(files, links map[string]string) error {
	if t.shown == nil {
		var err error
		if t.shown, err = former(t.dir); err != nil {
			return err
		}
		maps.DeleteFunc(t.shown, func(name, _ string) bool { return !t.at.Own(name) })
	}
	for name, content := range files {
		content += "\n"
		if err := t.put(name, content, func(path string) error { return os.WriteFile(path, []byte(content), 0o644) }); err != nil {
			return err
		}
	}
	for name, target := range links { // after what they point to
		err := t.put(name, "-> "+target, func(path string) error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return os.Symlink(target, path)
		})
		if err != nil {
			return err
		}
	}
	for name := range t.shown {
		_, file := files[name]
		if _, ok := links[name]; ok || file {
			continue
		}
		if err := os.Remove(filepath.Join(t.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(t.shown, name)
	}
	return nil
}

// put replaces a file or link by one that `write` makes at a path beside it, unless it shows the content
// already.
func (t *sysfs) put(name, content string, write func(path string) error) error {
	if t.shown[name] == content {
		return nil
	}
	path, made := filepath.Join(t.dir, name), filepath.Join(t.dir, ".new")
	if t.at.Nth > 0 {
		made += strconv.Itoa(t.at.Nth)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := write(made); err != nil {
		return err
	}
	if err := os.Rename(made, path); err != nil {
		return err
	}
	t.shown[name] = content
	return nil
}

// former returns the files of a folder, such as those of a former daemon, without their contents.
func former(dir string) (map[string]string, error) {
	names := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || e.IsDir():
			return err
		}
		name, err := filepath.Rel(dir, path)
		names[name] = ""
		return err
	})
	return names, err
}
