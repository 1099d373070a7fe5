package rack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/container"
)

// cgroupParent is the cgroup below which every rack has a cgroup.
const cgroupParent = "rdmalab"

// maxMakeTries bounds the attempts to make a cgroup. An attempt may fail because another rack that
// goes down at the same time removes the parent cgroup.
const maxMakeTries = 8

// cgroup2Root returns the mount point of cgroup2, the unified hierarchy: at the usual place, or
// beside hierarchies of version 1. It returns "" if there is none.
func cgroup2Root() string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(root, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return root
		}
	}
	return ""
}

// cgroupKeeper is the keeper that has the processes of each node in a cgroup. It needs no
// controller (such as cpu or memory) of cgroup2.
type cgroupKeeper struct{ dir string }

var _ keeper = (*cgroupKeeper)(nil)

func (k *cgroupKeeper) of(node string) string { return filepath.Join(k.dir, node) }

func (k *cgroupKeeper) prepare(node string) error {
	var err error
	for range maxMakeTries {
		if err = os.MkdirAll(k.of(node), 0o755); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make the cgroup of %s: %w; `rdmalab doctor` checks cgroups", node, err)
	}
	return k.write(node, "cgroup.freeze", "0")
}

func (k *cgroupKeeper) write(node, file, value string) error {
	return os.WriteFile(filepath.Join(k.of(node), file), []byte(value), 0o644)
}

func (k *cgroupKeeper) adopt(node string, pid int) error {
	if err := k.write(node, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("put process into its cgroup: %w", err)
	}
	return nil
}

func (k *cgroupKeeper) pids(node string) ([]int, error) {
	pids, err := container.ReadPIDs(filepath.Join(k.of(node), "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("processes of %s: %w", node, err)
	}
	return pids, nil
}

// gone reports whether err means that a cgroup was removed before or while it was read.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

func (k *cgroupKeeper) kill(node string) error {
	err := k.write(node, "cgroup.kill", "1")
	switch {
	case gone(err):
		if _, err := os.Stat(k.of(node)); err != nil {
			return nil
		}
		if err := k.killEach(node); err != nil { // Linux before 5.14 has no cgroup.kill
			return err
		}
	case err != nil:
		return fmt.Errorf("kill %s: %w", node, err)
	}
	return waitFor(killWait, "end of the processes in "+k.of(node), func() (bool, error) {
		populated, err := k.event(node, "populated")
		return !populated, err
	})
}

// killEach kills the processes of a node's cgroup and of the cgroups below it, one by one. It stops
// all of them first, so that none escapes by starting another process.
func (k *cgroupKeeper) killEach(node string) error {
	err := k.write(node, "cgroup.freeze", "1")
	for range maxKillRounds {
		var pids []int
		_ = filepath.WalkDir(k.of(node), func(path string, e fs.DirEntry, werr error) error {
			if werr == nil && e.IsDir() {
				if rel, err := filepath.Rel(k.dir, path); err == nil {
					below, _ := k.pids(rel) // if the cgroup cannot be read now, the next round reads it
					pids = append(pids, below...)
				}
			}
			return nil
		})
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if kerr := unix.Kill(pid, unix.SIGKILL); kerr != nil && !errors.Is(kerr, unix.ESRCH) {
				err = errors.Join(err, kerr)
			}
		}
	}
	return errors.Join(err, k.write(node, "cgroup.freeze", "0"))
}

// event returns the value of an entry of the file cgroup.events, such as populated. It returns
// false if the cgroup does not exist.
func (k *cgroupKeeper) event(node, name string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(k.of(node), "cgroup.events"))
	if gone(err) {
		return false, nil
	}
	return strings.Contains(string(b), name+" 1"), err
}

func (k *cgroupKeeper) hang(node string, on bool) error {
	value := map[bool]string{true: "1", false: "0"}[on]
	if err := k.write(node, "cgroup.freeze", value); err != nil {
		return fmt.Errorf("hang %s: %w", node, err)
	}
	err := waitFor(killWait, map[bool]string{true: "hanging of ", false: "resuming of "}[on]+node, func() (bool, error) {
		hung, err := k.event(node, "frozen")
		return hung == on, err
	})
	if err != nil && on {
		// The processes are described before they go on.
		if pids, perr := k.pids(node); perr == nil {
			err = fmt.Errorf("%w; its processes: %s", err, describe(processes(pids)))
		}
		return errors.Join(err, k.write(node, "cgroup.freeze", "0"))
	}
	return err
}

func (k *cgroupKeeper) hung(node string) (bool, error) { return k.event(node, "frozen") }

func (k *cgroupKeeper) clear() error {
	if _, err := os.Stat(k.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A process may enter the cgroup between the kill and the removal. Then the removal fails, and
	// the next round kills that process.
	err := waitFor(killWait, "removal of cgroup "+k.dir, func() (bool, error) {
		if err := k.kill("."); err != nil {
			return false, err
		}
		err := removeCgroups(k.dir)
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		return true, err
	})
	return errors.Join(err, k.removeParent())
}

func removeCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !gone(err) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// removeParent removes the cgroup above those of the racks, if no other rack is left.
func (k *cgroupKeeper) removeParent() error {
	err := unix.Rmdir(filepath.Dir(k.dir))
	if err == nil || gone(err) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return fmt.Errorf("remove cgroup: %w", err)
}
