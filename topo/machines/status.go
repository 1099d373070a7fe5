package machines

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// merge makes the status of the rack from those of its slices, in the order of the rack file. A machine
// with an error, or with a slice of another generation, takes its hosts and switches along.
func (c *Client) merge(list []rack.Status, errs []error) rack.Status {
	s := rack.Status{Name: c.Rack.Name, Dir: c.Paths.Dir, State: rack.StateUp}
	nodes := make(map[string]rack.NodeStatus)
	trunks := make(map[string]rack.TrunkStatus)
	for i, m := range c.conns {
		about := rack.MachineStatus{Name: m.machine.Name, SSH: m.machine.SSH, Generation: list[i].Generation}
		switch {
		case errs[i] != nil:
			about.Error = errs[i].Error()
		case about.Generation != c.Rack.Generation:
			about.Error = fmt.Sprintf("machine %s has a slice of another rack %q (generation %d, not %d): run `rdmalab down --rack %[2]s` there, or where that was brought up",
				m.machine.Name, c.Rack.Name, about.Generation, c.Rack.Generation)
		}
		s.Machines = append(s.Machines, about)
		if about.Error != "" {
			continue
		}
		for _, n := range append(list[i].Switches, list[i].Hosts...) {
			nodes[n.Name] = n
		}
		s.Devices = append(s.Devices, list[i].Devices...)
		for _, t := range list[i].Trunks {
			if was, ok := trunks[t.Name]; ok {
				t = was.With(t)
			}
			trunks[t.Name] = t
		}
	}
	node := func(name, role string) rack.NodeStatus {
		n, ok := nodes[name]
		if !ok {
			n = rack.NodeStatus{Name: name, Role: role, State: rack.StateLost}
			if h, _, ok := c.Rack.Host(name); ok {
				n.Port, n.IPv4, n.IPv6, n.MAC, n.Memory, n.Link = h.Port, h.IPv4, h.IPv6, h.MAC, h.Memory, rack.LinkMissing
			}
		}
		n.Machine = c.Rack.MachineOf(name)
		return n
	}
	for _, name := range c.Rack.SwitchNames() {
		s.Switches = append(s.Switches, node(name, rackfile.SwitchName))
	}
	for i := range c.Rack.Hosts {
		s.Hosts = append(s.Hosts, node(c.Rack.Hosts[i].Name, string(c.Rack.Hosts[i].Role)))
	}
	for _, t := range c.Rack.Trunks() {
		state, ok := trunks[t.Name()]
		state.Name = t.Name()
		if lost := s.Switches[slices.IndexFunc(s.Switches, func(n rack.NodeStatus) bool { return n.Name == t.Leaf })]; !ok || lost.State == rack.StateLost {
			if state.Link != rack.LinkDown {
				state.Link = rack.LinkNoCarrier
			}
		}
		s.Trunks = append(s.Trunks, state)
	}
	s.Switch = s.Switches[0]
	s.State = s.Worst()
	return s
}
