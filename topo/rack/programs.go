package rack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// envPreload is the variable that tells the dynamic linker what to load first.
const envPreload = "LD_PRELOAD"

// ProgramEnv is the environment of a program on a host, as NAME=VALUE, in which it finds the NIC:
// programs of package softrnic/ipc by the socket, unmodified programs over libibverbs by the
// library that is preloaded into them, in front of what preloaded names, and by the files that they
// take for /sys. Only the socket is named if this rdmalab was built without the library.
//
// A user who is not root needs the group of the rack's description, and gets the library with which
// the rack was brought up.
func (r *Rack) ProgramEnv(host, preloaded string) ([]string, error) {
	env := []string{spec.EnvVerbs + "=" + r.Paths.Verbs(host)}
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

// placeLibrary puts the library for unmodified programs at path. False: this rdmalab has none.
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

// place puts a file there, whole or not at all: others may be loading it.
func place(path string, content []byte) error {
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, content) {
		return nil
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".") // a new file: what another user has put there is not written
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
