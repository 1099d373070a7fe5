package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/units"
)

// objectKind is a kind of objects that a command lists.
type objectKind struct {
	name, path, short string
	print             func(t io.Writer, r *rackfile.Rack, o *hostd.Objects)
}

var objectKinds = []objectKind{
	{"qps", hostd.PathQPs, "List the queue pairs of a host, and the last error of each with its reason", printQPs},
	{"mrs", hostd.PathMRs, "List the memory regions and windows of a host", printMRs},
	{"cqs", hostd.PathCQs, "List the completion queues of a host", printCQs},
	{"cms", hostd.PathCMs, "List the connections of a host's connection manager", printCMs},
}

// objectCmds makes the commands that list objects of a host.
func objectCmds() (list []*cobra.Command) {
	for _, k := range objectKinds {
		list = append(list, objectCmd(&k))
	}
	return list
}

func objectCmd(k *objectKind) *cobra.Command {
	var live bool
	cmd := &cobra.Command{
		Use: k.name + " HOST", Short: k.short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			var o hostd.Objects
			if err := askNode(cmd, args[0], http.MethodGet, k.path, nil, &o); err != nil {
				return err
			}
			if live {
				o.QPs = slices.DeleteFunc(o.QPs, func(q hostd.QPObject) bool { return q.Gone })
			}
			return show(cmd, o, func(out io.Writer, o hostd.Objects) error {
				t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
				k.print(t, r, &o)
				return t.Flush()
			})
		},
	}
	if k.path == hostd.PathQPs {
		cmd.Flags().BoolVar(&live, "live", false, "without queue pairs that have gone")
	}
	listFlags(cmd)
	return cmd
}

func printQPs(t io.Writer, r *rackfile.Rack, o *hostd.Objects) {
	if len(o.QPs) == 0 {
		fmt.Fprintf(t, "%s has no queue pair.\n", o.Name)
		return
	}
	fmt.Fprintln(t, "QPN\tTYPE\tSTATE\tOWNER\tPEER\tPSN\tEXPECTS\tFLIGHT\tSENDS\tRECVS\tAGAIN\tHEALED\tLAST ERROR")
	for i := range o.QPs {
		q := &o.QPs[i]
		state, last := q.State, "-"
		if q.Gone {
			state = "(" + state + ")"
		}
		if q.LastError != nil {
			last = either(q.LastError.Code != 0, fmt.Sprintf("%#x", q.LastError.Code), q.LastError.Kind)
		}
		psn, flight := "-", "-"
		if q.Type == "RC" && q.PeerQPN != 0 {
			psn, flight = fmt.Sprintf("%d-%d", q.Una, q.SendPSN), strings.TrimSpace(fmt.Sprintf("%d/%d %s", q.InFlight, q.Window, q.Recovery))
		}
		fmt.Fprintf(t, "%#x\t%s\t%s\t%v\t%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\n", q.QPN, q.Type, state, q.Owner, peerText(r, q.Peer, q.PeerQPN), psn, q.RecvPSN, flight,
			q.SendQueued, q.RecvQueued, q.RetransPkts, q.Totals.Healed, last)
	}
	for i := range o.QPs {
		if q := &o.QPs[i]; q.LastError != nil {
			fmt.Fprintf(t, "\n%#x, %s ago: %s\n", q.QPN, ago(o.Time, q.LastError.At), q.LastError.Text)
		}
	}
}

// peerText names the other end of a queue pair, by its address and number; 0 means that there is none.
func peerText(r *rackfile.Rack, peer string, qpn uint32) string {
	if qpn == 0 {
		return "-"
	}
	return fmt.Sprintf("%s %#x", r.PeerName(peer), qpn)
}

// ago returns the time from then to now, for people.
func ago(now, then time.Time) string {
	d := max(now.Sub(then), 0)
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func printMRs(t io.Writer, _ *rackfile.Rack, o *hostd.Objects) {
	if len(o.MRs) == 0 {
		fmt.Fprintf(t, "%s has no memory region.\n", o.Name)
		return
	}
	fmt.Fprintln(t, "REGION\tKIND\tOWNER\tPD\tFIRST\tLAST\tSIZE\tLKEY\tRKEY\tACCESS")
	for i := range o.MRs {
		m := &o.MRs[i]
		access := either(m.Access == "", "-", m.Access)
		switch {
		case !m.Valid:
			access = "none: its keys are not valid"
		case m.ForQPN != 0:
			access += fmt.Sprintf(" (for the peer of %#x)", m.ForQPN)
		}
		first, last := fmt.Sprintf("%#x", m.Addr), "-"
		if m.Length > 0 {
			last = fmt.Sprintf("%#x", m.Addr+m.Length-1)
		}
		fmt.Fprintf(t, "%d\t%s\t%v\t%d\t%s\t%s\t%s\t%#x\t%#x\t%s\n", m.Number, m.Kind, m.Owner, m.PD, first, last, units.FormatSize(int64(m.Length)), m.LKey, m.RKey, access)
	}
}

func printCQs(t io.Writer, _ *rackfile.Rack, o *hostd.Objects) {
	if len(o.CQs) == 0 {
		fmt.Fprintf(t, "%s has no completion queue.\n", o.Name)
		return
	}
	fmt.Fprintln(t, "CQ\tOWNER\tDEPTH\tQUEUED\tOVERRUN\tQPS")
	for i := range o.CQs {
		c := &o.CQs[i]
		var qps []string
		for _, n := range c.QPs {
			qps = append(qps, fmt.Sprintf("%#x", n))
		}
		fmt.Fprintf(t, "%d\t%v\t%d\t%d\t%s\t%s\n", c.Number, c.Owner, c.Depth, c.Queued, either(c.Overrun, "yes", "no"), either(len(qps) > 0, strings.Join(qps, " "), "-"))
	}
}

func printCMs(t io.Writer, r *rackfile.Rack, o *hostd.Objects) {
	if len(o.CMs) == 0 {
		fmt.Fprintf(t, "%s has no connection of a connection manager.\n", o.Name)
	} else {
		fmt.Fprintln(t, "ID\tSTATE\tLOCAL\tPEER\tSERVICE\tQPN\tPEER QPN\tEND")
	}
	for i := range o.CMs {
		c := &o.CMs[i]
		number := func(n uint32) string { return either(n != 0, fmt.Sprintf("%#x", n), "-") }
		fmt.Fprintf(t, "%#x\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.State, c.Local, r.NameOf(c.Peer), c.Service, number(c.QPN), number(c.PeerQPN), either(c.End != "", c.End, "-"))
	}
	if len(o.Services) > 0 {
		fmt.Fprintf(t, "\nListens for: %s\n", strings.Join(o.Services, " "))
	}
}
