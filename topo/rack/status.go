package rack

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// State summarises the condition of a node.
type State string

// States of a node, the worst first. If several apply, the node's state is the first one of these.
const (
	StateLost    State = "lost"        // its machine does not answer
	StateCrashed State = "crashed"     // its daemon does not run
	StateHung    State = "hung"        // its processes are stopped
	StateSilent  State = "silent"      // its processes run, but its daemon does not answer
	StateNICDown State = "nic-down"    // its NIC has crashed or failed
	StateCut     State = "link-down"   // its link is down, has no carrier or is missing
	StateAppHung State = "app-hung"    // its programs are stopped, but its NIC works
	StateApp     State = "app-crashed" // its programs have crashed, but its NIC works
	StateUp      State = "up"
)

type LinkState string

// Link states.
const (
	LinkUp        LinkState = "up"
	LinkDown      LinkState = "down"       // cut at the switch
	LinkNoCarrier LinkState = "no-carrier" // the host's end is down
	LinkMissing   LinkState = "missing"
)

type NodeStatus struct {
	Name string `json:"name"`
	// Machine is the machine that runs the node; "" if the rack has one.
	Machine string `json:"machine,omitempty"`
	Role    string `json:"role"` // a rackfile.Role, or "switch"
	State   State  `json:"state"`
	// PID is the process ID of the node's daemon on this machine. InitPID is that of the node's
	// process 1. 0 means that there is no such process.
	PID     int `json:"pid,omitempty"`
	InitPID int `json:"initPid,omitempty"`
	// Meant is true if a command has crashed the node, and false if it died without one.
	Meant bool `json:"meant,omitempty"`
	// Reason is why a host of a compact rack has crashed by itself; "" means that this is unknown.
	Reason string     `json:"reason,omitempty"`
	Link   LinkState  `json:"link,omitempty"`
	Port   string     `json:"port,omitempty"`
	IPv4   netip.Addr `json:"ipv4,omitzero"`
	IPv6   netip.Addr `json:"ipv6,omitzero"`
	MAC    wire.MAC   `json:"mac"`
	// Program is the switch program that runs, or that a crashed switch would run; "" for a host.
	Program string `json:"program,omitempty"`
	// Memory is the size of the host's registered region in bytes.
	Memory int64 `json:"memory,omitempty"`
	// Daemon is the status that the node's daemon has returned, as JSON.
	Daemon json.RawMessage `json:"daemon,omitempty"`
	// Container describes the host's container; nil if hosts are processes.
	Container *ContainerStatus `json:"container,omitempty"`
}

// Status describes a rack.
type Status struct {
	Name  string `json:"name"`
	State State  `json:"state"` // up if every node is up; otherwise the state of the worst node
	Dir   string `json:"dir"`
	// Slow is the factor of slow motion; 0 means that the rack is not in slow motion.
	Slow int `json:"slow,omitempty"`
	// Runtime is RuntimeDocker if hosts are containers. Then Watcher says why containers that start
	// would not be connected to the switch; "" means that the watcher works.
	Runtime string `json:"runtime,omitempty"`
	Watcher string `json:"watcher,omitempty"`
	// Machine is the machine of a slice; "" for a whole rack. Machines are those of a rack on several,
	// as its client sees them.
	Machine string `json:"machine,omitempty"`
	// Generation is that of a slice.
	Generation uint64          `json:"generation,omitempty"`
	Machines   []MachineStatus `json:"machines,omitempty"`
	// Switch is the switch, or the first one of a rack with several: Switches are all of these, and Trunks
	// those between them.
	Switch   NodeStatus    `json:"switch"`
	Switches []NodeStatus  `json:"switches,omitempty"`
	Trunks   []TrunkStatus `json:"trunks,omitempty"`
	// Devices are the ports that are network devices of the machine.
	Devices []DeviceStatus `json:"devices,omitempty"`
	Hosts   []NodeStatus   `json:"hosts"`
	// Guests are the guests of the rack; State does not depend on them.
	Guests []GuestStatus `json:"guests,omitempty"`
	// Unfinished names hosts that an apply has begun to add or to remove, and has not finished.
	Unfinished []string `json:"unfinished,omitempty"`
}

// MachineStatus describes a machine of a rack that has several. Error is why it does not answer; "" means
// that it does.
type MachineStatus struct {
	Name       string `json:"name"`
	SSH        string `json:"ssh"`
	Generation uint64 `json:"generation,omitempty"`
	Error      string `json:"error,omitempty"`
}

