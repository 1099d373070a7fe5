package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

func congestionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "congestion [HOST] [KEY=VALUE...]",
		Short:             "Show the rates of queue pairs under congestion control, or change its parameters",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := congestionChange(args)
			if err != nil {
				return err
			}
			if len(change) > 0 && cmd.Flags().Changed("watch") {
				return badUse("--watch lists again and again, and KEY=VALUE changes once: give one of them")
			}
			r, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			hosts := r.NICNames()
			if len(args) > 0 {
				hosts = args[:1]
			}
			list := make([]hostd.Congestion, len(hosts))
			for i, h := range hosts {
				if len(change) > 0 {
					err = askNode(cmd, h, http.MethodPost, hostd.PathCongestion, change, &list[i])
				} else {
					err = askNode(cmd, h, http.MethodGet, hostd.PathCongestion, nil, &list[i])
				}
				if err != nil {
					return err
				}
			}
			return show(cmd, list, func(out io.Writer, list []hostd.Congestion) error { return printCongestion(out, r, list) })
		},
	}
	listFlags(cmd)
	return cmd
}

// congestionChange reads the arguments behind the host.
func congestionChange(args []string) (hostd.CongestionChange, error) {
	if len(args) < 2 {
		if len(args) == 1 && strings.Contains(args[0], "=") {
			return nil, badUse("%.60q: name the host first: rdmalab congestion HOST KEY=VALUE", args[0])
		}
		return nil, nil
	}
	change, form := hostd.CongestionChange{}, congestion.Params{}
	for _, a := range args[1:] {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, badUse("%.60q: want KEY=VALUE, like rp_ai_rate=5Mbit", a)
		}
		f, err := form.Field(name)
		if err != nil {
			return nil, badUse("%v", err)
		}
		if change[name], err = rackfile.ParseCongestion(&f, value); err != nil {
			return nil, badUse("%s: %v", name, err)
		}
	}
	return change, nil
}

func printCongestion(out io.Writer, r *rackfile.Rack, list []hostd.Congestion) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := false
	for i := range list {
		c := &list[i]
		fmt.Fprintf(out, "%s: %v\n", c.Name, c.Params)
		for k := range c.QPs {
			q := &c.QPs[k]
			if !head {
				fmt.Fprintln(t, "HOST\tQPN\tOWNER\tPEER\tRATE\tTARGET\tALPHA\tSTAGES\tCNPS\tSENT\tWAITS\tLATE\tPACE")
				head = true
			}
			pace := "idle"
			if q.Next > 0 {
				pace = q.Next.String()
			}
			fmt.Fprintf(t, "%s\t%#x\t%v\t%s\t%s\t%s\t%.4f\t%d/%d\t%d\t%d\t%d\t%d\t%s\n", c.Name, q.QPN, q.Owner, peerText(r, q.Peer, q.PeerQPN), congestion.RateText(q.Rate), congestion.RateText(q.Target),
				q.Alpha, q.TimeStage, q.ByteStage, q.CNPs, q.Sent, q.Waits, q.Late, pace)
		}
	}
	if !head {
		fmt.Fprintln(t, "No queue pair is under congestion control.")
	}
	return t.Flush()
}
