package rack

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
)

// maxCPUs is how many processors a unix.CPUSet can name.
const maxCPUs = 1024

// processors returns the processors to which a node's processes are bound, or nil if they are not
// bound. allowed lists the processors that this program may use.
func processors(s *rackfile.Rack, node string, allowed []int) []int {
	want := s.Switch.CPU
	h, _, isHost := s.Host(node)
	if isHost {
		want = h.CPU
	}
	switch {
	case want >= 0:
		return []int{want}
	case want == rackfile.NoCPU || len(allowed) < 2:
		return nil
	}
	own := s.Switch.CPU
	switch own {
	case rackfile.NoCPU:
		return nil // the switch is not bound, so the hosts may use all processors
	case rackfile.AutoCPU:
		own = allowed[len(allowed)-1]
	}
	if !isHost {
		return []int{own}
	}
	var others []int
	for _, c := range allowed {
		if c != own {
			others = append(others, c)
		}
	}
	return others
}

// place runs f with its thread bound to the processors of a node and with the rack's priority, so
// that processes which f starts inherit both. The caller's goroutine must be locked to its thread.
func (l launcher) place(node string, f func() error) error {
	return l.bound(node, func() error { return l.prioritised(f) })
}

// bound runs f with its thread bound to the processors of a node.
func (l launcher) bound(node string, f func() error) error {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	var allowed []int
	for c := range maxCPUs {
		if before.IsSet(c) {
			allowed = append(allowed, c)
		}
	}
	list := processors(l.spec, node, allowed)
	if len(list) == 0 {
		return f()
	}
	var only unix.CPUSet
	for _, c := range list {
		only.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("bind to processor %s (this machine may have fewer): %w", strings.Trim(fmt.Sprint(list), "[]"), err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

// errRealtime: the kernel refuses the priority that a rack file asks for.
var errRealtime = errors.New("the kernel refuses `priority: realtime`: it needs CAP_SYS_NICE and, with real-time group scheduling, " +
	"a cgroup that has real-time runtime; otherwise write `priority: normal`")

// prioritised runs f with the scheduling priority of the rack's daemons. With rackfile.PriorityRealtime
// it is the lowest priority of SCHED_RR: a thread that yields lets the next thread of the rack run,
// whatever share of the processor both have had. A thread that computes for long gives the
// processor to the others after a time slice.
func (l launcher) prioritised(f func() error) error {
	if l.spec.Priority != rackfile.PriorityRealtime {
		return f()
	}
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return fmt.Errorf("read the scheduling priority: %w", err)
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0); err != nil {
		return errRealtime
	}
	return errors.Join(f(), unix.SchedSetAttr(0, before, 0))
}
