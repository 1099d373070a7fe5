package rack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
)

// envPreload is the variable that names the libraries that the dynamic linker loads first.
const envPreload = "LD_PRELOAD"

// ProgramEnv returns the environment variables, as NAME=VALUE, by which a program on a host finds
// the NIC. A program of package softrnic/ipc finds it by the socket, and one of package
// onerma/socket finds the 1RMA NIC by another socket. An unmodified program that uses libibverbs
// finds the NIC by a preloaded library, and by files that take the place of those in /sys. The
// library comes before those in preloaded, the value of LD_PRELOAD so far. If this rdmalab was
// built without the library, only the sockets are named.
//
// A caller who is not root must be in the group that the rack's description names, and gets the
// library that was installed when the rack was brought up.
func (r *Rack) ProgramEnv(host, preloaded string) ([]string, error) {
	env := []string{rackfile.EnvVerbs + "=" + r.Paths.Verbs(host)}
	if r.Spec.OneRMA != nil {
		env = append(env, rackfile.EnvOneRMA+"="+r.Paths.OneRMA(host))
	}
	path := r.Paths.VerbsLibrary()
	if os.Geteuid() != 0 {
		if err := admitted(r, host); err != nil {
			return nil, rackError(r.Spec.Name, err)
		}
		if !exists(path) {
			return env, nil
		}
	} else if ok, err := placeLibrary(path); !ok {
		return env, err
	}
	if preloaded != "" {
		path += ":" + preloaded
	}
	return append(env, uverbs.EnvTree+"="+r.Paths.VerbsTree(host), envPreload+"="+path), nil
}

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
