package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/treeload"
)

// locksFlags are the flags of sherman locks as typed.
type locksFlags struct {
	contenders contenders
	places     string
	clients    string
	span       time.Duration
}

// shermanLocksCmd measures on a rack what `rdmalab sim treeload` computes of one lock.
func shermanLocksCmd() *cobra.Command {
	var f locksFlags
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "Measure what one contended lock yields on the running rack",
		Long: "locks lets clients on the rack's compute hosts take one lock by CAS, as Sherman's do, again and again until they\n" +
			"have it, and release it by a WRITE, through the switch as it is now. The lock is the last word of the memory that\n" +
			"the server shares, and then the last one of the lock table on its NIC. Run it with and without a rule to compare;\n" +
			"REPLACED says how many CAS the server saw as something else. `rdmalab sim treeload` has the same table at the\n" +
			"pace of hardware, beside the papers' figures, and `rdmalab sherman stat` counts hand-overs of the tree.\n" +
			"The words are taken from whoever uses them: stop the stores first.",
		Example: "  rdmalab sherman locks --to ms0\n" +
			"  rdmalab switch rules add server=ms0 action=atomics misses=wait && rdmalab sherman locks --clients 16,64,256",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			out, err := f.measure(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, out)
			}
			return treeload.WriteLocks(cmd.OutOrStdout(), out)
		},
	}
	f.contenders.flags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.places, "places", "host,device", "where the lock is, by commas")
	fs.StringVar(&f.clients, "clients", "1,4,16,64,256", "numbers of clients, by commas")
	fs.DurationVar(&f.span, "span", time.Second, "how long each measurement takes")
	outputFlag(cmd)
	return cmd
}

// points are the numbers of clients, which at most perf.MaxClients a host can be.
func (f *locksFlags) points(hosts int) ([]int, error) {
	var out []int
	for _, w := range strings.Split(f.clients, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(w))
		if err != nil || n < 1 || n > hosts*perf.MaxClients {
			return nil, badUse("--clients: %q is no number from 1 to %d, %d for each of %d compute hosts", w, hosts*perf.MaxClients, perf.MaxClients, hosts)
		}
		out = append(out, n)
	}
	return out, nil
}

func (f *locksFlags) measure(cmd *cobra.Command) ([]treeload.LockSeries, error) {
	hosts, err := f.contenders.hosts(cmd)
	if err != nil {
		return nil, err
	}
	points, err := f.points(len(hosts))
	if err != nil {
		return nil, err
	}
	rack, _, err := rackOf(cmd)
	if err == nil {
		err = errors.Join(noTree(rack, statusOf(cmd)), noClover(rack, statusOf(cmd))) // it would take their locks, and their memory
	}
	if err != nil {
		return nil, err
	}
	var out []treeload.LockSeries
	for _, place := range strings.Split(f.places, ",") {
		if place != treeload.LocksHost && place != treeload.LocksDevice {
			return nil, badUse("--places: %q is no place of a lock; there are host and device", place)
		}
		s := treeload.LockSeries{Name: "lock in " + place + " memory", Source: "this machine"}
		for _, n := range points {
			p, err := f.point(cmd, hosts, n, place == treeload.LocksDevice)
			if err != nil {
				return nil, fmt.Errorf("%d clients, lock in %s memory: %w", n, place, err)
			}
			s.Points = append(s.Points, p)
		}
		out = append(out, s)
	}
	return out, nil
}

// point runs n clients, spread over the hosts.
func (f *locksFlags) point(cmd *cobra.Command, hosts []string, n int, device bool) (treeload.LockPoint, error) {
	results, executed, err := f.contenders.run(cmd, hosts, n, func(share int) perf.Config {
		return perf.Config{Test: perf.Locks, Clients: share, Device: device, Span: f.span}
	})
	if err != nil {
		return treeload.LockPoint{}, err
	}
	return lockTotal(n, results, executed)
}

// lockTotal adds up what the hosts have found. They did not begin and end together, so that rates are added, not counts.
func lockTotal(n int, results []*perf.Result, executed uint64) (treeload.LockPoint, error) {
	p := treeload.LockPoint{Clients: n}
	var waits *hdrhistogram.Histogram
	attempts := uint64(0)
	for _, r := range results {
		if r == nil || r.Locks == nil {
			continue
		}
		h, err := r.Locks.Histogram()
		if err != nil {
			return p, err
		}
		if waits == nil {
			waits = h
		} else {
			waits.Merge(h)
		}
		attempts += r.Locks.Attempts
		p.Attempts += float64(r.Locks.Attempts) / r.Elapsed.Seconds() / 1e6
		p.Acquired += float64(r.Locks.Acquired) / r.Elapsed.Seconds() / 1e6
	}
	if waits != nil {
		p.P50, p.P99 = time.Duration(waits.ValueAtQuantile(50)), time.Duration(waits.ValueAtQuantile(99))
	}
	if attempts > 0 {
		p.Replaced = max(0, 1-float64(executed)/float64(attempts))
	}
	return p, nil
}
