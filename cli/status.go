package cli

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/units"
)

func statusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"ls", "ps", "list", "show"},
		Short:      "Show every host and the switch: state, addresses, link, process",
		Args:       cobra.NoArgs,
		RunE: onRack(func(cmd *cobra.Command, _ []string, r *rack.Rack) error {
			s, err := r.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := show(cmd, s, printStatus); err != nil || wantJSON(cmd) {
				return err
			}
			if isTerminal(os.Stderr) { // elsewhere a busy machine changes no output
				warnOfStalls(cmd.ErrOrStderr(), stallsIn(&s))
			}
			if text := slowMotion(r.Spec); text != "" {
				return say(cmd, "\n%s", text)
			}
			return nil
		}),
	}
	listFlags(cmd)
	return cmd
}

// openRack returns the rack on which the command works. It returns an error if the rack is not up.
func openRack(cmd *cobra.Command) (*rack.Rack, error) {
	if _, _, err := rackOf(cmd); err != nil {
		return nil, err // this error names other racks that are up
	}
	if e := elsewhereOf(cmd); e != nil {
		return e.open(), nil
	}
	name, err := rackName(cmd)
	if err != nil {
		return nil, err
	}
	return machines.OpenRack(cmd.Context(), name, func(error) {}) // rackOf has said it
}

// onRack returns the RunE of a command that works on a rack, which must be up.
func onRack(f func(cmd *cobra.Command, args []string, r *rack.Rack) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		r, err := openRack(cmd)
		if err != nil {
			return err
		}
		return f(cmd, args, r)
	}
}

func printStatus(w io.Writer, s rack.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	several := len(s.Machines) > 0
	fmt.Fprintln(t, "NAME\tROLE\tSTATE\tADDRESS\tIPV6\tMAC\tMEMORY\tLINK\tPID"+either(several, "\tMACHINE", ""))
	for _, n := range append(switchesOf(&s), s.Hosts...) {
		memory, pid := either(n.Memory > 0, units.FormatSize(n.Memory), "-"), either(n.PID > 0, strconv.Itoa(n.PID), "-")
		link, v4, v6, mac := string(n.Link), n.IPv4, n.IPv6, n.MAC.String()
		if n.Role == rackfile.SwitchName {
			link = "-"
			if n.Program != rackfile.ProgramSwordBox { // no program answers at the addresses of the switch
				v4, v6, mac = netip.Addr{}, netip.Addr{}, "-"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", n.Name, n.Role, n.State, dash(v4), dash(v6), mac, memory, link, pid, either(several, "\t"+n.Machine, ""))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range s.Hosts {
		if n.Reason != "" {
			fmt.Fprintf(w, "%s: %s; `rdmalab logs %s` has more, `rdmalab restart %s` starts it again\n", n.Name, n.Reason, n.Name, n.Name)
		}
	}
	for _, host := range s.Unfinished {
		fmt.Fprintf(w, "%s: an apply has not finished it; the same apply, repeated, does the rest\n", host)
	}
	if err := printTrunks(w, s.Trunks); err != nil {
		return err
	}
	for i, d := range s.Devices {
		if _, err := fmt.Fprintf(w, "%s%s: device %s as a port of %s, %s\n", either(i == 0, "\n", ""), d.Name, d.Ifname, d.Switch, d.Link); err != nil {
			return err
		}
	}
	if err := printMachines(w, s); err != nil {
		return err
	}
	if len(s.Guests) > 0 {
		fmt.Fprintln(w)
		if err := printGuests(w, s.Guests); err != nil {
			return err
		}
	}
	if err := printPrograms(w, s); err != nil {
		return err
	}
	return printContainers(w, s, time.Now())
}

// switchesOf lists the switches of a rack.
func switchesOf(s *rack.Status) []rack.NodeStatus {
	if len(s.Switches) > 0 {
		return slices.Clone(s.Switches)
	}
	return []rack.NodeStatus{s.Switch}
}

// printTrunks lists the trunks between switches that do not work, and how many do.
func printTrunks(w io.Writer, list []rack.TrunkStatus) error {
	if len(list) == 0 {
		return nil
	}
	up := 0
	for _, c := range list {
		if c.Link == rack.LinkUp {
			up++
		}
	}
	if _, err := fmt.Fprintf(w, "\n%d of %s between switches up\n", up, count(len(list), "trunk")); err != nil {
		return err
	}
	for _, c := range list {
		if c.Link != rack.LinkUp {
			if _, err := fmt.Fprintf(w, "%s: %s; `rdmalab link %s up` restores a trunk that was cut\n", c.Name, c.Link, c.Name); err != nil {
				return err
			}
		}
		for _, at := range slices.Sorted(maps.Keys(c.Notes)) {
			if _, err := fmt.Fprintf(w, "%s at %s: %s\n", c.Name, at, c.Notes[at]); err != nil {
				return err
			}
		}
	}
	return nil
}

func dash(a netip.Addr) string { return either(a.IsValid(), a.String(), "-") }
