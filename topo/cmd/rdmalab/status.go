package main

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

func statusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"ls", "ps", "list", "show"},
		Short:      "Show every host and the switch: state, addresses, link, process",
		Long: "status asks processes, links and daemons for their state now. The state of a host, or of the switch, is one of\n\n" +
			"  up           its daemon answers\n" +
			"  app-crashed  its programs have crashed, and its NIC works\n" +
			"  link-down    its link is cut\n" +
			"  nic-down     its NIC has crashed\n" +
			"  silent       its daemon runs and does not answer\n" +
			"  hung         its processes are stopped\n" +
			"  crashed      it has no process",
		Example: "  rdmalab status\n" +
			"  rdmalab status -o json | jq -r '.hosts[] | select(.state != \"up\") | .name'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
			s, err := r.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, s)
			}
			return printStatus(cmd.OutOrStdout(), s)
		},
	}
	outputFlag(cmd)
	return cmd
}

// openRack returns the rack that the command is about, which must be up.
func openRack(cmd *cobra.Command) (*rack.Rack, error) {
	if _, _, err := rackOf(cmd); err != nil {
		return nil, err // this error knows the other racks
	}
	name, err := rackName(cmd)
	if err != nil {
		return nil, err
	}
	return rack.Open(name)
}

// printStatus prints a rack as a table.
func printStatus(w io.Writer, s rack.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tROLE\tSTATE\tADDRESS\tIPV6\tMAC\tMEMORY\tLINK\tPID")
	for _, n := range append([]rack.NodeStatus{s.Switch}, s.Hosts...) {
		memory := "-"
		if n.Memory > 0 {
			memory = spec.FormatSize(n.Memory)
		}
		pid := "-"
		if n.PID > 0 {
			pid = strconv.Itoa(n.PID)
		}
		link, v4, v6, mac := string(n.Link), n.IPv4, n.IPv6, n.MAC.String()
		if n.Role == spec.SwitchName {
			link = "-"
			if n.Program != spec.ProgramSwordBox { // no process answers at these addresses
				v4, v6, mac = netip.Addr{}, netip.Addr{}, "-"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.Role, n.State, dash(v4), dash(v6), mac, memory, link, pid)
	}
	if err := t.Flush(); err != nil {
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

func dash(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}