// TrunkStatus describes a trunk between two switches.
type TrunkStatus struct {
	Name string `json:"name"`
	// Link is the state at the leaf's end.
	Link LinkState `json:"link"`
	// Notes say what is worth knowing of a trunk that datagrams carry, by the name of the switch that says it.
	Notes map[string]string `json:"notes,omitempty"`
}

// With returns the state of a trunk of which s and other are the ends, which must both work.
func (s TrunkStatus) With(other TrunkStatus) TrunkStatus {
	if s.Link == LinkUp || other.Link == LinkDown {
		s.Link = other.Link
	}
	notes := make(map[string]string)
	maps.Copy(notes, s.Notes)
	maps.Copy(notes, other.Notes)
	if len(notes) > 0 {
		s.Notes = notes
	}
	return s
}

// GuestStatus describes a guest and the state of its link.
type GuestStatus struct {
	guests.Guest
	Link LinkState `json:"link"`
}

// daemonStatus has the fields of a daemon's status that decide the state of its node.
type daemonStatus struct {
	NIC struct {
		State string `json:"state"`
	} `json:"nic"`
	App string `json:"app"`
	// Program is the program that the switch runs; it may differ from the one in the rack file.
	Program string `json:"program"`
}

// Status inspects the processes, the link and the daemon of every node.
func (r *Rack) Status(ctx context.Context) (Status, error) {
	if r.far != nil {
		return r.far(ctx)
	}
	s := Status{Name: r.Spec.Name, Machine: r.Spec.Machine, Generation: r.Spec.Generation, Dir: r.Paths.Dir, Slow: r.Spec.Slow, Hosts: []NodeStatus{}}
	for _, name := range onMachine(r.Spec, r.Spec.NICNames()) {
		s.Hosts = append(s.Hosts, NodeStatus{Name: name})
	}
	for _, name := range onMachine(r.Spec, r.Spec.SwitchNames()) {
		sw := r.Spec.OnSwitch(name).Switch
		s.Switches = append(s.Switches, NodeStatus{Name: name, Role: rackfile.SwitchName, IPv4: sw.IPv4, IPv6: sw.IPv6, MAC: sw.MAC, Program: sw.Program})
	}
	o := observer{r.Spec, r.Paths, r.keep}
	links, err := o.links()
	if err != nil {
		return s, rackError(s.Name, err)
	}
	errs := make([]error, len(s.Switches)+len(s.Hosts))
	var wg sync.WaitGroup
	for i := range s.Switches {
		wg.Go(func() { errs[i] = o.observe(ctx, &s.Switches[i]) })
	}
	for i := range s.Hosts {
		n := &s.Hosts[i]
		h, _, _ := r.Spec.Host(n.Name)
		*n = NodeStatus{
			Name: h.Name, Role: string(h.Role), Port: h.Port, IPv4: h.IPv4, IPv6: h.IPv6, MAC: h.MAC,
			Memory: h.Memory, Link: linkState(links, h.Port),
		}
		wg.Go(func() { errs[len(s.Switches)+i] = o.observe(ctx, n) })
	}
	wg.Wait()
	s.Trunks = o.trunks(links, s.Switches)
	s.Devices = o.devices(s.Switches)
	if len(s.Switches) > 0 { // else this machine runs none
		s.Switch = s.Switches[0]
	}
	if r.Spec.Fabric == nil {
		s.Switches = nil
	}
	if r.containers != nil {
		r.containerHosts().observe(ctx, &s)
	}
	s.State = s.Worst()
	s.Unfinished = unfinished(r.Paths)
	list, err := guests.List(r.Paths)
	errs = append(errs, err)
	for i := range list {
		s.Guests = append(s.Guests, GuestStatus{list[i], linkState(links, list[i].Port)})
	}
	return s, rackError(s.Name, errors.Join(errs...))
}

// observer finds out the state of links and processes, for Status.
type observer struct {
	spec  *rackfile.Rack
	paths rackfile.Paths
	keep  keeper
}

func (o observer) links() (map[string]nl.Link, error) {
	list, err := nl.Links(o.paths.Netns(rackfile.SwitchName))
	if errors.Is(err, nl.ErrPrivilege) {
		return nil, ErrPrivilege
	}
	byName := make(map[string]nl.Link, len(list))
	for _, l := range list {
		byName[l.Name] = l
	}
	return byName, err
}

