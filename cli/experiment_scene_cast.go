package cli

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
)

// cast gives the hosts of the scene names: those that only receive are memory servers, the others compute hosts. A host
// whose packets have a priority of their own is a compute host with another tos than the first one has.
func (r *rackScene) cast() error {
	rack := r.on.rack
	memory, err := rack.NamesByRole(rackfile.Memory)
	if err != nil {
		return err
	}
	var compute, apart []string
	for _, name := range r.on.hosts {
		if r.tos(name) == r.tos(r.on.hosts[0]) {
			compute = append(compute, name)
		} else {
			apart = append(apart, name)
		}
	}
	r.hosts = make([]string, r.scene.Hosts)
	for i := range r.hosts {
		list, role := &compute, "compute hosts"
		sends := func(f experiment.SceneFlow) bool { return f.From == i }
		switch flows := r.scene.Flows; {
		case slices.ContainsFunc(flows, func(f experiment.SceneFlow) bool { return sends(f) && f.Apart }):
			list, role = &apart, "compute hosts with a tos of their own"
		case slices.ContainsFunc(flows, func(f experiment.SceneFlow) bool { return f.To == i }) && !slices.ContainsFunc(flows, sends):
			list, role = &memory, "memory servers"
		}
		if len(*list) == 0 {
			return fmt.Errorf("rack %s has too few %s for these flows: bring up %s", rack.Name, role, sceneRack)
		}
		r.hosts[i], *list = (*list)[0], slices.Clip((*list)[1:])
	}
	return nil
}

// tos is the TOS byte of a host of the rack.
func (r *rackScene) tos(name string) uint8 {
	h, _, _ := r.on.rack.Host(name)
	return h.TOS
}
