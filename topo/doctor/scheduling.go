package doctor

import (
	"context"
	"slices"
	"strings"
)

// cpuHierarchies are where the controller cpu of cgroup version 1 is usually mounted; racks look in the same places.
var cpuHierarchies = []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"}

// lookScheduling checks that the processes of a rack are in one scheduling group: a thread that polls yields the
// processor only to threads of its group.
func lookScheduling(_ context.Context, s *System) Finding {
	const means = "daemons and programs that poll hand the processor to each other at once"
	old, _ := mounts(s, "cgroup") // an error means that there is no /proc, and so no hierarchy
	for _, at := range cpuHierarchies {
		if slices.Contains(old, at) && s.Writable(at) == nil {
			return good("a cgroup for each rack, at "+at, means)
		}
	}
	root := unified(s)
	if on, err := s.ReadFile(root + "/cgroup.subtree_control"); root != "" && err == nil && slices.Contains(strings.Fields(string(on)), "cpu") {
		return good("a cgroup for racks, at "+root, means)
	}
	if on, err := s.ReadFile("/proc/sys/kernel/sched_autogroup_enabled"); err == nil && strings.TrimSpace(string(on)) == "1" {
		return weaker("a group for each session", "daemons and programs that share a processor keep it from each other for time slices, which on a busy machine slows "+
			"them down by 10 to 100 times", "sysctl kernel.sched_autogroup_enabled=0")
	}
	return good("no groups by session", means)
}
