package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func switchQueuesCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "queues [PORT]",
		Short: "Show the egress queues of the switch's ports, by priority",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showQueues(cmd, args, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also priorities that have sent nothing")
	listFlags(cmd)
	return cmd
}

// errNoQueues says that the ports of the rack have no rate.
var errNoQueues = errors.New("the ports of this rack have no queues with priorities: give the switch a rate in the rack file, `ports: {rate: 1Gbit}`, and bring the rack up again")

func showQueues(cmd *cobra.Command, args []string, all bool) error {
	return listing(cmd, "/queues", func(out io.Writer, _ rackfile.Names, q switchd.Queues) error {
		if q.Rate == 0 {
			return errNoQueues
		}
		if len(args) > 0 {
			i := slices.IndexFunc(q.Ports, func(p switchd.PortQueues) bool { return p.Host == args[0] })
			if i < 0 {
				return badUse("there is no port %.40q; `rdmalab status` lists the hosts", args[0])
			}
			q.Ports = q.Ports[i : i+1]
		}
		return printQueues(out, &q, all)
	})
}

func printQueues(out io.Writer, q *switchd.Queues, all bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PORT\tPRIO\tBYTES\tPEAK\tSENT\tMARKED\tDROPPED\tPAUSED\tPAUSES\tHEADROOM") // Flush reports errors
	for _, p := range q.Ports {
		for i := range p.Priorities {
			s := &p.Priorities[i]
			if !all && s.TxPackets+s.Dropped+s.Discarded+s.RxPause+s.TxPause == 0 {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\n", p.Host, priorityText(q, s.Priority), s.Bytes, s.Peak, s.TxPackets, s.Marked, s.Dropped+s.Discarded, pausedText(s), pausesText(s), s.HeadroomPeak)
		}
	}
	return w.Flush()
}

// priorityText marks lossless priorities.
func priorityText(q *switchd.Queues, prio int) string {
	return strconv.Itoa(prio) + either(slices.Contains(q.Lossless, prio), " lossless", "")
}

func pausedText(s *portqueue.Status) string {
	var text []string
	if s.RxPause > 0 {
		text = append(text, (time.Duration(s.RxDuration) * time.Microsecond).Round(10*time.Microsecond).String())
	}
	switch {
	case s.Storm:
		text = append(text, "storm")
	case s.Paused:
		text = append(text, "now")
	}
	return either(len(text) == 0, "-", strings.Join(text, " "))
}

func pausesText(s *portqueue.Status) string {
	if s.TxPause == 0 {
		return "-"
	}
	return strconv.FormatUint(s.TxPause, 10) + either(s.Pausing, " now", "")
}
