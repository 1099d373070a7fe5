package main

import (
	"errors"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// contenders are clients on the rack's compute hosts that all want one word of a memory server.
type contenders struct{ from, to string }

// flags adds those that say which hosts.
func (c *contenders) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.to, "to", "ms0", "memory server")
	cmd.Flags().StringVar(&c.from, "from", "", "compute hosts, by commas (default all)")
	completeFlag(cmd, "from", hostNames)
	completeFlag(cmd, "to", hostNames)
}

// hosts are those that the clients run on.
func (c *contenders) hosts(cmd *cobra.Command) ([]string, error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	if err := checkHost(rack, c.to); err != nil {
		return nil, err
	}
	if c.from != "" {
		return strings.Split(c.from, ","), nil
	}
	var out []string
	for i := range rack.Hosts {
		if h := &rack.Hosts[i]; h.Role == spec.Compute && h.Name != c.to {
			out = append(out, h.Name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the rack has no compute hosts; name others with --from")
	}
	return out, nil
}

// run runs a test with n clients, spread over the hosts, at the same time, and returns what each host has found and how many
// atomics the server's NIC executed meanwhile. test is what a host does with its share of the clients.
func (c *contenders) run(cmd *cobra.Command, hosts []string, n int, test func(share int) perf.Config) ([]*perf.Result, uint64, error) {
	hosts = hosts[:min(n, len(hosts))]
	before, err := c.executed(cmd)
	if err != nil {
		return nil, 0, err
	}
	results := make([]*perf.Result, len(hosts))
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, host := range hosts {
		client, err := hostControl(cmd, host)
		if err != nil {
			return nil, 0, err
		}
		cfg := test((n + len(hosts) - 1 - i) / len(hosts))
		cfg.To, cfg.Seed = c.to, uint64(i+1)
		wg.Go(func() {
			ev, err := followPerf(cmd, client, &cfg, func(perf.Progress) {})
			results[i], errs[i] = ev.Result, err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, 0, err
	}
	after, err := c.executed(cmd)
	return results, after - before, err
}

// executed is how many atomics the memory server's NIC has executed.
func (c *contenders) executed(cmd *cobra.Command) (uint64, error) {
	client, err := hostControl(cmd, c.to)
	if err != nil {
		return 0, err
	}
	counters, err := countersOver(cmd.Context(), client, 0)
	if err != nil {
		return 0, whose(err, c.to)
	}
	return counterMap(counters).Counters["rx_atomic_requests"], nil
}
