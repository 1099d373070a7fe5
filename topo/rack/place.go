package rack

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/spec"
)

// maxCPUs is how many processors a unix.CPUSet can name.
const maxCPUs = 1024

// processors returns the processors, of the allowed ones, to which a node's processes are bound, or
// nil if they are not bound.
func processors(s *spec.Rack, node string, allowed []int) []int {
	want := s.Switch.CPU
	h, _, isHost := s.Host(node)
	if isHost {
		want = h.CPU
	}
	switch {
	case want >= 0:
		return []int{want}
	case want == spec.NoCPU || len(allowed) < 2:
		return nil
	}
	own := s.Switch.CPU
	switch own {
	case spec.NoCPU:
		return nil // the switch is not bound, so the hosts may use all processors
	case spec.AutoCPU:
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

// place runs f with its thread bound to the processors of a node, so that processes which f starts
// inherit that. The caller's goroutine must be locked to its thread.
func (r starter) place(node string, f func() error) error {
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
	list := processors(r.Spec, node, allowed)
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
