package uverbs_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A program that polls empty completion queues without pause yields the processor, whichever way it
// has loaded libibverbs, and with glibc as with musl. Polls that find something make no system call.
func TestEmptyPollsYield(t *testing.T) {
	lib := library(t)
	for _, cc := range []string{"gcc", "musl-gcc"} {
		t.Run(cc, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "polls")
			compile(t, cc, "-O1", "-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", "-o", filepath.Join(dir, "libibverbs.so.1"), "testdata/library.c")
			compile(t, cc, "-O1", "-g", "-Wall", "-Werror", "-rdynamic", "-o", program, "testdata/polls.c")
			for _, args := range [][]string{nil, {"local"}} {
				cmd := exec.CommandContext(t.Context(), "env", append([]string{"LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + lib, program}, args...)...)
				if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
					t.Errorf("%v: %v\n%s", args, err, out)
				}
			}
		})
	}
}
