package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/contention"
)

// fig10Flags are the flags of fig10 as typed.
type fig10Flags struct {
	contenders contenders
	name       string
	iters      int
}

// fig10Cmd measures on a rack what `rdmalab sim fig10` computes.
func fig10Cmd() *cobra.Command {
	var f fig10Flags
	cmd := &cobra.Command{
		Use:   "fig10",
		Short: "Measure contended CAS on the running rack, in the format of rdmalab sim fig10",
		Long: "fig10 lets 1 to 64 clients on the rack's compute hosts do CAS on one word of a memory server, one at a time\n" +
			"each, through the switch as it is now. The word is the last one of the memory that the server shares: nothing\n" +
			"else should use it. Run it with and without a rule to compare.",
		Example: "  rdmalab fig10 --to ms0\n" +
			"  rdmalab switch rules add server=ms0 action=atomics && rdmalab fig10 --to ms0 --name 'CAS→WRITE, hard'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			s, err := f.measure(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, s)
			}
			return contention.WriteTable(cmd.OutOrStdout(), []contention.Series{s})
		},
	}
	f.contenders.flags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "CAS, through the switch as it is", "what the table calls it")
	fs.IntVar(&f.iters, "iters", 0, "CAS of each point (default 20000)")
	outputFlag(cmd)
	return cmd
}

func (f *fig10Flags) measure(cmd *cobra.Command) (contention.Series, error) {
	s := contention.Series{Name: f.name, Source: "this machine"}
	hosts, err := f.contenders.hosts(cmd)
	if err != nil {
		return s, err
	}
	for _, n := range contention.Clients {
		p, err := f.point(cmd, hosts, n)
		if err != nil {
			return s, fmt.Errorf("%d clients: %w", n, err)
		}
		s.Points = append(s.Points, p)
	}
	return s, nil
}

// point runs n clients, spread over the hosts.
func (f *fig10Flags) point(cmd *cobra.Command, hosts []string, n int) (contention.Point, error) {
	iters := f.iters
	if iters == 0 {
		iters = 20000
	}
	results, executed, err := f.contenders.run(cmd, hosts, n, func(share int) perf.Config {
		return perf.Config{Test: perf.Contend, Clients: share, Iters: max(share, iters*share/n)}
	})
	if err != nil {
		return contention.Point{}, err
	}
	return total(n, results, executed), nil
}

// total adds up what the hosts have found. They did not begin and end together, so that rates are added, not counts.
func total(n int, results []*perf.Result, executed uint64) contention.Point {
	p := contention.Point{Clients: n}
	done := 0
	for _, r := range slices.DeleteFunc(results, func(r *perf.Result) bool { return r == nil || r.BW == nil }) {
		p.Mops += r.BW.MsgRate
		p.Succeeded += float64(r.Swapped) / r.Elapsed.Seconds() / 1e6
		done += r.BW.Iters
	}
	if done > 0 {
		p.Replaced = max(0, 1-float64(executed)/float64(done))
		p.Latency = time.Duration(float64(n) / p.Mops * 1e3)
	}
	return p
}
