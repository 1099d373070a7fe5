package uverbs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
)

// provider builds the provider and puts it into a folder under its names. It returns its name for
// uverbs.EnvDrivers.
func provider(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("no headers of libibverbs: package libibverbs-dev")
	}
	sources, err := filepath.Glob("provider/*.c")
	must(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, "provider.so")
	compile(t, "gcc", append([]string{"-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-shared", "-fPIC", "-nostdlib", "-o", path}, sources...)...)
	for n := preload.FirstPrivate; n <= preload.LastPrivate; n++ {
		must(t, os.Symlink(path, filepath.Join(dir, preload.ProviderFile(n))))
	}
	return filepath.Join(dir, preload.Driver)
}

// tree writes the files in which libibverbs finds the first NIC.
func (h *house) tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var files map[string]string
	at := uverbs.Place{Device: "rxe0", Ifname: "lo"}
	h.devices[0].With(func(e *engine.Engine) { files = uverbs.Tree(e.Device(), at) })
	for name, content := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	for name, target := range uverbs.Links(at) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink(target, path))
	}
	return dir
}

// Programs over the system's libibverbs and the provider of this repository.
func TestProvider(t *testing.T) {
	h, lib, driver := newHouse(t, serve.Limits{}), library(t), provider(t)
	program := filepath.Join(t.TempDir(), "program")
	compile(t, "gcc", "-O1", "-g", "-Wall", "-Werror", "-o", program, "testdata/provider.c", "-libverbs")
	for _, memory := range []string{"", uverbs.SharedMemory} {
		variables := []string{uverbs.EnvTree + "=" + h.tree(t), uverbs.EnvDrivers + "=" + driver, uverbs.EnvMemory + "=" + memory}
		for _, s := range []string{"polls", "stamps", "moderated", "device", "domains", "reregistered", "imported", "posts", "dmabuf", "masked", "withdrawn"} {
			story(t, h.sockets[0], program, lib, s, variables...)
		}
	}
	h.emptied(t)
}
