package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// endings say, for what can be wrong with a node and is no fault rule, what it is and how it ends. NODE stands for
// the name of the node.
var endings = map[rack.State]string{
	rack.StateLost:    "its machine does not answer; `rdmalab status` says which it is",
	rack.StateCrashed: "it has crashed; `rdmalab restart NODE` starts it again",
	rack.StateHung:    "it hangs; `rdmalab resume NODE` lets it go on",
	rack.StateSilent:  "its daemon does not answer; `rdmalab restart NODE` starts it again",
	rack.StateNICDown: "its NIC is down; `rdmalab restart NODE --nic` starts it again",
	rack.StateAppHung: "its programs hang; `rdmalab resume NODE --app` lets them go on",
	rack.StateApp:     "its programs have crashed; `rdmalab restart NODE --app` starts its services again",
}

// linkEndings are endings for links.
var linkEndings = map[rack.LinkState]string{
	rack.LinkDown:      "its link is cut; `rdmalab link NODE up` restores it",
	rack.LinkNoCarrier: "the host's end of its link is down; `rdmalab restart NODE` makes it again",
	rack.LinkMissing:   "its link is missing; `rdmalab restart NODE` makes it again",
}

// notFaults lists what is wrong with nodes and links and no fault rule, a line each with the command that ends it:
// of the node or link called name with its further NICs, or of all if name is "".
func notFaults(s *rack.Status, name string) (lines []string) {
	add := func(of, text string) {
		if text != "" {
			lines = append(lines, of+": "+strings.Replace(text, "NODE", of, 1))
		}
	}
	for _, n := range append(switchesOf(s), s.Hosts...) {
		if name != "" && n.Name != name && rackfile.MachineOf(n.Name) != name {
			continue
		}
		switch host := rackfile.MachineOf(n.Name); {
		case n.Name == host || n.State == rack.StateNICDown:
			add(n.Name, endings[n.State])
		case n.Name == name:
			add(host, endings[n.State]) // a further NIC is in the process of its host
		}
		ends := n.State == rack.StateCrashed || n.State == rack.StateHung || n.State == rack.StateLost // the link may be down for that
		if n.Role != rackfile.SwitchName && (n.Link == rack.LinkDown || !ends) {
			add(n.Name, linkEndings[n.Link])
		}
	}
	for _, t := range s.Trunks {
		if (name == "" || name == t.Name) && t.Link == rack.LinkDown {
			add(t.Name, linkEndings[t.Link])
		}
	}
	for _, d := range s.Devices {
		if (name == "" || name == d.Name) && d.Link == rack.LinkDown {
			add(d.Name, linkEndings[d.Link])
		}
	}
	return lines
}

// other lists what heal does not end: see notFaults. It lists nothing if the status of the rack cannot be read.
func (h *healer) other(ctx context.Context, name string) []string {
	r, err := openRack(h.cmd)
	if err != nil {
		return nil
	}
	s, err := r.Status(ctx)
	if err != nil {
		return nil
	}
	lines := notFaults(&s, name)
	if name == "" || h.rack.IsSwitch(name) {
		return lines
	}
	if _, groups, err := switchFaults(ctx, h.rack, h.paths); err == nil && len(groups) > 0 && checkHost(h.rack, name) == nil {
		lines = append(lines, fmt.Sprintf("%s: a partition is in force, %s; `rdmalab partition --mend` ends it", name, describe(h.rack, groups)))
	}
	return lines
}

// sayOther prints what other lists.
func (h *healer) sayOther(ctx context.Context, name string) error {
	for _, line := range h.other(ctx, name) {
		if _, err := fmt.Fprintln(hinted(h.cmd, h.cmd.OutOrStdout()), line); err != nil {
			return err
		}
	}
	return nil
}

// explained adds to the error of a request to a switch what is wrong with the rack's switches, if the switch did not
// answer.
func (h *healer) explained(ctx context.Context, err error) error {
	var answered *control.Error
	if err == nil || isUse(err) || errors.As(err, &answered) || errors.Is(err, errInterrupted) || errors.Is(err, control.ErrNotRunning) {
		return err
	}
	for _, name := range h.rack.SwitchNames() {
		if lines := h.other(ctx, name); len(lines) > 0 {
			return fmt.Errorf("%s; heal needs the switch (%w)", lines[0], err)
		}
	}
	return err
}

// noFault is the error of a name that is that of a switch, and of no rule.
func (h *healer) noFault(ctx context.Context, name string) error {
	lines := h.other(ctx, name)
	if len(lines) == 0 {
		return badUse("nothing is wrong with %s; `rdmalab faults` lists the faults of links", name)
	}
	return badUse("%s; heal ends faults", lines[0])
}
