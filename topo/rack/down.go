package rack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/container"
)

// maxMounts bounds how many mounts are removed from one place. Several mounts may lie on top of
// each other.
const maxMounts = 16

// mountInfo is the file that lists the mounts of the calling process.
const mountInfo = "/proc/self/mountinfo"

// Down removes a rack that is in any state. found is true if any part of the rack existed. Down
// needs no information about how the rack was brought up.
func Down(ctx context.Context, name string) (found bool, err error) {
	if err := rackfile.CheckName(name); err != nil {
		return false, err
	}
	return handle(name).remover().down(ctx)
}

// DownSlice is Down for the slice of a rack, if it is of this generation. Another one stays. It waits for a
// slice that is being brought up.
func DownSlice(ctx context.Context, name string, generation uint64) (found bool, err error) {
	if err := rackfile.CheckName(name); err != nil {
		return false, err
	}
	h := handle(name)
	l, err := acquire(ctx, h.Paths)
	if err != nil {
		return false, rackError(name, err)
	}
	r, err := Open(name)
	switch {
	case errors.Is(err, ErrNotUp):
		_, gone := os.Lstat(h.Paths.Dir)
		return false, rackError(name, l.release(errors.Is(gone, os.ErrNotExist)))
	case err != nil, r.Spec.Generation != generation:
		return false, errors.Join(err, l.release(false))
	}
	err = h.remover().clear()
	return true, rackError(name, errors.Join(err, l.release(err == nil)))
}

// remover removes a rack. It finds the rack's parts on the machine by the rack's name.
type remover struct {
	name    string
	paths   rackfile.Paths
	keep    keeper
	reached func(step string)
}

func (r *Rack) remover() remover { return remover{r.name(), r.Paths, r.keep, r.reached} }

func (r remover) down(ctx context.Context) (found bool, err error) {
	if found, err = r.traces(); err != nil || !found {
		return false, rackError(r.name, err)
	}
	if os.Geteuid() != 0 {
		return true, rackError(r.name, ErrPrivilege)
	}
	l, err := acquire(ctx, r.paths)
	if err != nil {
		return true, rackError(r.name, err)
	}
	err = r.clear()
	return true, rackError(r.name, errors.Join(err, l.release(err == nil)))
}

func (r remover) traces() (bool, error) {
	places := []string{r.paths.Dir, r.paths.Lock()}
	if k, ok := r.keep.(*cgroupKeeper); ok {
		places = append(places, k.dir)
	}
	for _, place := range places {
		if _, err := os.Lstat(place); err == nil {
			return true, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return false, privilege(err)
		}
	}
	left := make(map[string]bool)
	err := leftContainers(left)
	return left[r.name], err
}

// clear ends the rack's processes, and removes its cgroups, mounts and folder. The caller holds the
// lock. Namespaces and links vanish with their last process and their pin (the file that keeps a
// namespace).
func (r remover) clear() error {
	// Containers are removed first, because an engine that removes a network sends requests to the
	// rack's watcher.
	lost := removeContainers(r.name, r.paths)
	if lost != nil && !errors.Is(lost, container.ErrNoEngine) {
		return lost
	}
	r.endNodes()
	if err := r.keep.clear(); err != nil {
		return err
	}
	if err := r.awaitStrays(); err != nil {
		return err
	}
	if err := container.RemoveDriver(r.name); err != nil {
		return err
	}
	r.reached("killed")
	if err := errors.Join(giveBack(r.paths), unmount(r.paths.Dir)); err != nil {
		return err
	}
	r.reached("unmounted")
	if err := unix.Rmdir(r.paths.Dir); err != nil && !errors.Is(err, unix.ENOENT) {
		if errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("%s holds files that are no rack's: move them away", r.paths.Dir)
		}
		return fmt.Errorf("remove %s: %w", r.paths.Dir, err)
	}
	if lost != nil {
		return fmt.Errorf("everything except its containers is down: run `rdmalab down` again when the engine is back (%w)", lost)
	}
	return nil
}

// endNodes ends the nodes of a rack whose daemons are one process, in which each node then closes its
// sockets, all at the same time. The kernel waits for all processors whenever a packet socket is
// closed, and it closes those of a process that is killed one after the other: 256 hosts took 8 s.
// A node that does not end, because it hangs or its NIC is stuck, is left to the end of the process.
func (r remover) endNodes() {
	up, err := Open(r.name)
	if err != nil || !up.Spec.Shared() {
		return
	}
	shared := up.shared()
	if !shared.answers() {
		return
	}
	_ = each(up.Nodes(), func(node string) error { // what is left of a node ends with the process
		if err := r.keep.kill(node); err != nil {
			return err
		}
		return shared.awaitEnd(node, endWait)
	})
}

// endWait bounds how long the nodes of one process may take to end when the rack is removed.
const endWait = 3 * time.Second

// awaitStrays waits for processes 1 of nodes that were started by a controller (a program that
// calls this package) which died before it put them into the rack's cgroup (see passGate). They end
// by themselves; awaitStrays makes sure that none is left when Down returns.
func (r remover) awaitStrays() error {
	mark := []byte("\x00node-init\x00--rack-dir\x00" + r.paths.Dir + "\x00")
	return waitFor(killWait, "end of processes that never came into the rack", func() (bool, error) {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return false, err
		}
		for _, line := range lines {
			if b, err := os.ReadFile(line); err == nil && bytes.Contains(b, mark) {
				return false, nil
			}
		}
		return true, nil
	})
}

// unmount detaches the rack's tmpfs, and with it all pins of namespaces below.
func unmount(dir string) error {
	for range maxMounts {
		points, err := mountPoints()
		if err != nil {
			return err
		}
		if !slices.Contains(points, dir) {
			return nil
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return fmt.Errorf("unmount %s: more than %d mounts on top of each other", dir, maxMounts)
}

func mountPoints() ([]string, error) {
	b, err := os.ReadFile(mountInfo)
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(b)) {
		const pointField = 4 // index of the mount point in a line of mountinfo, see proc(5)
		if f := strings.Fields(line); len(f) > pointField {
			points = append(points, unescape.Replace(f[pointField]))
		}
	}
	return points, nil
}

// unescape reverses the escapes by which the kernel writes white space in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
