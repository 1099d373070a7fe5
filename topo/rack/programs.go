package rack

import (
	"bytes"
	"fmt"
	"os"

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
func (r *Rack) ProgramEnv(host, preloaded string) ([]string, error) {
	env := []string{spec.EnvVerbs + "=" + r.Paths.Verbs(host)}
	lib, ok := preload.Library()
	if !ok {
		return env, nil
	}
	path := r.Paths.VerbsLibrary()
	if err := place(path, lib); err != nil {
		return nil, fmt.Errorf("library for RDMA programs: %w", err)
	}
	if preloaded != "" {
		path += ":" + preloaded
	}
	return append(env, uverbs.EnvTree+"="+r.Paths.VerbsTree(host), envPreload+"="+path), nil
}

// place puts a file there, whole or not at all: others may be loading it.
func place(path string, content []byte) error {
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, content) {
		return nil
	}
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(next, content, 0o755); err != nil {
		return err
	}
	return os.Rename(next, path)
}
