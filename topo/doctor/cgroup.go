package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

func mounts(s *System, kind string) (points []string, err error) {
	b, err := s.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == kind {
			points = append(points, f[1])
		}
	}
	return points, err
}

// unified returns the mount point of cgroup2 that racks use; "" if there is none.
func unified(s *System) string {
	points, _ := mounts(s, "cgroup2") // an error means that there is no /proc, and so no mount point
	for _, p := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if slices.Contains(points, p) {
			return p
		}
	}
	return ""
}

func lookCgroups(_ context.Context, s *System) Finding {
	const without = "processes are found by their namespaces, and stopped and killed one by one"
	root := unified(s)
	if root == "" {
		return weaker("no cgroup2", without, "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
	}
	has, err := s.Cgroup(root, "cgroup.freeze", "cgroup.kill")
	switch {
	case err != nil && s.Euid != 0:
		return weaker(fmt.Sprintf("cgroup2 at %s, not tried", root), without, asRoot)
	case err != nil:
		return weaker(fmt.Sprintf("cgroup2 at %s: %v", root, err), without, "mount -o remount,rw "+root+"; in a container: docker run --cgroupns private -v "+root+":"+root+":rw …")
	case !has[0]:
		return weaker("cgroup2 at "+root+" without cgroup.freeze", "`rdmalab hang` cannot stop a host", "install Linux 5.2 or newer")
	case !has[1]:
		return weaker("cgroup2 at "+root+" without kill", "`rdmalab crash` kills the processes one by one while the host hangs", "install Linux 5.14 or newer")
	}
	return good("cgroup2 at "+root+", with cgroup.freeze and cgroup.kill", "a host is hung or killed whole, in one step")
}

// lookOldCgroups checks for hierarchies of cgroup version 1. Racks do not use them, but they may
// hinder other tools.
func lookOldCgroups(_ context.Context, s *System) Finding {
	points, err := mounts(s, "cgroup")
	switch {
	case err != nil:
		return weaker("unknown: "+err.Error(), "racks do not use it", "mount -t proc proc /proc")
	case len(points) == 0:
		return good("not mounted", "nothing is in the way of crun and podman")
	case unified(s) != "":
		return weaker(fmt.Sprintf("%d hierarchies beside cgroup2 (hybrid)", len(points)), "racks work; crun refuses to run, runc works",
			"boot with systemd.unified_cgroup_hierarchy=1, or podman --runtime runc")
	}
	return good(fmt.Sprintf("%d hierarchies", len(points)), "racks do not use it")
}

// wantMemlock is the limit of locked memory, in bytes, below which BPF maps before Linux 5.11 and
// programs that lock memory may fail.
const wantMemlock = 8 << 20

func lookMemlock(_ context.Context, s *System) Finding {
	const means = "it does not limit racks; a program on a host can lock this much memory"
	soft, hard, err := s.Memlock()
	found := fmt.Sprintf("%s, up to %s", limit(soft), limit(hard))
	switch {
	case err != nil:
		return weaker("unknown: "+err.Error(), means, "ulimit -l")
	case soft < wantMemlock:
		return weaker(found, "BPF before Linux 5.11 and programs that lock memory may fail", "ulimit -l unlimited")
	}
	return good(found, means)
}

func limit(n uint64) string {
	if n == ^uint64(0) {
		return "unlimited"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
