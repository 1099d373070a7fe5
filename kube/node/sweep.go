package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stray begins the names of folders that are being removed; no device is called so.
const stray = "."

// Sweep removes folders of devices that no record names and that have not changed for age: the runtime makes them for
// containers with a device whose Pods the CNI plugin has not connected. unmount, which may be nil, takes away what is
// mounted over one. The caller holds the lock: no folder is mounted over before a record names it.
func (s State) Sweep(age time.Duration, unmount func(id string)) error {
	list, err := os.ReadDir(s.Slots())
	if err != nil || len(list) == 0 {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	named, err := s.named()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		if id := e.Name(); !named[id] {
			errs = append(errs, s.sweep(id, age, unmount))
		}
	}
	return errors.Join(errs...)
}

// named returns the devices that records name.
func (s State) named() (map[string]bool, error) {
	named := make(map[string]bool)
	err := s.Each(func(r Rack) error {
		return r.Records(func(_, _ string, rec Record) error {
			named[rec.Slot] = true
			return nil
		})
	})
	return named, err
}

// sweep removes the folder of a device that no record names. It gives it another name first, which fails if something
// is mounted over it: what is in that is not the device's.
func (s State) sweep(id string, age time.Duration, unmount func(id string)) error {
	dir := s.Slot(id)
	if unmount != nil {
		unmount(id)
	}
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case time.Since(st.ModTime()) < age:
		return nil
	}
	away := filepath.Join(s.Slots(), stray+strings.TrimLeft(id, stray))
	if away != dir {
		if err := os.Rename(dir, away); err != nil {
			if errors.Is(err, unix.EBUSY) {
				return nil // the plugin, which may unmount, takes it at its next call
			}
			return err
		}
	}
	return os.RemoveAll(away)
}