// trunks returns the states of the trunks that have an end on this machine. A trunk that datagrams carry
// has no interface: its switches know whether it works.
func (o observer) trunks(links map[string]nl.Link, switches []NodeStatus) (list []TrunkStatus) {
	for _, c := range o.spec.Trunks() {
		ends := c.EndsHere()
		switch near, _ := c.Ports(); {
		case len(ends) == 0: // of other machines
		case c.Carried:
			t := TrunkStatus{Name: c.Name(), Link: LinkUp}
			for _, at := range ends {
				i := slices.IndexFunc(switches, func(n NodeStatus) bool { return n.Name == at })
				t = t.With(trunkStatus(&switches[i], c.Name()))
			}
			if exists(o.paths.Cut(t.Name)) {
				t.Link = LinkDown
			}
			list = append(list, t)
		default:
			list = append(list, TrunkStatus{Name: c.Name(), Link: linkState(links, near)})
		}
	}
	return list
}

// trunkStatus is the state of a trunk that datagrams carry, as the status of a switch says.
func trunkStatus(at *NodeStatus, name string) TrunkStatus {
	var d struct {
		Trunks []struct {
			Name string `json:"name"`
			Up   bool   `json:"up"`
		} `json:"trunks"`
		Ports []struct {
			Host string `json:"host"`
			Note string `json:"note"`
		} `json:"ports"`
	}
	_ = json.Unmarshal(at.Daemon, &d) // a switch that does not answer has no working trunk
	s := TrunkStatus{Name: name, Link: LinkNoCarrier}
	for _, t := range d.Trunks {
		if t.Name == name && t.Up {
			s.Link = LinkUp
		}
	}
	for _, p := range d.Ports {
		if p.Host == name && p.Note != "" {
			s.Notes = map[string]string{at.Name: p.Note}
		}
	}
	return s
}

func linkState(links map[string]nl.Link, port string) LinkState {
	l, ok := links[port]
	switch {
	case !ok:
		return LinkMissing
	case !l.Up:
		return LinkDown
	case !l.Carrier:
		return LinkNoCarrier
	}
	return LinkUp
}

// observe fills in the state of a node, as its processes and its daemon show it.
func (o observer) observe(ctx context.Context, n *NodeStatus) error {
	machine := rackfile.MachineOf(n.Name) // of a further NIC the host, whose process runs it
	pids, err := o.keep.pids(machine)
	if err != nil {
		return err
	}
	ps := processes(pids)
	n.InitPID, n.PID = initAndDaemon(ps, o.spec.Shared())
	if n.PID == 0 {
		n.State = StateCrashed
		n.Meant = exists(o.paths.Crashed(n.Name))
		if why, err := os.ReadFile(o.paths.Broken(n.Name)); err == nil && !n.Meant {
			n.Reason = string(why)
		}
		return nil
	}
	hung, err := o.keep.hung(machine)
	if err != nil {
		return err
	}
	if hung {
		n.State = StateHung
		return nil
	}
	var d daemonStatus
	if err := answer(ctx, control.NewClient(o.paths.Socket(n.Name)), &n.Daemon); err != nil {
		var said *control.Error
		if n.State = StateSilent; !errors.As(err, &said) {
			return nil // the status reports that the daemon does not answer
		}
		return err
	}
	_ = json.Unmarshal(n.Daemon, &d) // the switch's status has no field nic, which then stays empty
	if n.Role == rackfile.SwitchName && d.Program != "" {
		n.Program = d.Program
	}
	switch {
	case d.NIC.State != "" && d.NIC.State != "up":
		n.State = StateNICDown
	case n.Link != LinkUp && n.Role != rackfile.SwitchName:
		n.State = StateCut
	case d.App == "hung":
		n.State = StateAppHung
	case d.App == "crashed":
		n.State = StateApp
	default:
		n.State = StateUp
	}
	return nil
}

// Worst returns the state of the worst node.
func (s *Status) Worst() State {
	nodes := slices.Concat([]NodeStatus{s.Switch}, s.Switches, s.Hosts)
	for _, state := range []State{StateLost, StateCrashed, StateHung, StateSilent, StateNICDown, StateCut, StateAppHung, StateApp} {
		if slices.ContainsFunc(nodes, func(n NodeStatus) bool { return n.State == state }) {
			return state
		}
	}
	return StateUp
}
