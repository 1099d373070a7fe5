package unixsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var networks = []string{"unix", "unixpacket"}

// A socket that a process serves is not taken away from it, whatever its type, and a file that is no
// socket stays. A socket that no process serves any more is replaced.
func TestListenReplacesOnlyAStaleSocket(t *testing.T) {
	for _, network := range networks {
		dir := t.TempDir()
		for _, served := range networks {
			path := filepath.Join(dir, served)
			other, err := Listen(served, path, 0)
			if err != nil {
				t.Fatal(err)
			}
			if l, err := Listen(network, path, 0); err == nil || !strings.Contains(err.Error(), "another process serves "+path) {
				t.Errorf("%s where a process serves a socket of type %s: %v, %v", network, served, l, err)
			}
			connect(t, served, path)
			if err := other.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: the socket after Close: %v", served, err)
			}
		}

		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(network, file, 0); err == nil || !strings.Contains(err.Error(), "is no socket") {
			t.Errorf("%s: a file: %v, %v", network, l, err)
		}
		if b, err := os.ReadFile(file); string(b) != "content" {
			t.Errorf("%s: the file has %q, %v", network, b, err)
		}

		stale := filepath.Join(dir, "stale")
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: stale, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		next, err := Listen(network, stale, 0)
		if err != nil {
			t.Fatal(err)
		}
		connect(t, network, stale)
		if at, err := os.Stat(stale); err != nil || at.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", network, at, err)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The members of a group may connect to its socket. Only root can give it to any group.
func TestListenForAGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this needs root")
	}
	const group = 12345
	path := filepath.Join(t.TempDir(), "sock")
	l, err := Listen("unix", path, group)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if of := at.Sys().(*syscall.Stat_t).Gid; at.Mode().Perm() != 0o660 || of != group {
		t.Errorf("mode %v of group %d, want 0660 of %d", at.Mode(), of, group)
	}
}

// A listener that is closed late leaves the socket of its successor alone.
func TestLateCloseKeepsTheSuccessor(t *testing.T) {
	for _, network := range networks {
		path := filepath.Join(t.TempDir(), "sock")
		former, err := Listen(network, path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		next, err := Listen(network, path, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := former.Close(); err != nil {
				t.Error(err)
			}
		}
		connect(t, network, path)
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}
}

func connect(t *testing.T, network, path string) {
	t.Helper()
	c, err := net.Dial(network, path)
	if err != nil {
		t.Error(err)
		return
	}
	_ = c.Close()
}
