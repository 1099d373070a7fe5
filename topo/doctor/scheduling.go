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
	if on, err := s.ReadFile("/proc/sys/kernel/sched_autogroup_enabled"); err != nil || strings.TrimSpace(string(on)) != "1" {
		return good("no groups by session", means)
	}
	root := unified(s)
	if on, err := s.ReadFile(root + "/cgroup.subtree_control"); root != "" && err == nil && slices.Contains(strings.Fields(string(on)), "cpu") {
		return good("a cgroup for racks, at "+root, means)
	}
	if _, err := s.ReadFile(root + "/cpu.weight"); root != "" && err == nil {
		return good("the cgroup of this container", means)
	}
	old, _ := mounts(s, "cgroup") // an error means that there is no /proc, and so no hierarchy
	for _, at := range cpuHierarchies {
		switch {
		case !slices.Contains(old, at):
		case !inRoot(s):
			return good("the cgroup of this command, below "+at, means)
		case root != "" && s.Writable(at) == nil:
			return good("a cgroup for each rack, at "+at, means+"; programs on hosts get no real-time priority if the kernel has CONFIG_RT_GROUP_SCHED")
		}
	}
	return weaker("a group for each session", "daemons and programs that share a processor keep it from each other for time slices: on a busy machine they are some "+
		"10 times slower", "sysctl kernel.sched_autogroup_enabled=0")
}

// inRoot reports whether this process is in the root group of the controller cpu of version 1.
func inRoot(s *System) bool {
	own, err := s.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), "cpu") {
			return f[2] == "/"
		}
	}
	return err == nil
}
