package rack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
)

// envPreload is the variable that names the libraries that the dynamic linker loads first.
const envPreload = "LD_PRELOAD"

// Inherited has the values of environment variables that ProgramEnv extends or obeys, as a program
// would inherit them.
type Inherited struct {
	Preload  string // LD_PRELOAD
	Drivers  string // uverbs.EnvDrivers
	Provider string // uverbs.EnvProvider; "" means uverbs.ProviderOwn
}

// InheritedEnv returns the values in the environment of this process.
func InheritedEnv() Inherited {
	return Inherited{os.Getenv(envPreload), os.Getenv(uverbs.EnvDrivers), os.Getenv(uverbs.EnvProvider)}
}

// ProgramEnv returns the environment variables, as NAME=VALUE, by which a program on a host finds
// the NIC. A program of package softrnic/ipc finds it by the socket, and one of package
// onerma/socket finds the 1RMA NIC by another socket. An unmodified program that uses libibverbs
// finds the NIC by a preloaded library, and by files that take the place of those in /sys. The
// library comes before those that are preloaded so far, and so does our provider for libibverbs unless
// that of rxe is chosen. If this rdmalab was built without the library, only the sockets are
// named.
//
// A caller who is not root must be in the group that the rack's description names, and gets the
// library that was installed when the rack was brought up.
func (r *Rack) ProgramEnv(host string, now Inherited) ([]string, error) {
	env := []string{rackfile.EnvVerbs + "=" + r.Paths.Verbs(host)}
	if r.Spec.OneRMA != nil {
		env = append(env, rackfile.EnvOneRMA+"="+r.Paths.OneRMA(host))
	}
	path := r.Paths.VerbsLibrary()
	if os.Geteuid() != 0 {
		if err := admitted(r.Spec, r.Paths, host); err != nil {
			return nil, rackError(r.Spec.Name, err)
		}
		if !exists(path) {
			return env, nil
		}
	} else if ok, err := PlaceLibraries(r.Paths); !ok {
		return env, err
	}
	env = append(env, uverbs.EnvTree+"="+r.Paths.VerbsTree(host), envPreload+"="+before(path, now.Preload))
	return append(env, driversEnv(r.Paths.VerbsProviders(), now)...), nil
}

// driversEnv returns the variable that names our provider in folder dir, if it is there and not that of
// rxe is chosen. Otherwise it returns one that names it no longer, if an inherited one does.
func driversEnv(dir string, now Inherited) []string {
	list := withoutOwn(now.Drivers)
	if now.Provider != uverbs.ProviderRXE && exists(dir) {
		list = before(filepath.Join(dir, preload.Driver), list)
	}
	if list == now.Drivers {
		return nil
	}
	return []string{uverbs.EnvDrivers + "=" + list}
}

// withoutOwn returns a list of providers without those of this project, which a shell may have from
// `rdmalab env`.
func withoutOwn(drivers string) string {
	own := func(path string) bool { return filepath.Base(path) == preload.Driver }
	return strings.Join(slices.DeleteFunc(strings.Split(drivers, ":"), own), ":")
}

// before returns a list of paths that begins with path.
func before(path, others string) string {
	if others == "" {
		return path
	}
	return path + ":" + others
}

// PlaceLibraries writes the preloaded library and the provider. It returns false if there is no
// preloaded library for this processor.
func PlaceLibraries(p rackfile.Paths) (bool, error) {
	if ok, err := placeLibrary(p.VerbsLibrary()); !ok {
		return false, err
	}
	return true, placeProvider(p.VerbsProviders())
}

// placeProvider writes the provider to a folder, and makes a link to it for each version of libibverbs.
func placeProvider(dir string) error {
	lib, ok := preload.Provider()
	if !ok {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = place(filepath.Join(dir, providerFile), lib)
	}
	for n := preload.FirstPrivate; err == nil && n <= preload.LastPrivate; n++ {
		if err = os.Symlink(providerFile, filepath.Join(dir, preload.ProviderFile(n))); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("provider for RDMA programs: %w", err)
	}
	return nil
}

// providerFile is the file of the provider, to which all its names are links.
const providerFile = "provider.so"

// placeLibrary writes the preloaded library for unmodified programs to path. It returns false if
// there is none for this processor.
func placeLibrary(path string) (bool, error) {
	lib, ok := preload.Library()
	if !ok {
		return false, nil
	}
	if err := place(path, lib); err != nil {
		return false, fmt.Errorf("library for RDMA programs: %w", err)
	}
	return true, nil
}

// place replaces a file atomically, because programs may be loading it at the same time.
func place(path string, content []byte) error {
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, content) {
		return nil
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".") // a new file, because place must not write into a file that another user may have put there
	if err != nil {
		return err
	}
	_, err = next.Write(content)
	if err = errors.Join(err, next.Chmod(0o755), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
