package cli

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/units"
)

func statusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"ls", "ps", "list", "show"},
		Short:      "Show every host and the switch: state, addresses, link, process",
		Long: "status reads the present state of each host and of the switch, and prints a line for each: its name, role, state and\n" +
			"addresses, and\n\n" +
			"  MEMORY  size of the memory that a host registers for others\n" +
			"  LINK    state of its link: up, down (cut at the switch), no-carrier (the host's end is down) or missing\n" +
			"  PID     process ID of its daemon\n\n" +
			"STATE is one of these; if several apply, it is the last one of them. The exit status does not depend on it.\n\n" +
			"  up           the daemon answers\n" +
			"  app-crashed  the programs have crashed (`rdmalab crash --app`), and the NIC works\n" +
			"  app-hung     the programs are stopped (`rdmalab hang --app`), and the NIC works\n" +
			"  link-down    the link is not up: see LINK\n" +
			"  nic-down     the NIC has crashed or failed\n" +
			"  silent       the daemon runs, but does not answer: see `rdmalab logs`\n" +
			"  hung         the processes are stopped by `rdmalab hang`\n" +
			"  crashed      the daemon does not run: `rdmalab restart` starts it again\n\n" +
			"If the rack is in slow motion (`rdmalab up --help`), the last line says so. Daemons that did not run for 50 ms or\n" +
			"longer in the last 5 minutes, because the processors are busy, are named on a terminal.\n\n" +
			"More tables follow if there is something to show. This list names each by a column that only this table has:\n\n" +
			"  GUEST          containers that have joined the rack (`rdmalab cni guests --help` explains the columns)\n" +
			"  PROGRAM        programs that use a host's NIC: the numbers of their queue pairs (QPS), completion queues (CQS) and\n" +
			"                 memory regions (MRS), the bytes, registered or not, that they share with the NIC (MAPPED), and how many\n" +
			"                 work requests they have POSTED\n" +
			"  1RMA NIC       the host's NIC without connections, up or down: its INCARNATION (grows by 1 at each start), numbers of\n" +
			"                 PROCESSES and REGIONS, and bytes REQUESTED and not yet arrived, which WINDOW limits\n" +
			"  QUOTA          limits of what programs may take from a NIC, if a program has taken some of it: the limit OF EACH\n" +
			"                 program (line shared: of each user; line programs: of their number), what is USED BY ALL, the\n" +
			"                 limit OF ALL together, and how often it was the reason of a refusal (REFUSALS)\n" +
			"  REFUSED TO     programs, also ended ones, that did not get something: how often (TIMES), and why the last time\n" +
			"  SHARED REGION  memory regions that exist longer than their programs; OPEN is how often programs have them open\n" +
			"  CONTAINER      the containers that are hosts: the engine's STATE, how the NIC gets there (PLUG, see `rdmalab up`),\n" +
			"                 whether it is there (NIC), how often rdmalab has attached it (PLUGGED), and the last events (SEEN)",
		Example: "  rdmalab status\n" +
			"  rdmalab status -o json | jq -r '.hosts[] | select(.state != \"up\") | .name'",
		Args: cobra.NoArgs,
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
	name, err := rackName(cmd)
	if err != nil {
		return nil, err
	}
	return rack.Open(name)
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
	fmt.Fprintln(t, "NAME\tROLE\tSTATE\tADDRESS\tIPV6\tMAC\tMEMORY\tLINK\tPID")
	for _, n := range append(switchesOf(&s), s.Hosts...) {
		memory, pid := either(n.Memory > 0, units.FormatSize(n.Memory), "-"), either(n.PID > 0, strconv.Itoa(n.PID), "-")
		link, v4, v6, mac := string(n.Link), n.IPv4, n.IPv6, n.MAC.String()
		if n.Role == rackfile.SwitchName {
			link = "-"
			if n.Program != rackfile.ProgramSwordBox { // no program answers at the addresses of the switch
				v4, v6, mac = netip.Addr{}, netip.Addr{}, "-"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.Role, n.State, dash(v4), dash(v6), mac, memory, link, pid)
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
	}
	return nil
}

func dash(a netip.Addr) string { return either(a.IsValid(), a.String(), "-") }
