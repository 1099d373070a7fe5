package hostd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// sysfs is the folder with the files by which unmodified RDMA programs find the NIC and see the state
// of its port. shown has the contents that were written last, by name.
type sysfs struct {
	dir   string
	shown map[string]string
}

// write makes the folder have the files that `files` maps to their contents, and no others. A program
// that reads a file meanwhile reads all of the former content or all of the new one.
func (t *sysfs) write(files map[string]string) error {
	if err := t.change(files); err != nil {
		return fmt.Errorf("files of the NIC: %w", err)
	}
	return nil
}

func (t *sysfs) change(files map[string]string) error {
	if t.shown == nil {
		var err error
		if t.shown, err = former(t.dir); err != nil {
			return err
		}
	}
	for name, content := range files {
		content += "\n"
		if t.shown[name] == content {
			continue
		}
		path, made := filepath.Join(t.dir, name), filepath.Join(t.dir, ".new")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(made, []byte(content), 0o644); err != nil {
			return err
		}
		if err := os.Rename(made, path); err != nil {
			return err
		}
		t.shown[name] = content
	}
	for name := range t.shown {
		if _, ok := files[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(t.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(t.shown, name)
	}
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
