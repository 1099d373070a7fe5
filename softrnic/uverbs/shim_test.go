package uverbs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
)

// compile builds C code.
func compile(t *testing.T, cc string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no %s", cc)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, strings.Join(args, " "), err, out)
	}
}

// library builds the preloaded library, as the Makefile does.
func library(t *testing.T, more ...string) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/rdma/ib_user_verbs.h"); err != nil {
		t.Skip("no headers of the kernel: package linux-libc-dev")
	}
	sources, err := filepath.Glob("shim/*.c")
	must(t, err)
	path := filepath.Join(t.TempDir(), "library.so")
	compile(t, "gcc", append(append([]string{"-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-nostdlib", "-o", path}, more...), sources...)...)
	return path
}

// story runs a story of the program descriptors.c. One that stands still is ended after minutes.
func (h *house) story(t *testing.T, program, library, name string) {
	t.Helper()
	story(t, h.sockets[0], program, library, name)
}

// story runs a story of a program, with these variables besides those that it needs.
func story(t *testing.T, socket, program, library, name string, variables ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	// The race detector of C wants addresses that are not random.
	args := slices.Concat([]string{"-R", "env", "RDMALAB_VERBS=" + socket, "LD_PRELOAD=" + library, "TSAN_OPTIONS=halt_on_error=1 exitcode=66"}, variables, []string{program, name})
	cmd := exec.CommandContext(ctx, "setarch", args...)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
}

// Whatever a program does with its descriptors, the preloaded library knows which are devices.
func TestDescriptors(t *testing.T) {
	h, lib := newHouse(t, serve.Limits{}), library(t)
	program := filepath.Join(t.TempDir(), "descriptors")
	compile(t, "gcc", "-O1", "-g", "-Wall", "-Werror", "-pthread", "-o", program, "testdata/descriptors.c")
	for _, s := range []string{"replaced", "copied", "close", "close_range", "closefrom", "kept", "borrowed", "forked", "slain", "raced", "moved", "signalled", "full"} {
		h.story(t, program, lib, s)
	}
	h.emptied(t)
}

// emptied waits until no program is left.
func (h *house) emptied(t *testing.T) {
	t.Helper()
	h.left(t, 0)
}

// left waits until no more than n programs use the first NIC.
func (h *house) left(t *testing.T, n int) {
	t.Helper()
	h.leftOn(t, 0, n)
}

// leftOn waits until no more than n programs use a NIC.
func (h *house) leftOn(t *testing.T, nic, n int) {
	t.Helper()
	s := h.servers[nic]
	for end := time.Now().Add(20 * time.Second); len(s.Clients()) > n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("programs are left: %+v", s.Clients())
		}
	}
}

// The same library is preloaded into programs that are linked with musl.
func TestMusl(t *testing.T) {
	h, lib := newHouse(t, serve.Limits{}), library(t)
	program := filepath.Join(t.TempDir(), "descriptors")
	compile(t, "musl-gcc", "-O1", "-g", "-pthread", "-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu",
		"-o", program, "testdata/descriptors.c")
	for _, s := range []string{"replaced", "copied", "close", "kept", "borrowed", "forked", "slain", "raced", "moved", "signalled", "full"} {
		h.story(t, program, lib, s)
	}
}

// Threads of a program close event channels while other threads use them: ThreadSanitizer reports
// no race.
func TestThreadsOfDescriptors(t *testing.T) {
	h, lib := newHouse(t, serve.Limits{}), library(t, "-fsanitize=thread")
	program := filepath.Join(t.TempDir(), "descriptors")
	compile(t, "gcc", "-O1", "-g", "-fsanitize=thread", "-pthread", "-o", program, "testdata/descriptors.c")
	h.story(t, program, lib, "raced")
	h.story(t, program, lib, "moved")
}

// A daemon that answers a command out of turn is not believed afterwards.
func TestSevered(t *testing.T) {
	lib, socket := library(t), filepath.Join(t.TempDir(), "verbs")
	program := filepath.Join(t.TempDir(), "descriptors")
	compile(t, "gcc", "-O1", "-g", "-Wall", "-Werror", "-pthread", "-o", program, "testdata/descriptors.c")
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(listener)
	must(t, unix.Bind(listener, &unix.SockaddrUnix{Name: socket}))
	must(t, unix.Listen(listener, 1))
	served := make(chan error, 1)
	go func() { served <- answerOutOfTurn(listener) }()
	story(t, socket, program, lib, "severed")
	must(t, unix.Shutdown(listener, unix.SHUT_RDWR)) // ends an Accept
	must(t, <-served)
}

// answerOutOfTurn welcomes a program and answers its first command with too few bytes and an
// answer.
func answerOutOfTurn(listener int) error {
	sock, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	memory, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(memory)
	if err := unix.Ftruncate(memory, 1<<16); err != nil {
		return err
	}
	b := make([]byte, 1<<13)
	if _, err := unix.Read(sock, b); err != nil {
		return err
	}
	if err := unix.Sendmsg(sock, make([]byte, 24), unix.UnixRights(memory, memory), nil, 0); err != nil {
		return err
	}
	if _, err := unix.Read(sock, b); err != nil {
		return err
	}
	for _, n := range []int{3, 28} { // the second is a whole answer with a handle
		if _, err := unix.Write(sock, make([]byte, n)); err != nil && !errors.Is(err, unix.EPIPE) { // it has ended the connection
			return err
		}
	}
	_, err = unix.Read(sock, b) // until the program ends the connection, or gives a command
	if errors.Is(err, unix.ECONNRESET) {
		return nil // it had not read everything
	}
	return err
}
