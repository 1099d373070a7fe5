package nl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// threadNetns is the namespace of the calling thread. /proc/self/ns/net would be the namespace of
// the main thread.
const threadNetns = "/proc/thread-self/ns/net"

// Create makes a network namespace and pins it at path; the file must not exist. The pin keeps the
// namespace alive without a process. The loopback interface is up.
func Create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return opError(err, "make network namespace")
	}
	if err := f.Close(); err != nil {
		return errors.Join(opError(err, "make network namespace %s", path), os.Remove(path))
	}
	if err := OnOwnThread(func() error { return enterNew(path) }); err != nil {
		_ = Remove(path) // the first error is returned
		return opError(err, "make network namespace %s", path)
	}
	return nil
}

// Pin pins the caller's network namespace at path; the file must not exist.
func Pin(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return opError(err, "pin network namespace")
	}
	err = f.Close()
	if err == nil {
		err = unix.Mount(threadNetns, path, "", unix.MS_BIND, "")
	}
	if err != nil {
		_ = Remove(path) // the first error is returned
	}
	return opError(err, "pin network namespace at %s", path)
}

// OnOwnThread runs f on a new thread, which ends after f has returned. So f may leave the thread in
// any namespace.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: Go would park it, and it would keep its namespaces for
			// ever. While this goroutine is locked to the main thread, f gets another thread.
			defer runtime.UnlockOSThread()
			done <- OnOwnThread(f)
			return
		}
		done <- f() // the goroutine stays locked, so the thread ends with it
	}()
	return <-done
}

// enterNew makes a namespace, moves the calling thread into it, and pins it at path.
func enterNew(path string) error {
	made, err := netns.New()
	if err != nil {
		return err
	}
	defer made.Close() // the pin keeps the namespace
	if err := unix.Mount(threadNetns, path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	quiet()
	return setUp("lo", true)
}

// quiet stops the interfaces of the calling thread's namespace from sending packets that no program
// has requested: no duplicate address detection (which would delay every IPv6 address by a second),
// no link-local address, no router solicitation. It enables IPv6, whatever the machine's default
// is, and makes IPv6 addresses stay when an interface goes down.
func quiet() {
	for key, value := range map[string]string{
		"disable_ipv6": "0", "accept_dad": "0", "accept_ra": "0", "addr_gen_mode": "1", "router_solicitations": "0", "keep_addr_on_down": "1",
	} {
		for _, dev := range []string{"all", "default"} {
			// If the kernel has no IPv6, or not this key, nothing needs to be changed.
			_ = os.WriteFile(Settings+"/ipv6/conf/"+dev+"/"+key, []byte(value), 0o644)
		}
	}
}

// Quiet stops the interfaces of the namespace at path from sending packets that no program has
// requested (see quiet). Namespaces that Create has made are quiet already.
func Quiet(path string) error {
	return Do(path, func() error {
		quiet()
		return nil
	})
}

// Settings is the folder with the kernel's settings of the calling thread's network namespace.
const Settings = "/proc/sys/net"

// errReadOnly says what helps where the settings cannot be written.
var errReadOnly = errors.New("the kernel's settings are read-only here; `rdmalab doctor` says what helps")

// DisableIPv6 switches IPv6 off in the namespace at path, unless the kernel has none.
func DisableIPv6(path string) error {
	return Do(path, func() error {
		for _, dev := range []string{"all", "default"} {
			err := os.WriteFile(Settings+"/ipv6/conf/"+dev+"/disable_ipv6", []byte("1"), 0o644)
			if errors.Is(err, unix.EROFS) {
				err = errReadOnly
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return opError(err, "disable IPv6")
			}
		}
		return nil
	})
}

// Remove removes a pin. The namespace ends with its last process and socket. Remove returns no
// error if there is no pin.
func Remove(path string) error {
	unmount := unix.Unmount(path, unix.MNT_DETACH)
	// If no namespace is mounted on the file, the pin was not finished. It can be removed without
	// the right to unmount.
	remove := os.Remove(path)
	if remove == nil || errors.Is(remove, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(unmount, unix.EINVAL) || errors.Is(unmount, unix.ENOENT) {
		unmount = nil
	}
	return opError(errors.Join(unmount, remove), "unpin network namespace %s", path)
}

// Do runs f on a thread inside the namespace that is pinned at path. Goroutines that f starts are
// not inside the namespace. Sockets and processes that f makes belong to the namespace and stay in
// it.
func Do(path string, f func() error) error {
	if path == "" {
		return f()
	}
	n, err := ns.GetNS(path)
	if err != nil {
		return notNamespace(path, err)
	}
	var inner error
	outer := n.Do(func(ns.NetNS) error {
		inner = f()
		return nil
	})
	if err := n.Close(); err != nil && outer == nil {
		outer = err
	}
	if outer != nil && strings.Contains(outer.Error(), unix.EPERM.Error()) {
		outer = fmt.Errorf("%w (%w)", unix.EPERM, outer) // the library's error has only the text of the kernel's
	}
	return errors.Join(inner, opError(outer, "enter network namespace %s", path))
}

// open returns a handle of the namespace that is pinned at path. The caller closes the handle.
func open(path string) (netns.NsHandle, error) {
	if err := ns.IsNSorErr(path); err != nil {
		return netns.None(), notNamespace(path, err)
	}
	h, err := netns.GetFromPath(path)
	return h, opError(err, "open network namespace %s", path)
}

// notNamespace replaces the kernel's error by a readable one if no namespace is pinned at path.
func notNamespace(path string, err error) error {
	var missing ns.NSPathNotExistErr
	var other ns.NSPathNotNSErr
	if errors.As(err, &missing) || errors.As(err, &other) || strings.Contains(err.Error(), "unknown FS magic") {
		return fmt.Errorf("no network namespace is pinned at %s: %w", path, fs.ErrNotExist)
	}
	return opError(err, "open network namespace %s", path)
}

// ID returns the device and inode of the namespace that is pinned at path. The file
// /proc/PID/ns/net of each process in the namespace has the same device and inode. The kernel
// reuses inodes, so they do not identify a namespace after its end.
func ID(path string) (dev, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, opError(err, "network namespace %s", path)
	}
	return st.Dev, st.Ino, nil
}

// EnableIPv6 allows new interfaces of the namespace at path to have IPv6 addresses, whatever the
// default is. On a kernel without IPv6 it does nothing.
func EnableIPv6(path string) error {
	return Do(path, func() error {
		// A container runtime may have mounted the file read-only. Then setting an address fails
		// later.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("0"), 0o644)
		return nil
	})
}
