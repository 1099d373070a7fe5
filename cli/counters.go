package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func countersCmd() *cobra.Command {
	var all, flows bool
	var diff time.Duration
	cmd := &cobra.Command{
		Use:               "counters HOST|switch",
		Short:             "Show the counters of a host's NIC, or of the switch",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if diff < 0 {
				return badUse("--diff %v: want a positive time", diff)
			}
			r, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			if r.IsSwitch(args[0]) {
				if diff != 0 {
					return badUse("--diff is for a host: leave it out with the switch")
				}
				if flows {
					return listingOf(cmd, args[0], "/flows", printFlows)
				}
				return listingOf(cmd, args[0], "/counters", func(out io.Writer, _ rackfile.Names, c switchd.Counters) error { return printPorts(out, &c, all) })
			}
			if flows {
				return badUse("--flows works for the switch only: `rdmalab counters switch --flows`")
			}
			if err := checkNode(r, args[0]); err != nil {
				return err
			}
			client, err := hostControl(cmd, args[0])
			if err != nil {
				return err
			}
			c, err := countersOver(cmd.Context(), client, diff)
			if err != nil {
				return withNode(err, args[0])
			}
			return show(cmd, counterMap(c), func(io.Writer, counterListing) error { return printCounters(cmd, c.Samples, all) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also counters that are 0")
	cmd.Flags().BoolVar(&flows, "flows", false, "with switch: show RoCEv2 flows instead, by source, destination and queue pair")
	cmd.Flags().DurationVar(&diff, "diff", 0, "with a host: wait this long, and show by how much each counter has grown")
	listFlags(cmd)
	return cmd
}

type counterListing struct {
	Name     string            `json:"name"`
	Counters map[string]uint64 `json:"counters"`
}

func counterMap(c hostd.Counters) counterListing {
	out := counterListing{Name: c.Name, Counters: make(map[string]uint64, len(c.Samples))}
	for _, s := range c.Samples {
		out.Counters[s.Name] = s.Value
	}
	return out
}

// countersOf reads the counters of a host's NIC, by their names.
func countersOf(ctx context.Context, cmd *cobra.Command, host string) (map[string]uint64, error) {
	client, err := hostControl(cmd, host)
	if err != nil {
		return nil, err
	}
	c, err := countersOver(ctx, client, 0)
	if err != nil {
		return nil, withNode(err, host)
	}
	return counterMap(c).Counters, nil
}

// countersOver reads the counters of a host's NIC. If d is not 0, it returns by how much they have
// grown during d.
func countersOver(ctx context.Context, client *control.Client, d time.Duration) (c hostd.Counters, err error) {
	read := func() (c hostd.Counters, err error) {
		ctx, cancel := context.WithTimeout(ctx, daemonWait)
		defer cancel()
		err = client.Call(ctx, http.MethodGet, hostd.PathCounters, nil, &c)
		return c, err
	}
	before, err := read()
	if err != nil || d == 0 {
		return before, err
	}
	if pause(ctx, d) != nil {
		return c, errInterrupted
	}
	if c, err = read(); err != nil {
		return c, err
	}
	old := make(map[string]uint64, len(before.Samples))
	for _, s := range before.Samples {
		old[s.Name] = s.Value
	}
	for i, s := range c.Samples {
		if s.Value >= old[s.Name] { // a counter is smaller than before if the host was restarted
			c.Samples[i].Value -= old[s.Name]
		}
	}
	return c, nil
}

// helpTexts returns the help texts of counters, by name.
func helpTexts() map[string]string {
	texts := make(map[string]string)
	for _, s := range hostd.CounterHelp() {
		texts[s.Name] = s.Help
	}
	return texts
}

func printCounters(cmd *cobra.Command, samples []metrics.Sample, all bool) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	help := helpTexts()
	shown := 0
	for _, s := range samples {
		if s.Value == 0 && !all {
			continue
		}
		shown++
		fmt.Fprintf(w, "%s\t%12d\t%s\n", s.Name, s.Value, help[s.Name]) // Flush reports errors
	}
	if shown == 0 {
		fmt.Fprintf(w, "all %d counters are 0\n", len(samples))
	}
	return w.Flush()
}

func printPorts(out io.Writer, c *switchd.Counters, all bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PORT\tRX PACKETS\tRX BYTES\tROCE\tMALFORMED\tSENT PACKETS\tSENT BYTES\tDROPPED") // Flush reports errors
	for _, p := range c.Ports {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
			p.Host, p.RxPackets, p.RxBytes, p.RxRoCE, p.Malformed, p.SentPackets, p.SentBytes, drops(p))
	}
	if len(c.Lost) > 0 {
		fmt.Fprintf(w, "switch\t-\t-\t-\t-\t-\t-\t%s\n", drops(switchd.PortCounters{PortCounters: pipeline.PortCounters{Drops: c.Lost}}))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w) // an empty line ends the columns of the table
	for _, s := range metrics.Samples(&c.Switch) {
		if s.Value > 0 || all {
			fmt.Fprintf(w, "%s\t%12d\t%s\n", s.Name, s.Value, s.Help)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range c.Ports {
		if p := &c.Ports[i]; p.Trunk != nil {
			printTrunk(w, p.Host, p.Trunk, all)
		}
	}
	return w.Flush()
}

// printTrunk prints what a trunk to another machine counts and measures.
func printTrunk(w io.Writer, name string, s *trunk.Stats, all bool) {
	fmt.Fprintf(w, "\n%s: %v, path MTU %d, round trip %v, at best %v, the other machine's clock is %v ahead\n", name, s.State, s.MTU, s.RoundTrip, s.Shortest, s.Ahead)
	if s.Trouble != "" {
		fmt.Fprintf(w, "  %s\n", s.Trouble)
	}
	if s.Slow != "" {
		fmt.Fprintf(w, "  %s\n", s.Slow)
	}
	for _, c := range s.Samples() {
		if c.Value > 0 || all {
			fmt.Fprintf(w, "%s\t%12d\t%s\n", c.Name, c.Value, c.Help)
		}
	}
}

func drops(p switchd.PortCounters) string {
	var list []string
	for reason, n := range p.Drops {
		list = append(list, fmt.Sprintf("%s %d", reason, n))
	}
	if p.RxRing > 0 {
		list = append(list, fmt.Sprintf("receive ring full %d", p.RxRing))
	}
	if len(list) == 0 {
		return "-"
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func printFlows(out io.Writer, names rackfile.Names, flows []pipeline.Flow) error {
	return handler.WriteTable(out, flows, "no RoCEv2 packet has passed the switch", "FROM\tTO\tTO QP\tPACKETS\tBYTES\tLAST SEEN", func(f *pipeline.Flow) string {
		return fmt.Sprintf("%s\t%s\t%#x\t%d\t%d\t%v ago", names.Of(f.Src), names.Of(f.Dst), uint32(f.QPN), f.Packets, f.Bytes, f.Idle.Round(time.Millisecond))
	})
}
