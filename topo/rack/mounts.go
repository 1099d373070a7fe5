package rack

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
)

// leaveOthers removes the copies of the machine's mounts below StateRoot, except the rack's tmpfs, from
// the mount namespace of the calling process: such a copy would keep the namespaces of another rack or
// node alive after the end of that rack or node. A switch keeps the machine's own namespace, for its
// trunks.
func leaveOthers(p rackfile.Paths, isSwitch bool, note noter) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	unmount := func(point string) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			note(slog.LevelWarn, "unmount", "point", point, "error", err)
		}
	}
	for _, point := range tops(points, p.Dir) {
		unmount(point)
	}
	if !isSwitch { // a host has a mount for each host of the rack, and gets rid of them all at once
		if done, err := bare(p.Dir); done || err != nil { // not on Linux before 5.2, or where a container's filter forbids it
			return err
		}
	}
	for _, point := range slices.Backward(points) {
		if strings.HasPrefix(point, p.Dir+"/") && (!isSwitch || point != p.Outside()) {
			unmount(point)
		}
	}
	return nil
}

// tops returns the mount points below StateRoot that are neither dir nor below it, without those below
// another one, which go with it.
func tops(points []string, dir string) (list []string) {
	for _, point := range points {
		below := func(top string) bool { return strings.HasPrefix(point, top+"/") }
		if below(rackfile.StateRoot) && point != dir && !below(dir) && !slices.ContainsFunc(list, below) {
			list = append(list, point)
		}
	}
	return list
}

// bare replaces a mount by one without the mounts in it. done is false, and nothing has changed, if this
// machine cannot do so.
func bare(dir string) (done bool, err error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false, nil
	}
	defer func() { _ = unix.Close(fd) }() // the descriptor is used only to name the mount
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		return false, fmt.Errorf("unmount %s: %w", dir, err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return false, fmt.Errorf("mount %s: %w", dir, err)
	}
	return true, nil
}
