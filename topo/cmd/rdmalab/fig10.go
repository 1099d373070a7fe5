package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/contention"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// fig10Flags are the flags of fig10 as typed.
type fig10Flags struct {
	from, name string
	to         string
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
	fs := cmd.Flags()
	fs.StringVar(&f.to, "to", "ms0", "memory server")
	fs.StringVar(&f.from, "from", "", "compute hosts, by commas (default all)")
	fs.StringVar(&f.name, "name", "CAS, through the switch as it is", "what the table calls it")
	fs.IntVar(&f.iters, "iters", 0, "CAS of each point (default 20000)")
	completeFlag(cmd, "from", hostNames)
	completeFlag(cmd, "to", hostNames)
	outputFlag(cmd)
	return cmd
}

// hosts are those that the clients run on.
func (f *fig10Flags) hosts(cmd *cobra.Command) ([]string, error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	if err := checkHost(rack, f.to); err != nil {
		return nil, err
	}
	if f.from != "" {
		return strings.Split(f.from, ","), nil
	}
	var out []string
	for i := range rack.Hosts {
		if h := &rack.Hosts[i]; h.Role == spec.Compute && h.Name != f.to {
			out = append(out, h.Name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the rack has no compute hosts; name others with --from")
	}
	return out, nil
}

func (f *fig10Flags) measure(cmd *cobra.Command) (contention.Series, error) {
	s := contention.Series{Name: f.name, Source: "this machine"}
	hosts, err := f.hosts(cmd)
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
	hosts = hosts[:min(n, len(hosts))]
	iters := f.iters
	if iters == 0 {
		iters = 20000
	}
	before, err := f.executed(cmd)
	if err != nil {
		return contention.Point{}, err
	}
	results := make([]*perf.Result, len(hosts))
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, host := range hosts {
		client, err := hostControl(cmd, host)
		if err != nil {
			return contention.Point{}, err
		}
		share := (n + len(hosts) - 1 - i) / len(hosts)
		cfg := perf.Config{Test: perf.Contend, To: f.to, Clients: share, Iters: max(share, iters*share/n), Seed: uint64(i + 1)}
		wg.Go(func() {
			ev, err := followPerf(cmd, client, &cfg, func(perf.Progress) {})
			results[i], errs[i] = ev.Result, err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return contention.Point{}, err
	}
	after, err := f.executed(cmd)
	if err != nil {
		return contention.Point{}, err
	}
	return total(n, results, after-before), nil
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

// executed is how many atomics the memory server's NIC has executed.
func (f *fig10Flags) executed(cmd *cobra.Command) (uint64, error) {
	client, err := hostControl(cmd, f.to)
	if err != nil {
		return 0, err
	}
	c, err := countersOver(cmd.Context(), client, 0)
	if err != nil {
		return 0, whose(err, f.to)
	}
	return counterMap(c).Counters["rx_atomic_requests"], nil
}
