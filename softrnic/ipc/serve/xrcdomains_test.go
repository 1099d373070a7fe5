package serve

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// What keeps the file of a domain in existence does not keep the program's open file, also where the daemon
// sees no /proc: a lock of the program ends when the program closes the file.
func TestPinnedFileIsNotOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root hides /proc")
	}
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, nil, 0o600))
	for _, hidden := range []bool{false, true} {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine, and its view of the file system with it
			if hidden {
				must(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
				must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
				must(t, unix.Mount("none", "/proc", "tmpfs", 0, ""))
			}
			done <- lockPinned(name)
		}()
		if err := <-done; err != nil {
			t.Errorf("/proc hidden: %v: %v", hidden, err)
		}
	}
}

// lockPinned locks a file, pins it, closes it, and locks it again.
func lockPinned(name string) error {
	open := func() (int, error) { return unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0) }
	first, err := open()
	if err != nil {
		return err
	}
	if err := unix.Flock(first, unix.LOCK_EX); err != nil {
		return err
	}
	held, err := pinned(first)
	if err != nil {
		return err
	}
	defer unix.Close(held)
	if err := unix.Close(first); err != nil {
		return err
	}
	second, err := open()
	if err != nil {
		return err
	}
	defer unix.Close(second)
	return unix.Flock(second, unix.LOCK_EX|unix.LOCK_NB)
}
